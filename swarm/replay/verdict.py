"""What a replay came to, and its explanation for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from swarm.replay.compare import Difference
from swarm.types import Frozen

MOST = 5  # differences that are told in full


class Verdict(Frozen):
    """``same`` holds where every recorded line was played and the trees are the recorded ones, byte for byte.

    ``alike`` says so of the last tree alone. ``lines`` of the ``of`` recorded lines were played, over ``lives`` starts
    of the work, ``given`` of which began with a tree out of the record. ``stopped`` says why it went no further,
    ``broken_off`` holds where the recorded attempt had not ended by itself. ``diff`` leads from the recorded tree to
    the replayed one.
    """

    task: str
    attempt: str
    same: bool
    alike: bool
    recorded: str
    replayed: str
    lives: int
    lines: int
    of: int
    given: int = 0
    stopped: str = ""
    broken_off: bool = False
    differences: tuple[Difference, ...] = ()
    diff: str = ""

    @property
    def first(self) -> Difference | None:
        """The first difference that is more than times and numbers."""
        real = [each for each in self.differences if not each.noise]
        return min(real, key=lambda each: each.step or 0) if real else None

    @property
    def noise(self) -> tuple[Difference, ...]:
        """Outputs that differ in times and numbers alone."""
        return tuple(each for each in self.differences if each.noise)


def told(verdict: Verdict) -> Iterator[str]:
    """The verdict in lines."""
    played = f"{verdict.lines} of {verdict.of} recorded lines played"
    if verdict.lives > 1:
        played += f", over {verdict.lives} starts of the work"
    if verdict.given:
        played += f", {verdict.given} of them on a recorded tree" if verdict.lives > 1 else ", on a recorded tree"
    if verdict.same:
        yield f"same: attempt {verdict.attempt} came to tree {verdict.recorded} again ({played})"
    elif verdict.alike:
        yield f"not whole: the tree of attempt {verdict.attempt} is the recorded one, the way there is not"
        yield f"  {played}"
    else:
        yield f"different: attempt {verdict.attempt} came to {verdict.replayed or 'no tree'}, not {verdict.recorded}"
        yield f"  {played}"
    if verdict.stopped:
        yield f"  it stopped: {verdict.stopped}"
    if verdict.first is not None:
        yield "  the first difference:" if not verdict.same else "  on the way there this was not as recorded:"
        yield from _told(verdict.first)
        if more := sum(1 for each in verdict.differences if not each.noise) - 1:
            yield f"  and {more} more"
    if not verdict.same and verdict.broken_off:
        yield "  the recorded attempt was broken off: what a command had done by then cannot be made again"
    if verdict.noise:
        yield f"  {len(verdict.noise)} outputs differ in times and numbers alone, first at line {verdict.noise[0].step}"


def _told(difference: Difference) -> Iterator[str]:
    yield f"    line {difference.step}, {difference.what}"
    yield f"      recorded: {difference.recorded}"
    yield f"      replayed: {difference.replayed}"
