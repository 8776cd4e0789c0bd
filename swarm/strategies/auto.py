"""The strategy `auto`: takes the way that fits the tier and what became of the repository's earlier attempts.

What was chosen is in the journal with its reasons, before anything follows; a later life and a replay go by that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swarm.strategies import learning
from swarm.strategies.learning import Decision
from swarm.strategies.sizes import is_weak
from swarm.strategies.turns import in_turn
from swarm.types import Conclusion
from swarm.work import Strategy, Work

AUTO = "auto"
CHOICE = "strategy"
"""``about`` of the note that says which strategies `auto` tries, and why."""
_LADDERED = ("cascade", "plan", "draft-verify")  # need a second tier


class Auto:
    """``small`` are tiers too small to steer themselves, ``strategy`` gives a way to work by its name."""

    def __init__(self, small: frozenset[str], strategy: Callable[[str], Strategy]) -> None:
        self._small = small
        self._strategy = strategy

    async def work(self, work: Work) -> Conclusion:
        """Choose, work, and go on to the next choice where one gave up. Raises PoolError and SandboxError."""
        names, why = _chosen_before(work)
        if not names:
            decision = await self._decide(work)
            names, why = decision.names, decision.why
            told = {"about": CHOICE, "names": list(names), "why": why, "learnt": decision.learnt}
            await work.record("note", {"text": f"strategy: {', then '.join(names)} ({why})", **told})
        done = await in_turn(work, names, self._strategy)
        return done.model_copy(update={"why": why})

    async def _decide(self, work: Work) -> Decision:
        small = work.tier in self._small
        native = not small and await work.pool.native_tools(work.tier)
        weak = not small and is_weak((await work.pool.traits(work.tier)).model)
        testable = bool(work.test_command)
        rule = choose(small=small, weak=weak, native_tools=native, testable=testable)
        others = others_than(rule, small=small, testable=testable, tiers=len(work.ladder))
        return learning.decide(rule, others, work.outcomes, now=work.task.created, seed=work.attempt, tier=work.tier)


def choose(*, small: bool, native_tools: bool, testable: bool, weak: bool = False) -> tuple[str, ...]:
    """The strategies to try in turn where nothing was learnt; the next one follows only where one gave up.

    Without a test command only the agent can do anything. A very small model cannot steer itself at all. A model
    of few parameters, or that does not speak native tool calls, is a weak agent, so the cheap search goes first and
    the agent follows.
    """
    if not testable:
        return ("agent",)
    if small:
        return ("sampled_repair",)
    return ("agent",) if native_tools and not weak else ("sampled_repair", "agent")


def others_than(rule: Sequence[str], *, small: bool, testable: bool, tiers: int) -> tuple[str, ...]:
    """Further ways that could work: none that steers itself on a small tier, none judged by tests where there are none,
    none across tiers where there is one."""
    if small:
        return ("mutation_repair",) if testable else ()
    found = ["agent", "review", "best-of-3"]
    found += ["mutation_repair", "sampled_repair"] if testable else []
    found += _LADDERED if tiers > 1 else []
    return tuple(name for name in found if name not in rule)


def _chosen_before(work: Work) -> tuple[tuple[str, ...], str]:
    """What an earlier life of the attempt had chosen, and why."""
    found = (line.data for line in work.past if line.data.get("about") == CHOICE and line.attempt == work.attempt)
    told = next(found, {})
    return tuple(str(name) for name in told.get("names", ())), str(told.get("why", ""))
