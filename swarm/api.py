"""The daemon's door: JSON over HTTP on a unix socket, and a task's journal as server-sent events.

    GET  /v1/health                 DaemonHealth
    GET  /v1/status                 DaemonStatus
    POST /v1/tasks                  TaskRequest -> TaskView; 201 when new, 200 for the same idempotency key again
    GET  /v1/tasks?state=&limit=    the newest TaskViews first
    GET  /v1/tasks/{id}             TaskView; a unique beginning of an id will do, here and below
    GET  /v1/tasks/{id}/steps       Steps after number ?after=
    GET  /v1/tasks/{id}/events      Steps as events until the task is final, then one event "end"; Last-Event-ID resumes
    POST /v1/tasks/{id}/cancel      TaskView
    POST /v1/tasks/{id}/retry       TaskView
    GET  /v1/tasks/{id}/diff        text/x-diff
    .../v1/pool/...                 the model servers: see swarm.pool_door

Whatever is refused has a Failure as its body: what, why, mend.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from swarm import pool_door
from swarm.coordinator import Coordinator
from swarm.errors import IllegalMoveError, StoreError, SwarmError, TaskError, TaskNotFoundError
from swarm.pool_door import Servers
from swarm.store.rows import Plan
from swarm.store.store import Store
from swarm.types import DaemonHealth, DaemonStatus, Failure, Step, TaskRequest, TaskState, TaskView

HEARTBEAT = 10.0  # seconds between comments on a quiet stream, so that both ends notice a dead connection
BODY_LIMIT = 1_000_000  # bytes of a request

_VIEWS = TypeAdapter(tuple[TaskView, ...])
_STEPS = TypeAdapter(tuple[Step, ...])
# The first that fits names the answer: status, and what could not be done.
_ANSWERS: tuple[tuple[type[SwarmError], int, str], ...] = (
    (TaskNotFoundError, 404, "no such task"),
    (IllegalMoveError, 409, "that cannot be done now"),
    (TaskError, 422, "the task is not accepted"),
    (StoreError, 500, "the daemon's memory fails"),
    (SwarmError, 502, "the daemon cannot do that"),
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Desk:
    """What the api stands on. ``closing`` ends open streams, so that the server can stop."""

    store: Store
    coordinator: Coordinator
    plan: Callable[[TaskRequest], Awaitable[Plan]]
    diff: Callable[[TaskView], Awaitable[str]]
    health: Callable[[], DaemonHealth]
    status: Callable[[], Awaitable[DaemonStatus]]
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    servers: Servers | None = None


def application(desk: Desk) -> Starlette:
    """The api over a desk."""
    door = Door(desk)
    one = "/v1/tasks/{task}"
    routes = [
        Route("/v1/health", door.health),
        Route("/v1/status", door.status),
        Route("/v1/tasks", door.submit, methods=["POST"]),
        Route("/v1/tasks", door.tasks),
        Route(one, door.task),
        Route(f"{one}/steps", door.steps),
        Route(f"{one}/events", door.events),
        Route(f"{one}/cancel", door.cancel, methods=["POST"]),
        Route(f"{one}/retry", door.retry, methods=["POST"]),
        Route(f"{one}/diff", door.diff),
        *pool_door.routes(desk.servers),
    ]
    handlers = {SwarmError: _refused, ValueError: _misunderstood, HTTPException: _no_route, Exception: _broken}
    return Starlette(routes=routes, exception_handlers=handlers)


class Door:
    """One method a route."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def health(self, _: Request) -> Response:
        """GET /v1/health"""
        return _json(self._desk.health())

    async def status(self, _: Request) -> Response:
        """GET /v1/status"""
        return _json(await self._desk.status())

    async def submit(self, request: Request) -> Response:
        """POST /v1/tasks"""
        wanted = TaskRequest.model_validate_json(await _body(request))
        view, new = await self._desk.coordinator.submit(wanted, await self._desk.plan(wanted))
        return _json(view, 201 if new else 200)

    async def tasks(self, request: Request) -> Response:
        """GET /v1/tasks"""
        state = request.query_params.get("state")
        limit = int(request.query_params.get("limit", "50"))
        views = await self._desk.store.views(TaskState(state) if state else None, min(max(limit, 1), 1000))
        return Response(_VIEWS.dump_json(views), media_type="application/json")

    async def task(self, request: Request) -> Response:
        """GET /v1/tasks/{id}"""
        return _json(await self._view(request))

    async def steps(self, request: Request) -> Response:
        """GET /v1/tasks/{id}/steps"""
        view = await self._view(request)
        steps = await self._desk.store.steps(view.task.id, after=_after(request))
        return Response(_STEPS.dump_json(steps), media_type="application/json")

    async def events(self, request: Request) -> Response:
        """GET /v1/tasks/{id}/events"""
        view = await self._view(request)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        stream = self._stream(view.task.id, _after(request))
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def cancel(self, request: Request) -> Response:
        """POST /v1/tasks/{id}/cancel"""
        return _json(await self._desk.coordinator.cancel(request.path_params["task"]))

    async def retry(self, request: Request) -> Response:
        """POST /v1/tasks/{id}/retry"""
        return _json(await self._desk.coordinator.retry(request.path_params["task"]))

    async def diff(self, request: Request) -> Response:
        """GET /v1/tasks/{id}/diff"""
        return Response(await self._desk.diff(await self._view(request)), media_type="text/x-diff")

    async def _view(self, request: Request) -> TaskView:
        return await self._desk.store.view(request.path_params["task"])

    async def _stream(self, task: str, after: int) -> AsyncIterator[str]:
        """Lines as they come. Woken by the store's bell; looks again at every heartbeat all the same."""
        bell = self._desk.store.bell
        rung = bell.listen(task)
        last = after
        try:
            while True:
                rung.clear()
                closing = self._desk.closing.is_set()
                # The state is asked first: once it is final, the lines read after it are all there will be.
                state = await self._desk.store.state(task)
                steps = await self._desk.store.steps(task, after=last)
                for step in steps:
                    last = step.seq
                    yield f"id: {last}\nevent: step\ndata: {step.model_dump_json()}\n\n"
                if state.final and not steps:
                    yield f"id: {last}\nevent: end\ndata: {state.value}\n\n"
                    return
                if closing and not steps:
                    return  # without an end: who follows comes back to the next daemon
                if not steps and not await self._wake(rung):
                    yield ": still here\n\n"
        finally:
            bell.leave(task, rung)

    async def _wake(self, rung: asyncio.Event) -> bool:
        """Whether the bell rang or the door closed within a heartbeat."""
        waits = [asyncio.ensure_future(rung.wait()), asyncio.ensure_future(self._desk.closing.wait())]
        try:
            done, _ = await asyncio.wait(waits, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*waits, return_exceptions=True)
        return bool(done)


def _json(value: BaseModel, status: int = 200) -> Response:
    return Response(value.model_dump_json(), status, media_type="application/json")


def _after(request: Request) -> int:
    return int(request.headers.get("last-event-id") or request.query_params.get("after") or 0)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_LIMIT:
            raise TaskError(f"the request is larger than {BODY_LIMIT} bytes", "say it in fewer words")
    return bytes(body)


async def _refused(_: Request, error: Exception) -> Response:
    status, what = next((status, what) for kind, status, what in _ANSWERS if isinstance(error, kind))
    mend = error.mend if isinstance(error, SwarmError) else ""
    return _json(Failure(what=what, why=str(error), mend=mend), status)


async def _misunderstood(_: Request, error: Exception) -> Response:
    why = str(error)
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        why = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in found[:5])
    return _json(
        Failure(what="the request is not understood", why=why, mend="see the fields in swarm submit --help"), 422
    )


async def _no_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    why = f"{request.method} {request.url.path} is no route of it"
    return _json(
        Failure(what="the daemon does not know that call", why=why, mend="use the same version on both sides"), status
    )


async def _broken(_: Request, error: Exception) -> Response:
    log.error("a request broke", exc_info=error)
    why = f"{type(error).__name__}: {error}"
    return _json(Failure(what="the daemon has a fault", why=why, mend="look into the daemon's log"), 500)
