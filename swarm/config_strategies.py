"""Ways to work that are put together in swarm.toml: [strategies.NAME], checked as a whole before anything runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from pydantic import Field

from swarm.agents import agent_of, strategy_of
from swarm.config_text import Problem, nearest
from swarm.types import STRATEGY, Frozen

Kind = Literal["best-of", "plan", "review", "draft-verify", "cascade", "in-turn"]
DEEPEST = 4
"""How many strategies may lie within one another."""
MOST_TRIES = 16
OWN: Mapping[str, str] = {
    "agent": "one model with the tools and its own judgement",
    "single": "the same as agent",
    "sampled_repair": "has a function, or a line, written anew and takes what passes the tests; for small models",
    "mutation_repair": "mends one line by rules alone, judged by the tests; asks no model",
    "best-of-3": "three tries in forks (best-of-N: N tries); tests, then agreement choose one",
    "plan": "a large tier plans, a small one edits by it",
    "review": "an agent works, a reviewer with fresh eyes finds faults, the agent mends them",
    "draft-verify": "a small tier drafts, a large one accepts, amends or turns down",
    "cascade": "the smallest tier first, a larger one on evidence, and down again",
    "auto": "learns from what became of the repository's earlier attempts; at first takes what fits the tier",
}
"""Our own ways to work, each in one line."""
_BEST_OF = re.compile(r"best-of-([1-9]\d?)")
USES: Mapping[Kind, frozenset[str]] = {
    "best-of": frozenset({"of", "n", "agree", "at_once"}),
    "plan": frozenset({"of", "planner", "rounds", "tier", "worker_tier"}),
    "review": frozenset({"of", "rounds", "tier"}),
    "draft-verify": frozenset({"of", "rounds", "tier", "worker_tier"}),
    "cascade": frozenset({"of", "opener", "rounds", "tiers"}),
    "in-turn": frozenset({"ways"}),
}
"""The settings that mean something to each kind."""
ROUNDS: Mapping[Kind, int] = {"plan": 1, "review": 2, "draft-verify": 2, "cascade": 4}
"""The rounds of each kind where none are set."""


class StrategyConfig(Frozen):
    """A way to work that is made of others."""

    kind: Kind = Field(description="what it does with the strategies that it is made of")
    of: str = Field(default="agent", pattern=STRATEGY, description="the strategy that does the work in it")
    n: int = Field(default=3, ge=1, le=MOST_TRIES, description="best-of: tries")
    agree: int = Field(
        default=2, ge=1, le=MOST_TRIES, description="best-of: tries that agree, after which no more begin"
    )
    at_once: int = Field(
        default=1,
        ge=1,
        le=MOST_TRIES,
        description="best-of: tries at a time; more are sooner done and cost more tokens",
    )
    planner: str = Field(default="agent", pattern=STRATEGY, description="plan: the strategy that writes the plan")
    opener: str | None = Field(
        default=None,
        pattern=STRATEGY,
        description="cascade: a cheap strategy that has the first try, as mutation_repair",
    )
    ways: tuple[str, ...] = Field(
        default=(), max_length=8, description="in-turn: strategies; each follows where the one before it gave up"
    )
    rounds: int | None = Field(
        default=None,
        ge=0,
        le=8,
        description="at most so many reviews (review), revised plans (plan), drafts (draft-verify) or stages (cascade)",
    )
    tier: str | None = Field(
        default=None, description="tier that plans, reviews or verifies; default: the strongest that the task may ask"
    )
    worker_tier: str | None = Field(
        default=None, description="plan, draft-verify: tier that edits; default: the weakest that the task may ask"
    )
    tiers: tuple[str, ...] = Field(
        default=(), max_length=8, description="cascade: its tiers, weakest first; default: those of the task's ladder"
    )

    def inner(self) -> tuple[str, ...]:
        """The strategies that it is made of."""
        match self.kind:
            case "in-turn":
                return self.ways
            case "plan":
                return self.planner, self.of
            case "cascade" if self.opener:
                return self.opener, self.of
            case _:
                return (self.of,)


def ready_made(name: str) -> StrategyConfig | None:
    """What a name of ours is made of, as best-of-5 and review; None for one that is made of nothing, or is not ours."""
    if (found := _BEST_OF.fullmatch(name)) and int(found[1]) <= MOST_TRIES:
        return StrategyConfig(kind="best-of", n=int(found[1]))
    kinds: Mapping[str, Kind] = {
        "plan": "plan", "review": "review", "draft-verify": "draft-verify", "cascade": "cascade"
    }  # fmt: skip
    return StrategyConfig(kind=kinds[name]) if name in kinds else None


def best_of_misfit(name: str) -> str:
    """The mend for a best-of-N whose N is out of bounds; empty for any other name."""
    if re.fullmatch(r"best-of--?\d+", name) and ready_made(name) is None:
        return f"N of best-of-N is 1 to {MOST_TRIES}"
    return ""


def names(made: Mapping[str, StrategyConfig], agents: Collection[str]) -> tuple[str, ...]:
    """Every way to work that a task may name: ours, those put together in the settings, and one for each agent."""
    return (*OWN, *made, *(strategy_of(name) for name in agents))


def is_known(name: str, made: Mapping[str, StrategyConfig], agents: Collection[str]) -> bool:
    """Whether there is such a way to work."""
    return name in names(made, agents) or ready_made(name) is not None


def strategy_misfits(
    made: Mapping[str, StrategyConfig], agents: Collection[str], tiers: Collection[str]
) -> Iterator[Problem]:
    """What is wrong with the strategies of a file taken together; each is named, with the mend."""
    for name, one in made.items():
        key = f"strategies.{name}"
        if name in OWN or ready_made(name) is not None or agent_of(name) is not None:
            yield Problem(key=key, line=None, message=f'"{name}" is a strategy already; take another name')
        stray = one.model_fields_set - USES[one.kind] - {"kind"}
        for field in sorted(stray):
            used = ", ".join(sorted(USES[one.kind]))
            words = f'means nothing to kind = "{one.kind}", which takes {used}'
            yield Problem(key=f"{key}.{field}", line=None, message=words)
        if one.kind == "in-turn" and not one.ways:
            yield Problem(key=f"{key}.ways", line=None, message='kind = "in-turn" needs at least one strategy in ways')
        yield from _bad_parts(key, one, made, agents)
        yield from _bad_tiers(key, one, tiers)
    yield from _bad_shapes(made)


def _bad_parts(
    key: str, one: StrategyConfig, made: Mapping[str, StrategyConfig], agents: Collection[str]
) -> Iterator[Problem]:
    for part in one.inner():
        if part == "auto" or agent_of(part) is not None:
            why = "chooses by itself" if part == "auto" else "needs a sandbox of its own kind"
            yield Problem(key=key, line=None, message=f'cannot be made of "{part}", which {why}: name it in the task')
        elif not is_known(part, made, agents):
            known = [name for name in names(made, ()) if name != "auto"]
            like = nearest(part, known)
            mend = f'did you mean "{like}"?' if like else f"known are: {', '.join(known)}"
            mend = best_of_misfit(part) or mend
            yield Problem(key=key, line=None, message=f'is made of "{part}", which is no strategy; {mend}')


def _bad_tiers(key: str, one: StrategyConfig, tiers: Collection[str]) -> Iterator[Problem]:
    if not tiers:
        return
    for tier in (one.tier, one.worker_tier, *one.tiers):
        if tier is not None and tier not in tiers:
            yield Problem(
                key=key, line=None, message=f'no endpoint serves its tier "{tier}"; served are: {", ".join(tiers)}'
            )


def _bad_shapes(made: Mapping[str, StrategyConfig]) -> Iterator[Problem]:
    """Strategies that are made of themselves, and those that lie too deep in one another."""
    for name in made:
        path = _longest(name, made, ())
        if path[-1] in path[:-1]:
            if path[-1] == name:
                yield Problem(
                    key=f"strategies.{name}", line=None, message=f"is made of itself: {' is made of '.join(path)}"
                )
        elif len(path) > DEEPEST:
            words = f"lies {len(path)} deep, more than {DEEPEST}: {' is made of '.join(path)}"
            yield Problem(key=f"strategies.{name}", line=None, message=words)


def _longest(name: str, made: Mapping[str, StrategyConfig], above: tuple[str, ...]) -> tuple[str, ...]:
    """The longest way down from a strategy, so far as one may go; one that comes back to where it was ends there."""
    path = (*above, name)
    config = made.get(name) or ready_made(name)
    if name in above or config is None or len(path) > DEEPEST:
        return path
    ways = [_longest(part, made, path) for part in config.inner()]
    circles = [way for way in ways if way[-1] in way[:-1]]
    return max(circles or ways, key=len, default=path)
