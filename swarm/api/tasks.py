"""Tasks over HTTP: in, shown, listed, followed, and a person's verbs on them. One method a route."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import Response, StreamingResponse

from swarm.answers import (
    FURTHEST,
    LARGEST_PAGE,
    MessageRequest,
    Page,
    PageQuery,
    PriorityRequest,
    ResumeRequest,
    RetryRequest,
    TaskFilter,
)
from swarm.api.desk import Caller, CallerOf, Desk
from swarm.api.failures import Answers
from swarm.api.streams import Streams
from swarm.errors import ForeignTaskError, KeyReusedError, TaskError
from swarm.types import INTAKE, ForkRequest, Step, TaskMessage, TaskRequest, TaskState, TaskView

TASK = "/v1/tasks/{task}"
EVENTS = {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "server-sent events"}
_KEY = re.compile(r"[\x20-\x7e]{1,200}")

TaskOf = Annotated[
    str, Path(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$", description="a task's id, or a beginning that no other has")
]
Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="items of a page")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the page before")]
Seen = Annotated[
    int | None, Header(alias="Last-Event-ID", ge=0, le=FURTHEST, description="the last event that was seen")
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        max_length=202,
        description="the same key again gives the same answer and does nothing more; with another body it is refused "
        "(draft-ietf-httpapi-idempotency-key-header)",
    ),
]


def routes(desk: Desk, streams: Streams) -> APIRouter:
    """The routes over tasks."""
    door = TaskDoor(desk, streams)
    router = APIRouter(tags=["tasks"])
    text: Answers = {200: {"content": {"text/x-diff": {"schema": {"type": "string"}}}, "description": "a unified diff"}}
    both: Answers = {200: {"model": TaskView, "description": "it was there already"}}
    add = router.add_api_route
    add("/v1/tasks", door.submit_task, methods=["POST"], status_code=201, responses=both)
    add("/v1/tasks", door.list_tasks, methods=["GET"])
    add("/v1/counts", door.count_tasks, methods=["GET"])
    add(TASK, door.show_task, methods=["GET"])
    add(f"{TASK}/steps", door.list_steps, methods=["GET"])
    events: Answers = {200: EVENTS}
    add(f"{TASK}/events", door.follow_task, methods=["GET"], response_class=StreamingResponse, responses=events)
    add(f"{TASK}/diff", door.diff_task, methods=["GET"], response_class=Response, responses=text)
    add(f"{TASK}/cancel", door.cancel_task, methods=["POST"])
    add(f"{TASK}/pause", door.pause_task, methods=["POST"])
    add(f"{TASK}/resume", door.resume_task, methods=["POST"])
    add(f"{TASK}/retry", door.retry_task, methods=["POST"])
    add(f"{TASK}/priority", door.prioritise_task, methods=["POST"])
    add(f"{TASK}/fork", door.fork_task, methods=["POST"], status_code=201, responses=both)
    add(f"{TASK}/messages", door.message_task, methods=["POST"], status_code=201)
    add(f"{TASK}/messages", door.list_messages, methods=["GET"])
    return router


class TaskDoor:
    """One method a route; its docstring is what the description of the api says."""

    def __init__(self, desk: Desk, streams: Streams) -> None:
        self._desk = desk
        self._streams = streams

    async def submit_task(
        self, wanted: TaskRequest, caller: CallerOf, response: Response, idempotency_key: IdempotencyKey = None
    ) -> TaskView:
        """Hand in a task. 201 for a new one, 200 where the same idempotency key (header or field) made it before."""
        wanted = _keyed(wanted, idempotency_key)
        plan = dataclasses.replace(await self._desk.plan(wanted), user=caller.name)
        view, new = await self._desk.coordinator.submit(wanted, plan)
        response.status_code = 201 if new else 200
        return view

    async def list_tasks(self, wanted: Annotated[PageQuery, Query()]) -> Page[TaskView]:
        """The newest tasks first, a page at a time. What is handed in meanwhile moves nobody to another page."""
        return await self._desk.store.listing.page(wanted, wanted.cursor, wanted.limit)

    async def count_tasks(self, wanted: Annotated[TaskFilter, Query()]) -> dict[TaskState, int]:
        """How many tasks there are in each state; states without any are left out."""
        return await self._desk.store.listing.counts(wanted)

    async def show_task(self, task: TaskOf) -> TaskView:
        """One task: state, attempts, checks, pull request."""
        return await self._desk.store.view(task)

    async def list_steps(
        self,
        task: TaskOf,
        after: Annotated[int, Query(ge=0, le=FURTHEST, description="only lines after this number")] = 0,
        limit: Limit = LARGEST_PAGE,
        cursor: Cursor = None,
    ) -> Page[Step]:
        """A task's journal, oldest line first. `next` is the number of the last line, to be handed back as `after` or
        `cursor`."""
        view = await self._desk.store.view(task)
        steps = await self._desk.store.steps(view.task.id, after=_number(cursor) if cursor else after, limit=limit)
        return Page(items=steps, next=str(steps[-1].seq) if len(steps) == limit else None)

    async def follow_task(
        self,
        task: TaskOf,
        caller: CallerOf,
        after: Annotated[int, Query(ge=0, le=FURTHEST)] = 0,
        last_event_id: Seen = None,
    ) -> StreamingResponse:
        """A task's journal as it is written: events `step` with the line as data and its number as id, until the task
        is final and one event `end` tells its state. Last-Event-ID takes it up."""
        view = await self._desk.store.view(task)
        return self._streams.journal(caller, view.task.id, after if last_event_id is None else last_event_id)

    async def diff_task(self, task: TaskOf) -> Response:
        """What the last attempt that left something changed, as a unified diff; empty when none did."""
        return Response(await self._desk.diff(await self._desk.store.view(task)), media_type="text/x-diff")

    async def cancel_task(self, task: TaskOf, caller: CallerOf) -> TaskView:
        """Stop a task; what it left is kept. One that ended stays as it is."""
        return await self._desk.coordinator.cancel(await self._moved(task, caller))

    async def pause_task(self, task: TaskOf, caller: CallerOf) -> TaskView:
        """Stop working on a task for now, its work kept; its place is given to others. A paused one stays paused."""
        return await self._desk.coordinator.pause(await self._moved(task, caller))

    async def prioritise_task(self, task: TaskOf, wanted: PriorityRequest, caller: CallerOf) -> TaskView:
        """Give a task that waits in the queue another priority, and with it another place; the same again changes
        nothing. 409 for one that does not wait any more."""
        moved = await self._moved(task, caller)
        return await self._desk.coordinator.prioritise(moved, wanted.priority, caller.name)

    async def resume_task(self, task: TaskOf, caller: CallerOf, wanted: ResumeRequest | None = None) -> TaskView:
        """Go on with a paused task where it stood, or with one that ended badly, from an attempt that is named."""
        attempt = wanted.attempt if wanted else None
        return await self._desk.coordinator.resume(await self._moved(task, caller), attempt)

    async def retry_task(self, task: TaskOf, caller: CallerOf, wanted: RetryRequest | None = None) -> TaskView:
        """Put a task that ended badly back into the queue, its budget granted once more; under a new capability where
        the old one ran out."""
        capability = wanted.capability if wanted else None
        return await self._desk.coordinator.retry(await self._moved(task, caller), capability)

    async def fork_task(self, task: TaskOf, wanted: ForkRequest, caller: CallerOf, response: Response) -> TaskView:
        """A new task that goes on from where another stood. 200 where the same fork was made before."""
        known = await self._desk.store.view(task)
        wanted = await self._within(known, wanted)
        view, new = await self._desk.coordinator.fork(known.task.id, wanted, caller.name)
        response.status_code = 201 if new else 200
        return view

    async def message_task(
        self, task: TaskOf, wanted: MessageRequest, caller: CallerOf, idempotency_key: IdempotencyKey = None
    ) -> TaskMessage:
        """Tell the agent of a task something; it hears it at its next turn."""
        key = _key(idempotency_key)
        return await self._desk.coordinator.message(await self._moved(task, caller), wanted.text, caller.name, key=key)

    async def list_messages(self, task: TaskOf) -> tuple[TaskMessage, ...]:
        """What was said to the agent of a task."""
        view = await self._desk.store.view(task)
        return await self._desk.store.messages.of(view.task.id)

    async def _within(self, known: TaskView, wanted: ForkRequest) -> ForkRequest:
        """A fork with a whole budget: what it says, else as the other task's. Raises TaskError for one too large."""
        if wanted.budget is None:
            return wanted
        said = {"budget": wanted.budget, "capability": wanted.capability, "follows": None}
        await self._desk.plan(known.task.request.model_copy(update=said))
        over = {name: getattr(wanted.budget, name) for name in wanted.budget.model_fields_set}
        return wanted.model_copy(update={"budget": known.task.budget.model_copy(update=over)})

    async def _moved(self, task: str, caller: Caller) -> str:
        """The id of a task that the caller may move. Raises TaskNotFoundError and ForeignTaskError."""
        view = await self._desk.store.view(task)
        if caller.role == "submitter" and view.user != caller.name:
            raise ForeignTaskError(
                f"task {view.task.id} was handed in by {view.user or 'another'}, and {caller.name} may move its own",
                "use a token with the role operator",
            )
        return view.task.id


def _key(header: str | None) -> str | None:
    """The key of a header, which is written in quotes there, or by many without. Raises TaskError."""
    if header is None:
        return None
    key = header[1:-1].replace('\\"', '"').replace("\\\\", "\\") if header[:1] == header[-1:] == '"' else header
    if not _KEY.fullmatch(key):
        raise TaskError("the Idempotency-Key is no text of 1 to 200 characters", 'send it as "KEY", in ASCII')
    return key


def _keyed(wanted: TaskRequest, header: str | None) -> TaskRequest:
    """The request with its key, whichever way it came. Raises KeyReusedError where the two ways differ, and TaskError
    for a key that is not the caller's to take."""
    key = _key(header) or wanted.idempotency_key
    if key is not None and key.startswith(INTAKE):
        why = f"keys that begin with {INTAKE} name what was asked for on a forge"
        raise TaskError(why, "take a key that begins with something of your own")
    if key is None or wanted.idempotency_key == key:
        return wanted
    if wanted.idempotency_key is not None:
        raise KeyReusedError("the header Idempotency-Key and the field idempotency_key differ", "send one of them")
    return wanted.model_copy(update={"idempotency_key": key})


def _number(cursor: str) -> int:
    if not re.fullmatch(r"\d{1,15}", cursor):
        raise TaskError(f"{cursor[:50]!r} is no cursor of a journal", "hand back `next` of the page before")
    return int(cursor)
