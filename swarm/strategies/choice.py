"""Which strategy works on a task: by name, or by what is known of the tier and the task."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from pool.config import AUTO, PoolConfig
from swarm.agent import Agent
from swarm.agents import RECIPES, AgentConfig, agent_of, strategy_of
from swarm.errors import ConfigError
from swarm.strategies.command import CommandAgent
from swarm.strategies.repair import SampledRepair
from swarm.types import Conclusion
from swarm.work import Strategy, Work

NAMES = ("agent", "sampled_repair", "auto")
CHOICE = "strategy"
"""``about`` of the note that says which strategies `auto` tries."""
_PARAMETERS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*([mb])(?![a-z])", re.IGNORECASE)
_SMALL = 1e9


def strategy_named(
    name: str, *, small_tiers: Collection[str] = ("embedded",), agents: Mapping[str, AgentConfig] = RECIPES
) -> Strategy:
    """The strategy of that name. ``small_tiers`` are those whose models are too small to steer themselves, see
    `small_tiers`; ``agents`` those that are there for `cli:NAME`. Raises ConfigError for a name that there is not."""
    agent = agent_of(name)
    if agent is not None and agent in agents:
        return CommandAgent(agent, agents[agent])
    match name:
        case "agent":
            return Agent()
        case "sampled_repair":
            return SampledRepair()
        case "auto":
            return Auto(frozenset(small_tiers))
    known = ", ".join((*NAMES, *map(strategy_of, agents)))
    raise ConfigError(f"there is no strategy {name!r}", f"use one of: {known}")


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


def is_small(model: str) -> bool:
    """Whether a model's name tells of under a thousand million parameters; a name that tells nothing is not small."""
    sizes = [float(number) * (1e9 if unit in "bB" else 1e6) for number, unit in _PARAMETERS.findall(model)]
    return bool(sizes) and max(sizes) < _SMALL


def choose(*, small: bool, native_tools: bool, testable: bool) -> tuple[str, ...]:
    """The strategies to try in turn; the next one follows only where one gave up.

    Without a test command only the agent can do anything. A very small model cannot steer itself at all. A model
    that does not speak native tool calls is a weak agent, so the cheap search goes first and the agent follows.
    """
    if not testable:
        return ("agent",)
    if small:
        return ("sampled_repair",)
    return ("agent",) if native_tools else ("sampled_repair", "agent")


class Auto:
    """The strategy `auto`."""

    def __init__(self, small: frozenset[str]) -> None:
        self._small = small

    async def work(self, work: Work) -> Conclusion:
        """Choose, work, and go on to the next choice where one gave up. Raises PoolError and SandboxError."""
        small = work.tier in self._small
        native = not small and await work.pool.native_tools(work.tier)
        names = choose(small=small, native_tools=native, testable=bool(work.test_command))
        told = {"about": CHOICE, "names": list(names)}
        await work.record("note", {"text": f"strategy: {', then '.join(names)}", **told})
        return await in_turn(work, names, strategy_named)


async def in_turn(work: Work, names: Sequence[str], strategy: Callable[[str], Strategy]) -> Conclusion:
    """Try strategies one after the other, as long as each gives up. Raises PoolError and SandboxError."""
    for name in names:
        conclusion = await strategy(name).work(work)
        if conclusion.ending != "gave_up" or name == names[-1]:
            break
        await work.record("note", {"text": f"{name} gave up: {conclusion.summary}"})
    return conclusion.model_copy(update={"strategy": name})
