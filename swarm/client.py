"""The daemon's api from the caller's side: one typed method per route, errors with their mend."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import httpx
from httpx_sse import ServerSentEvent, aconnect_sse
from pydantic import BaseModel, TypeAdapter, ValidationError

from swarm.errors import DaemonError, SwarmError, TaskError, TaskNotFoundError
from swarm.socket_client import SocketClient
from swarm.types import DaemonHealth, DaemonStatus, Failure, Step, TaskRequest, TaskState, TaskView

START = "start it with: swarm daemon"
_VIEWS = TypeAdapter(tuple[TaskView, ...])
_STEPS = TypeAdapter(tuple[Step, ...])
PATIENCE = 8  # lost connections in a row before `follow` gives up: some 17 seconds, enough for a restart of the daemon


class DaemonClient(SocketClient):
    """A connection to the daemon behind ``socket``; use it with ``async with``.

    Every method raises DaemonError when the daemon is not there or broken, and TaskError when it refuses the call;
    both carry the daemon's own words and its mend. ``timeout`` is in seconds and bounds each call but `follow`.
    """

    def __init__(self, socket: Path, *, timeout: float = 30.0) -> None:
        super().__init__(socket, "swarm", timeout)

    async def health(self) -> DaemonHealth:
        """Whether the daemon lives."""
        return DaemonHealth.model_validate_json(await self._call("GET", "/v1/health"))

    async def status(self) -> DaemonStatus:
        """Pool, sandbox, broker and queue as the daemon sees them now."""
        return DaemonStatus.model_validate_json(await self._call("GET", "/v1/status"))

    async def submit(self, request: TaskRequest) -> TaskView:
        """Hand in a task. The same idempotency key gives the task that was made by the first call."""
        return TaskView.model_validate_json(await self._call("POST", "/v1/tasks", body=request))

    async def tasks(self, state: TaskState | None = None, limit: int = 50) -> tuple[TaskView, ...]:
        """The newest tasks first."""
        params = {"limit": str(limit)} | ({"state": state.value} if state else {})
        return _VIEWS.validate_json(await self._call("GET", "/v1/tasks", params=params))

    async def task(self, task: str) -> TaskView:
        """One task, by its id or a unique beginning of it."""
        return TaskView.model_validate_json(await self._call("GET", f"/v1/tasks/{task}"))

    async def steps(self, task: str, after: int = 0) -> tuple[Step, ...]:
        """The journal lines after number ``after``, oldest first."""
        return _STEPS.validate_json(await self._call("GET", f"/v1/tasks/{task}/steps", params={"after": str(after)}))

    async def follow(self, task: str, after: int = 0) -> AsyncGenerator[Step]:
        """Journal lines as they are written, until the task is final. A lost connection is taken up where it broke.

        Who stops early closes it: ``async with aclosing(client.follow(...)) as steps``.
        """
        last, lost, over = after, 0, False
        while not over:
            try:
                async with aclosing(self._events(task, last)) as events:
                    async for event in events:
                        if _leaving():  # seen under load: a library on the way kept the cancellation to itself
                            raise asyncio.CancelledError
                        if event.event == "end":
                            over = True  # and read on to the end of the stream, which leaves the connection clean
                            continue
                        if event.event != "step":
                            continue  # a heartbeat: a comment ends like an event, and httpx-sse hands out an empty one
                        step = Step.model_validate_json(event.data)
                        last, lost = step.seq, 0
                        yield step
                if not over:
                    raise httpx.RemoteProtocolError("the stream ended early")
            except httpx.TransportError as error:
                if _leaving():
                    # Closing a stream for a cancellation can break it, and the break must not hide the cancellation.
                    raise asyncio.CancelledError from error
                # Counted by hand, not by a retry library: any event read in between starts the count afresh.
                lost += 1
                if lost > PATIENCE or (last == after and isinstance(error, httpx.ConnectError)):
                    raise self._unreachable(error) from error
                await asyncio.sleep(min(0.1 * 2**lost, 3.0))

    async def cancel(self, task: str) -> TaskView:
        """Stop a task; what it left is kept in its salvage ref. A final task stays as it is."""
        return TaskView.model_validate_json(await self._call("POST", f"/v1/tasks/{task}/cancel"))

    async def retry(self, task: str) -> TaskView:
        """Put a task that ended badly back into the queue. Raises TaskError for one that is running or delivered."""
        return TaskView.model_validate_json(await self._call("POST", f"/v1/tasks/{task}/retry"))

    async def diff(self, task: str) -> str:
        """What the last attempt changed, as a unified diff; empty when it changed nothing."""
        return (await self._call("GET", f"/v1/tasks/{task}/diff")).decode("utf-8", "replace")

    async def _call(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: BaseModel | None = None
    ) -> bytes:
        content = body.model_dump_json().encode() if body else None
        headers = {"content-type": "application/json"} if body else {}
        try:
            response = await self._http.request(method, path, params=params, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.is_error:
            raise _refused(response.status_code, response.content)
        return response.content

    async def _events(self, task: str, after: int) -> AsyncGenerator[ServerSentEvent]:
        headers = {"last-event-id": str(after)}
        timeout = httpx.Timeout(30.0, read=60.0)
        async with aconnect_sse(
            self._http, "GET", f"/v1/tasks/{task}/events", headers=headers, timeout=timeout
        ) as source:
            if source.response.is_error:
                raise _refused(source.response.status_code, await source.response.aread())
            async with aclosing(source.aiter_sse()) as events:
                async for event in events:
                    yield event

    def _unreachable(self, error: httpx.HTTPError) -> DaemonError:
        why = str(error) or type(error).__name__
        if f"[Errno {errno.EACCES}]" in why:
            mend = "become a member of the group that daemon.socket_group names, or be root"
            return DaemonError(f"the daemon's socket {self._socket} is not open to this user", mend)
        return DaemonError(f"the daemon does not answer at {self._socket}: {why}", START)


def _leaving() -> bool:
    """Whether who called wants to leave."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _refused(status: int, body: bytes) -> SwarmError:
    """The daemon's refusal as an error: TaskError where the caller can mend it, DaemonError where it cannot."""
    try:
        failure = Failure.model_validate_json(body)
    except ValidationError:
        return DaemonError(f"the daemon answered with status {status} and no reason", "look into the daemon's log")
    kind: type[SwarmError] = DaemonError if status >= 500 else TaskNotFoundError if status == 404 else TaskError
    return kind(f"{failure.what}: {failure.why}", failure.mend)
