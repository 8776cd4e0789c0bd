"""Which tier a part of the work is asked of, from the ladder that an attempt may climb. Pure."""

from __future__ import annotations

from swarm.work import Work


def strongest(work: Work) -> str:
    """The tier at the top; the work's own where it may ask no other."""
    return work.ladder[-1] if work.ladder else work.tier


def weakest(work: Work) -> str:
    """The tier at the bottom; the work's own where it may ask no other."""
    return work.ladder[0] if work.ladder else work.tier


def rungs(work: Work) -> tuple[str, ...]:
    """All tiers that may be asked, weakest first; the work's own alone where that is all."""
    return work.ladder or (work.tier,)


async def told(work: Work) -> None:
    """Have the journal tell which tiers might be asked, for a replay to know; once."""
    if work.ladder and not any("ladder" in line.data for line in work.past):
        tiers = ", ".join(work.ladder)
        await work.record("note", {"text": f"tiers that may be asked: {tiers}", "ladder": list(work.ladder)})
