"""Runs a part of the work once, however often the daemon dies, and keeps its lines for whoever goes on from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pool.errors import ContextOverflowError
from swarm.budgets.share import SCOPE, Share, share_of, spent_in
from swarm.errors import BudgetExceededError
from swarm.types import Conclusion, Step, Task
from swarm.work import Strategy, Work

BEGUN, CONCLUDED = "part", "concluded"
"""``about`` of the notes that a part begins, with the part whose conversation it goes on with as ``after``, and that it
ended, with its conclusion."""
_LONGEST = 100_000  # characters of instructions, as of a request's


@dataclass
class Tape:
    """The lines of a part, as far as they are: those of earlier lives, and what is written now.

    ``parted`` is set once it did more than look around, or is over: what came before others may share.
    """

    lines: list[Step] = field(default_factory=list)
    parted: asyncio.Event = field(default_factory=asyncio.Event)

    def shared(self) -> tuple[Step, ...]:
        """Its lines from before it changed anything, whole turns alone: a conversation that others can go on with."""
        return looked(self.lines)


async def concluded(part: Work, inner: Strategy, *, after: tuple[str, int] | None = None) -> Conclusion:
    """How a part ended: as the journal tells where it did so in an earlier life, else after the inner strategy's work.

    ``after`` is the part whose conversation it goes on with, and how many lines of it that are. Whatever limit it ran
    into is its conclusion's. Raises PoolError and SandboxError for broken machinery.
    """
    if (known := conclusion_of(part)) is not None:
        return known
    await begun(part, after)
    try:
        ended = await inner.work(part)
    except BudgetExceededError as error:
        ended = Conclusion(ending="limit_hit", summary=str(error), limit=error.limit)
    except ContextOverflowError as error:
        ended = Conclusion(ending="gave_up", summary=f"the task does not fit the model's window: {error}")
    finally:
        part.pool.end_session(part.attempt)
    words = f"{part.name}: {ended.ending.replace('_', ' ')}" + (f": {ended.summary[:300]}" if ended.summary else "")
    await part.record("note", {"text": words, "about": CONCLUDED, "conclusion": ended.model_dump(mode="json")})
    return ended


async def begun(part: Work, after: tuple[str, int] | None = None) -> dict[str, Any] | None:
    """Note that a part begins, unless it has; the note's data."""
    if any(line.data.get("about") == BEGUN and line.data.get("part") == part.name for line in part.past):
        return None
    told: dict[str, Any] = {"about": BEGUN, "tier": part.tier}
    told |= {"after": {"part": after[0], "lines": after[1]}} if after else {}
    data = {"text": f"{part.name}: begins on tier {part.tier}", **told}
    await part.record("note", data)
    return data


def conclusion_of(part: Work) -> Conclusion | None:
    """How a part ended in an earlier life; None where it did not."""
    found = (line.data for line in reversed(part.past) if line.data.get("part") == part.name)
    told = next((data for data in found if data.get("about") == CONCLUDED), None)
    return Conclusion.model_validate(told["conclusion"]) if told else None


def latest(part: Work) -> tuple[Step, ...]:
    """The lines of a part since it began last: what was begun in a fork that is gone is not gone on with."""
    starts = (
        number
        for number, line in enumerate(part.past)
        if line.data.get("about") == BEGUN and line.data.get("part") == part.name
    )
    return part.past[max(starts, default=0) :]


def taped(part: Work, tape: Tape) -> Work:
    """The same part, its lines kept on the tape as they are written."""
    tape.lines[:] = part.past
    if _parts(tape.lines) or conclusion_of(part) is not None:
        tape.parted.set()

    async def record(kind: str, data: dict[str, Any]) -> None:
        await part.record(kind, data)
        kept = {"part": part.name, **json.loads(json.dumps(data, default=str))}
        line = Step(task=part.task.id, attempt=part.attempt, seq=0, at=0.0, kind=kind, data=kept)
        tape.lines.append(line)
        if _parts([line]) or kept.get("about") == CONCLUDED:
            tape.parted.set()

    return replace(part, record=record)


def shared_out(work: Work, name: str, fraction: float, **more: Any) -> Work:
    """A part with such a share of what is left now; what an earlier life of it spent counts for it.

    ``more`` are a part's tier and sandbox, ``silent`` and ``wall`` (the share of the time, where it is another).
    """
    silent, wall = bool(more.pop("silent", False)), more.pop("wall", fraction)
    limits = share_of(work.ledger, fraction)
    if "wall" in limits and fraction > 0:
        limits["wall"] = limits["wall"] / fraction * wall
    part = work.part(name, **more)
    before = spent_in(part.past)
    limits = {key: limit + getattr(before, key) for key, limit in limits.items()}
    return replace(part, ledger=Share(work.ledger, limits, before=before, silent=silent))


def instructed(work: Work, instructions: str) -> Work:
    """The same work with other words for what is to be done."""
    request = work.task.request.model_copy(update={"instructions": instructions[:_LONGEST]})
    task: Task = work.task.model_copy(update={"request": request})
    return replace(work, task=task)


def of_whole(conclusion: Conclusion, *, proved: bool = False, changed: bool = False) -> Conclusion:
    """A part's conclusion as the whole's: a limit of its share was one of the task's.

    Where tests that had failed pass now (``proved``), the work is done, though its part did not come to say so. Where
    parts before it left the workspace ``changed``, one that found nothing more to do has finished their work.
    """
    if (proved and conclusion.ending in {"limit_hit", "gave_up"}) or (changed and conclusion.ending == "no_change"):
        return conclusion.model_copy(update={"ending": "finished", "limit": ""})
    if not conclusion.limit.startswith(f"{SCOPE}."):
        return conclusion
    return conclusion.model_copy(update={"limit": f"task.{conclusion.limit.partition('.')[2]}"})


def share_spent(conclusion: Conclusion) -> bool:
    """Whether a part ended because its own share was spent, while the whole may have more."""
    return conclusion.ending == "limit_hit" and conclusion.limit.startswith(f"{SCOPE}.")


def looked(lines: Sequence[Step]) -> tuple[Step, ...]:
    """The lines up to the last turn before the first one that changed something, or may have. Pure."""
    kept: list[Step] = []
    turn: list[Step] = []
    for line in lines:
        if line.kind == "model_call" and "message" in line.data:
            kept += turn
            turn = []
        turn.append(line)
        if _parts([line]):
            return tuple(kept)
    return tuple(kept)  # the last turn may be the one that ended it


def _parts(lines: Sequence[Step]) -> bool:
    """Whether a line tells of something that may have changed the workspace; running the tests as they are does not."""
    return any(
        line.kind == "edit" or (line.data.get("changed") and line.data.get("tool") != "run_tests") for line in lines
    )
