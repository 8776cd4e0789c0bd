"""Where a cascade goes on after a stage: up on evidence, down once the hard part is done, or nowhere. Pure.

FrugalGPT (Chen et al., 2023) asks dearer models only where a judge of the cheap answer says so; here the judge is what
tests and the stage itself showed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swarm.strategies.parts import share_spent
from swarm.strategies.trial import Verdict
from swarm.types import Conclusion


@dataclass(frozen=True)
class Stage:
    """One part of a cascade that is over: on which tier, how it ended, and how the tests stood then."""

    tier: str
    ended: Conclusion
    verdict: Verdict

    @property
    def failing(self) -> int:
        """Tests that fail."""
        return len(self.verdict.failing)


@dataclass(frozen=True)
class Move:
    """Which tier works next, and why."""

    tier: str
    why: str


def done(stage: Stage) -> bool:
    """Whether nothing is left to do, or to spend: it finished and no test speaks against it, or a person has to say."""
    ended = stage.ended
    if ended.ending in {"asked", "cancelled", "infra_failed"}:
        return True
    if ended.ending == "limit_hit" and not share_spent(ended):
        return True
    good = stage.verdict.passed or not stage.verdict.known
    return stage.verdict.proved or (good and ended.ending in {"finished", "no_change"})


def first_move(opened: Stage | None, ladder: Sequence[str]) -> Move:
    """Where the climb begins: at the bottom, after an opener that did not do."""
    return Move(ladder[0], "the weakest tier first" if opened is None else _evidence(opened, moved=False))


def next_move(stages: Sequence[Stage], ladder: Sequence[str], failing_first: int, most: int) -> Move | None:
    """What follows the last stage; None where nothing does. ``failing_first`` tests failed before any stage.

    The work goes up a tier where a stage gave up, spent its share without moving a test, or calls done what the tests
    turn down. It goes down again where a stage above the lowest moved tests and its share is spent: what is left is
    likely the easy part. At most ``most`` stages are made.
    """
    last = stages[-1]
    if done(last) or len(stages) >= most:
        return None
    before = stages[-2].failing if len(stages) > 1 else failing_first
    moved = last.verdict.known and last.failing < before and not last.verdict.broken
    at = ladder.index(last.tier)
    if moved and at > 0 and last.ended.ending != "gave_up":
        return Move(ladder[at - 1], f"{before - last.failing} failing tests fewer on {last.tier}; the rest is for less")
    if moved and share_spent(last.ended):
        return Move(last.tier, f"{before - last.failing} failing tests fewer: {last.tier} gets on")
    if at + 1 < len(ladder):
        return Move(ladder[at + 1], _evidence(last, moved=moved))
    return None


def _evidence(stage: Stage, *, moved: bool) -> str:
    """Why a tier is not enough."""
    match stage.ended.ending:
        case "gave_up":
            return f"{stage.tier} gave up: {stage.ended.summary[:300]}"
        case "limit_hit":
            tests = "tests moved, but not all" if moved else "no test moved"
            return (
                f"{stage.tier} spent its share and {tests}" if stage.verdict.known else f"{stage.tier} spent its share"
            )
        case _:
            return f"{stage.tier} calls it done, but: {stage.verdict.reason[:300]}"
