"""The append-only journal of a task: its lines, their kinds, and a bell for whoever follows along.

Kinds, and the keys of their data (a reader skips kinds it does not know):

    state           from, to, reason                       the task moved
    attempt         number, tier, strategy, carries        an attempt began
    phase_started   phase                                  prepare, work, seal, check, deliver
    phase_ended     phase, seconds, ok                     its wall clock; ok is false when it was broken off
    message         author, text, seq, of                  the agent was told what a person said to the task ``of``
    note            text, seconds where it took some       anything worth a person's eye ("interrupted" among them);
                                                           ``part`` says what the seconds were, if no preparing
    known           known, test_command                    what the agent was told of its repository before it began
    model_call      endpoint, model, prompt_tokens, completion_tokens, cached_tokens, seconds, waited, prefill, …
    budget          text, passed, mark, share, limit       how much is spent, as the agent was told
    command         argv or text, exit_code, seconds, …
    output          text                                   what a running agent of others printed, whole lines
    edit            path
    candidate       …                                      one sampled repair
    salvage         ref, tree, sandbox                     the workspace as it was now is kept under ref
    sealed          tree, base, files, left_out            the end of the work phase
    report          verdict, reason, fixed, broken,        the checks
                    weakened, flaky
    receipt         proposal, pull_request, number, branch, commit, url
    refusal         proposal, findings
    waiting         proposal, reason, opens                the broker holds it and goes on by itself
    fault           kind, what, why, mend                  broken machinery
    cancel          —                                      a person asked to stop

Where a strategy works in parts, a line's ``part`` names which; see `swarm.work.Work.part`.
A line with ``changed: true`` in its data tells of a change to the workspace, which outlives a crash from the next
`salvage` on; see `surviving`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from swarm.store.schema import changes, steps
from swarm.types import Step

EVERYTHING = ""  # what a bell calls all tasks together


_LAST = sa.select(sa.func.coalesce(sa.func.max(steps.c.seq), 0)).where(steps.c.task == sa.bindparam("whose"))
_LINE = steps.insert().values(seq=_LAST.scalar_subquery() + 1).returning(steps.c.seq)


def append(connection: sa.Connection, step: Step) -> Step:
    """Write one line inside the caller's transaction; its number is the next of its task, whatever it came with."""
    # One statement: on a shared database another host's line may come between two. Whoever is second is run again.
    values = {"task": step.task, "attempt": step.attempt, "at": step.at, "kind": step.kind, "data": encode(step.data)}
    seq = connection.execute(_LINE, {**values, "whose": step.task}).scalar_one()
    numbered = step.model_copy(update={"seq": seq})
    if step.kind == "state":
        connection.execute(changes.insert().values(task=step.task, seq=numbered.seq, at=step.at))
    return numbered


def read(
    connection: sa.Connection, task: str, *, after: int = 0, attempt: str | None = None, limit: int = 10_000
) -> tuple[Step, ...]:
    """Lines after number ``after``, oldest first."""
    query = sa.select(steps).where(steps.c.task == task, steps.c.seq > after).order_by(steps.c.seq).limit(limit)
    if attempt is not None:
        query = query.where(steps.c.attempt == attempt)
    return tuple(_step(row) for row in connection.execute(query))


def last(connection: sa.Connection, task: str, attempt: str, kind: str) -> Step | None:
    """The last line of a kind that an attempt wrote; None where there is none."""
    query = sa.select(steps).where(steps.c.task == task, steps.c.attempt == attempt, steps.c.kind == kind)
    row = connection.execute(query.order_by(steps.c.seq.desc()).limit(1)).one_or_none()
    return None if row is None else _step(row)


def surviving(lines: Sequence[Step]) -> tuple[Step, ...]:
    """The lines that a restored workspace agrees with: up to the first change that no salvage followed.

    What a part of the work did in a sandbox of its own (``fork``) changed no workspace that is restored.
    A strategy that is given these takes a change that was lost for a call that was interrupted, and makes it again.
    """
    saved = max((index for index, line in enumerate(lines) if line.kind == "salvage"), default=-1)
    changed = (index for index, line in enumerate(lines) if line.data.get("changed") and not line.data.get("fork"))
    lost = (index for index in changed if index > saved)
    return tuple(lines[: next(lost, len(lines))])


def encode(data: dict[str, Any]) -> str:
    """Data as JSON text. Half characters, which a model's output may hold and a database may not, become "?"."""
    return json.dumps(data, ensure_ascii=False, default=_plain).encode("utf-8", "replace").decode()


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def _step(row: sa.Row[Any]) -> Step:
    return Step(task=row.task, attempt=row.attempt, seq=row.seq, at=row.at, kind=row.kind, data=json.loads(row.data))


class Bell:
    """Wakes those who wait for a task's next line. Rung from the event loop alone."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def ring(self, task: str) -> None:
        """Something was written for the task."""
        for waiter in (*self._waiting.get(task, ()), *self._waiting.get(EVERYTHING, ())):
            waiter.set()

    def listen(self, task: str) -> asyncio.Event:
        """Hang up an event, for EVERYTHING as for a task; hang it up before reading, or a line in between is missed."""
        event = asyncio.Event()
        self._waiting.setdefault(task, set()).add(event)
        return event

    def followed(self) -> tuple[str, ...]:
        """Tasks that somebody listens to."""
        return tuple(self._waiting)

    def leave(self, task: str, event: asyncio.Event) -> None:
        """Take it down."""
        waiters = self._waiting.get(task, set())
        waiters.discard(event)
        if not waiters:
            self._waiting.pop(task, None)
