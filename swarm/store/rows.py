"""Rows of the database that a transaction works on, and the values that go into and come out of one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from swarm import lifecycle
from swarm.budgets.sums import total
from swarm.errors import KeyReusedError, StaleClaimError, StoreError, TaskError, TaskNotFoundError
from swarm.store import views
from swarm.store.schema import attempts, tasks
from swarm.types import Attempt, AttemptResult, Budget, FailureKind, Spent, Task, TaskRequest, TaskState

Row = sa.Row[Any]


@dataclass(frozen=True)
class Plan:
    """How a task is to be worked on, as settled when it was accepted."""

    budget: Budget
    tier: str
    strategy: str
    user: str = ""
    expires: float | None = None


class LaneParts(NamedTuple):
    """What the tasks of one lane have in common."""

    repository: str
    user: str
    tier: str
    requires: tuple[str, ...]
    mutex: str | None
    follows: str | None
    begun: str = ""


AGEING = 60.0  # seconds in the queue that make up for one point of priority


@dataclass(frozen=True)
class Source:
    """An attempt that another one goes on from; ``salvage`` is the reference that its work is kept under."""

    task: str
    attempt: str
    salvage: str | None


@dataclass(frozen=True)
class Claim:
    """The right to work on a task, and what was known when it was given.

    ``before`` is what earlier attempts spent; ``carried`` is an earlier attempt's result that only needs delivering;
    ``resumed`` tells that this attempt was begun before, by whoever is gone or let go of it; ``source`` is another one
    that it goes on from.
    """

    task: Task
    attempt: Attempt
    fence: int
    before: Spent
    carried: AttemptResult | None = None
    refusals: int = 0
    resumed: bool = False
    cancelling: bool = False
    delivering: bool = False
    source: Source | None = None


@dataclass(frozen=True)
class Settlement:
    """The end of an attempt: where the task goes, what the attempt came to, and whose doing a bad end is."""

    to: TaskState
    reason: str
    result: AttemptResult
    verdict: dict[str, Any] | None = None
    tier: str | None = None
    wait: float = 0.0
    failure: FailureKind | None = None


@dataclass(frozen=True)
class Kept:
    """A workspace as it was at one time: under which reference, as which tree, and from which sandbox."""

    ref: str
    tree: str
    sandbox: str


@dataclass(frozen=True)
class Held:
    """A proposal that the broker may yet deliver although its task ended; ``kind`` is the broker's last word on it."""

    task: str
    attempt: str
    proposal: str
    kind: str
    since: float


def rank(queued: float, priority: int) -> float:
    """Where a task stands in the queue, smaller is sooner: its time, moved forward by its priority.

    Since waiting counts for everyone alike, it never changes, and an index keeps the queue in order.
    """
    return queued - priority * AGEING


def lane(request: TaskRequest, user: str, tier: str, begun: str = "") -> str:
    """What decides alike for all tasks that have it in common whether they may start: see `scheduling.turns`.

    ``begun`` is the host that has the saved work of an attempt which goes on.
    """
    parts = [request.repository, user, tier, sorted(set(request.requires)), request.mutex, request.follows]
    parts += [begun] if begun else []
    return json.dumps(parts, ensure_ascii=True, separators=(",", ":"))


def lane_parts(lane: str) -> LaneParts:
    """A lane as it was written down."""
    repository, user, tier, requires, *more = json.loads(lane)
    return LaneParts(repository, user, tier, tuple(requires), *more)


def root_of(connection: sa.Connection, task: str | None) -> str | None:
    """The first task of a task's lineage; None for no task, or one that is not known."""
    found = connection.execute(sa.select(tasks.c.root).where(tasks.c.id == task)).scalar_one_or_none() if task else None
    return str(found) if found else None


def held_of(task: Row, attempt: Row) -> Held | None:
    """What the broker holds of an attempt; None where it holds nothing that may still pass."""
    word = views.verdict_of(attempt)
    if word is None or not lifecycle.may_still_pass(word):
        return None
    return Held(task.id, attempt.id, word["proposal"], word["kind"], task.updated)


def last_judged(connection: sa.Connection, task: str) -> Row | None:
    """The last attempt that the broker had a word on."""
    judged = sa.select(attempts).where(attempts.c.task == task, attempts.c.verdict.is_not(None))
    return connection.execute(judged.order_by(attempts.c.number.desc()).limit(1)).one_or_none()


def known(connection: sa.Connection, request: TaskRequest) -> str | None:
    """The task that this very request made before. Raises TaskError when its id is taken by another.

    Raises KeyReusedError where its idempotency key made another request's task.
    """
    if request.idempotency_key is not None:
        by_key = sa.select(tasks).where(tasks.c.key == request.idempotency_key)
        found = connection.execute(by_key).one_or_none()
        if found is not None and not TaskRequest.model_validate_json(found.request).alike(request):
            raise KeyReusedError(
                f"the key {request.idempotency_key[:60]!r} made task {found.id}, which asks for something else",
                "take another key for another task, or send the same request again",
            )
        if found is not None:
            return str(found.id)
    if request.task is None:
        return None
    row = connection.execute(sa.select(tasks).where(tasks.c.id == request.task)).one_or_none()
    if row is None:
        return None
    if TaskRequest.model_validate_json(row.request) == request:
        return request.task
    raise TaskError(f"a task {request.task} is there already, with another request", "give it another id")


_ONE = sa.select(tasks).where(tasks.c.id == sa.bindparam("task"))
_LOCKED = _ONE.with_for_update()


def row_of(connection: sa.Connection, task: str) -> Row:
    exact = connection.execute(_ONE, {"task": task}).one_or_none()
    if exact is not None:
        return exact
    like = connection.execute(sa.select(tasks).where(tasks.c.id.startswith(task, autoescape=True)).limit(4)).all()
    if task and len(like) == 1:
        return like[0]
    if like and task:
        found = ", ".join(row.id for row in like)
        raise TaskNotFoundError(f"more than one task begins with {task}: {found}", "give more of the id")
    raise TaskNotFoundError(f"there is no task {task or 'without an id'}", "see all tasks: swarm list")


def exactly(connection: sa.Connection, task: str) -> Row:
    """The row of a whole id, for callers that are no persons."""
    row = connection.execute(sa.select(tasks).where(tasks.c.id == task)).one_or_none()
    if row is None:
        raise TaskNotFoundError(f"there is no task {task}")
    return row


def locked(connection: sa.Connection, task: str) -> Row:
    """`row_of`, which nobody else changes until this transaction ends."""
    row = connection.execute(_LOCKED, {"task": task}).one_or_none()
    return row or connection.execute(_LOCKED, {"task": row_of(connection, task).id}).one()


def held(connection: sa.Connection, claim: Claim) -> Row:
    row = locked(connection, claim.task.id)
    if row.fence != claim.fence:
        raise StaleClaimError(f"attempt {claim.attempt.id} was replaced by a later claim of its task")
    return row


def last_attempt(connection: sa.Connection, task: str) -> Row | None:
    query = sa.select(attempts).where(attempts.c.task == task).order_by(attempts.c.number.desc()).limit(1)
    return connection.execute(query).one_or_none()


def open_attempt(connection: sa.Connection, row: Row) -> Row:
    """The attempt that a running task is worked on with. Raises StoreError where there is none."""
    last = last_attempt(connection, row.id)
    if last is None or last.ended is not None:
        raise StoreError(f"task {row.id} is {row.state} without an attempt", "the database was tampered with")
    return last


def claim_of(connection: sa.Connection, row: Row, attempt: Row, *, resumed: bool = False) -> Claim:
    earlier = connection.execute(
        sa.select(attempts).where(attempts.c.task == row.id, attempts.c.id != attempt.id).order_by(attempts.c.number)
    ).all()
    source = next((each for each in earlier if each.id == attempt.carries), None)
    words = [views.verdict_of(each) for each in earlier]
    return Claim(
        task=views.task_of(row),
        attempt=views.attempt_of(attempt),
        fence=row.fence,
        before=total(views.spent_of(each) for each in earlier),
        carried=views.result_of(source) if source else None,
        refusals=sum(1 for word in words if word and word["kind"] == "refusal"),
        resumed=resumed,
        cancelling=row.cancelling,
        delivering=row.state == TaskState.DELIVERING.value,
        source=_source(connection, attempt),
    )


def _source(connection: sa.Connection, attempt: Row) -> Source | None:
    if attempt.continues is None:
        return None
    row = connection.execute(sa.select(attempts).where(attempts.c.id == attempt.continues)).one_or_none()
    return Source(row.task, row.id, row.salvage) if row else None
