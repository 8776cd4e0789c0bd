"""Ways of working by their names: our own, those put together in the settings, and agents of others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pool.config import AUTO, PoolConfig
from swarm.agent import Agent
from swarm.agents import RECIPES, AgentConfig, agent_of
from swarm.config_strategies import DEEPEST, StrategyConfig, names, ready_made
from swarm.errors import ConfigError
from swarm.strategies.auto import Auto
from swarm.strategies.best_of import BestOf
from swarm.strategies.cascade import Cascade
from swarm.strategies.command import CommandAgent
from swarm.strategies.plan import PlanThenAct
from swarm.strategies.repair import SampledRepair
from swarm.strategies.review import ReviewAndFix
from swarm.strategies.sizes import is_small
from swarm.strategies.turns import in_turn
from swarm.strategies.verify import DraftVerify
from swarm.types import Conclusion
from swarm.work import Strategy, Work

_NONE: Mapping[str, StrategyConfig] = {}


def strategy_named(
    name: str,
    *,
    small_tiers: Collection[str] = ("embedded",),
    agents: Mapping[str, AgentConfig] = RECIPES,
    made: Mapping[str, StrategyConfig] = _NONE,
) -> Strategy:
    """The strategy of that name. ``small_tiers`` are those whose models are too small to steer themselves, see
    `small_tiers`; ``agents`` those that are there for `cli:NAME`; ``made`` those that the settings put together.
    Raises ConfigError for a name that there is not, and for one that is made of itself."""
    agent = agent_of(name)
    if agent is not None and agent in agents:
        return CommandAgent(agent, agents[agent])

    def named(inner: str, depth: int = 0) -> Strategy:
        if depth > DEEPEST:
            raise ConfigError(f"the strategy {name} lies more than {DEEPEST} deep", "see strategies in swarm.toml")
        config = made.get(inner) or ready_made(inner)
        if config is not None:
            return _composed(config, lambda part: named(part, depth + 1))
        match inner:
            case "agent" | "single":
                return Agent()
            case "sampled_repair":
                return SampledRepair(rules=True, rewrite=True)
            case "mutation_repair":
                return SampledRepair(rules=True, samples=False)
            case "auto" if not depth:
                return Auto(frozenset(small_tiers), named)
        raise ConfigError(f"there is no strategy {inner!r}", f"use one of: {', '.join(names(made, agents))}")

    return named(name)


def _composed(config: StrategyConfig, part: Callable[[str], Strategy]) -> Strategy:
    """A strategy that is made of others."""
    rounds = config.rounds
    match config.kind:
        case "best-of":
            return BestOf(part(config.of), n=config.n, agree=config.agree, at_once=config.at_once)
        case "plan":
            tiers = {"planner_tier": config.tier, "actor_tier": config.worker_tier}
            return PlanThenAct(
                part(config.planner), part(config.of), revisions=1 if rounds is None else rounds, **tiers
            )
        case "review":
            return ReviewAndFix(part(config.of), rounds=2 if rounds is None else rounds, tier=config.tier)
        case "draft-verify":
            drafts, tier = max(1, rounds or 2), config.tier
            return DraftVerify(part(config.of), drafts=drafts, tier=tier, draft_tier=config.worker_tier)
        case "cascade":
            opener = part(config.opener) if config.opener else None
            return Cascade(part(config.of), opener=opener, stages=max(1, rounds or 4), tiers=config.tiers)
        case "in-turn":
            return InTurn(config.ways, part)


class InTurn:
    """The ways of a strategy of the kind "in-turn": each follows where the one before it gave up."""

    def __init__(self, ways: tuple[str, ...], strategy: Callable[[str], Strategy]) -> None:
        self._ways = {name: strategy(name) for name in ways}

    async def work(self, work: Work) -> Conclusion:
        """One after the other. Raises PoolError and SandboxError."""
        return await in_turn(work, tuple(self._ways), self._ways.__getitem__)


def small_tiers(pool: PoolConfig) -> frozenset[str]:
    """Tiers served by nothing but very small models: the embedded one, and those whose models' names all say so; with
    them the virtual models, and `auto`, that have no other tier behind them."""
    endpoints = [(endpoint.tier, is_small(endpoint.model or "")) for endpoint in pool.endpoints]
    if pool.embedded.enabled:
        endpoints.append((pool.embedded.tier, True))
    large = {tier for tier, small in endpoints if not small}
    plain = frozenset(tier for tier, small in endpoints if small) - large
    behind = {AUTO: pool.auto.tiers or pool.tiers}
    behind |= {name: (*model.tiers, model.judge or model.tiers[0]) for name, model in pool.virtual.items()}
    return plain | {name for name, tiers in behind.items() if tiers and plain.issuperset(tiers)}
