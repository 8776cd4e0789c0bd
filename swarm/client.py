"""The daemon's api from the caller's side: one typed method per route, errors with their mend.

    async with DaemonClient(Path("/run/agent-swarm/swarm.sock")) as daemon:
        print(await daemon.status())

    async with DaemonClient("https://swarm.example:7420", token=token, ca=Path("ca.pem")) as daemon: ...

Who has no event loop wraps what it does in one function and calls ``asyncio.run`` on it; examples/client.py does.

Long, since it is one method for each route, and what they share: a call is made again and a stream taken up in one way.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from httpx_sse import ServerSentEvent, aconnect_sse
from pydantic import BaseModel, TypeAdapter, ValidationError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from swarm.answers import (
    EXPORTED,
    LARGEST_PAGE,
    PAGE,
    Change,
    Exported,
    MessageRequest,
    Page,
    PriorityRequest,
    ResumeRequest,
    RetryRequest,
    TaskFilter,
)
from swarm.config_text import meant
from swarm.errors import ConfigError, DaemonError, SwarmError, TaskError, TaskNotFoundError
from swarm.scheduling.shown import (
    BatchFault,
    BatchRequest,
    QueueView,
    ScheduleRequest,
    ScheduleRight,
    ScheduleView,
)
from swarm.shown import BudgetsView, DaemonHealth, DaemonStatus, FleetTimes, HostView, TaskTimes
from swarm.socket_client import HttpClient, over_socket, over_tcp
from swarm.types import Failure, ForkRequest, Step, TaskMessage, TaskRequest, TaskState, TaskView

T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)

START = "start it with: swarm daemon"
PATIENCE = 8  # lost connections in a row before `follow` gives up: some 17 seconds, enough for a restart of the daemon
TRIES = 3  # of a call that may be made twice, when its connection breaks
LARGEST = 64 * 1024 * 1024  # bytes of an answer
LARGEST_FILE = 1024 * 1024 * 1024  # bytes of a file
PIECE = 1024 * 1024  # bytes of it that are written at once
MAKING = 600.0  # seconds without a byte, while a file is made
EVERY_TASK = TaskFilter()

_HEALTH = TypeAdapter(DaemonHealth)
_STATUS = TypeAdapter(DaemonStatus)
_TASK = TypeAdapter(TaskView)
_STEP = TypeAdapter(Step)
_CHANGE = TypeAdapter(Change)
_MESSAGE = TypeAdapter(TaskMessage)
_TASKS = TypeAdapter(Page[TaskView])
_STEPS = TypeAdapter(Page[Step])
_MESSAGES = TypeAdapter(tuple[TaskMessage, ...])
_HOSTS = TypeAdapter(tuple[HostView, ...])
_SCHEDULES = TypeAdapter(tuple[ScheduleView, ...])
_FAULTS = TypeAdapter(tuple[BatchFault, ...])
_TASK_TIMES = TypeAdapter(TaskTimes)
_TIMES = TypeAdapter(FleetTimes)
_BUDGETS = TypeAdapter(BudgetsView)
_EXPORTED = TypeAdapter(Exported)
_COUNTS = TypeAdapter(dict[TaskState, int])


class BrokenOffError(DaemonError):
    """The connection broke after the call was sent: nobody knows whether it was carried out."""


class DaemonClient(HttpClient):
    """A connection to the daemon; use it with ``async with``.

    ``where`` is its unix socket, or https://HOST:PORT with a ``token`` of swarm token add and, for a certificate of an
    authority that the system does not know, that authority's PEM file as ``ca``.

    Every method raises DaemonError when the daemon is not there or broken, and TaskError when it refuses the call; both
    carry the daemon's own words and its mend. ``timeout`` is in seconds and bounds each call but the streams. A call
    whose connection breaks is made again where it does no harm: all that only look, every verb but `retry` (the same
    again is answered alike), and `submit` and `message` with a key or an id.
    """

    def __init__(self, where: Path | str, *, token: str = "", ca: Path | None = None, timeout: float = 30.0) -> None:
        remote = isinstance(where, str) and "://" in where
        self._where = str(where)
        super().__init__(
            over_tcp(str(where), token, ca, timeout) if remote else over_socket(Path(where), "swarm", timeout)
        )

    # The whole

    async def health(self) -> DaemonHealth:
        """Whether the daemon lives."""
        return _read(_HEALTH, await self._get("/v1/health"))

    async def status(self) -> DaemonStatus:
        """Pool, sandbox, broker, hosts and queue as the daemon sees them now."""
        return _read(_STATUS, await self._get("/v1/status"))

    async def hosts(self) -> tuple[HostView, ...]:
        """Every host that works from the daemon's database."""
        return _read(_HOSTS, await self._get("/v1/hosts"))

    async def counts(self, wanted: TaskFilter = EVERY_TASK) -> dict[TaskState, int]:
        """How many tasks are in each state; states without any are left out."""
        return _read(_COUNTS, await self._get("/v1/counts", _asked(wanted)))

    # Tasks

    async def submit(self, request: TaskRequest) -> TaskView:
        """Hand in a task. The same idempotency key gives the task that was made by the first call, and is refused with
        another request."""
        safe = request.idempotency_key is not None or request.task is not None
        return _read(_TASK, await self._post("/v1/tasks", request, safe=safe))

    async def page(
        self, wanted: TaskFilter = EVERY_TASK, *, cursor: str | None = None, limit: int = PAGE
    ) -> Page[TaskView]:
        """The newest tasks that fit, a page at a time; ``cursor`` is `next` of the page before."""
        more = {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
        return _read(_TASKS, await self._get("/v1/tasks", [*_asked(wanted), *more.items()]))

    async def tasks(self, state: TaskState | None = None, limit: int = PAGE) -> tuple[TaskView, ...]:
        """The newest tasks first, at most ``limit``."""
        wanted = TaskFilter(state=(state,) if state else ())
        found: list[TaskView] = []
        cursor: str | None = None
        while len(found) < limit:
            page = await self.page(wanted, cursor=cursor, limit=min(limit - len(found), LARGEST_PAGE))
            found += page.items
            cursor = page.next
            if cursor is None:
                break
        return tuple(found)

    async def task(self, task: str) -> TaskView:
        """One task, by its id or a unique beginning of it."""
        return _read(_TASK, await self._get(f"/v1/tasks/{task}"))

    async def steps(self, task: str, after: int = 0) -> tuple[Step, ...]:
        """All journal lines after number ``after``, oldest first."""
        found: list[Step] = []
        cursor: str | None = str(after)
        while cursor is not None:
            page = _read(_STEPS, await self._get(f"/v1/tasks/{task}/steps", [("cursor", cursor)]))
            found += page.items
            cursor = page.next
        return tuple(found)

    async def diff(self, task: str) -> str:
        """What the last attempt changed, as a unified diff; empty when it changed nothing."""
        return (await self._get(f"/v1/tasks/{task}/diff")).decode("utf-8", "replace")

    async def export(self, task: str, path: Path, attempt: str | None = None) -> Exported:
        """Write an attempt, the last one where none is named, into a new file of this user's alone, as `swarm export`
        does. One that comes only in part is taken away again. Raises ConfigError where it cannot be written."""
        asked = {"attempt": attempt} if attempt else None
        call = self._http.stream(
            "GET", f"/v1/tasks/{task}/export", params=asked, timeout=httpx.Timeout(30.0, read=MAKING)
        )
        try:
            async with call as answer:
                if not answer.is_success:
                    raise _refused(answer.status_code, await _bounded(answer))
                facts = _read(_EXPORTED, answer.headers.get(EXPORTED, "").encode())
                await _written(path, answer)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        return facts

    async def follow(self, task: str, after: int = 0) -> AsyncGenerator[Step]:
        """Journal lines as they are written, until the task is final. A lost connection is taken up where it broke.

        Who stops early closes it: ``async with aclosing(client.follow(...)) as steps``.
        """
        async with aclosing(self._resumed(f"/v1/tasks/{task}/events", (), after)) as events:
            async for event in events:
                yield _read(_STEP, event.data.encode())

    async def changes(self, wanted: TaskFilter = EVERY_TASK, after: int | None = None) -> AsyncGenerator[Change]:
        """Moves of all tasks that fit, as they happen and for ever, from now on or after a position (0: all there
        were). A lost connection is taken up where it broke."""
        async with aclosing(self._resumed("/v1/events", _asked(wanted), after)) as events:
            async for event in events:
                yield _read(_CHANGE, event.data.encode())

    # A person's verbs: each but `retry`, which a queued task refuses, gives the same answer when it is said again

    async def cancel(self, task: str) -> TaskView:
        """Stop a task; what it left is kept in its salvage ref. A final task stays as it is."""
        return await self._verb(task, "cancel")

    async def pause(self, task: str) -> TaskView:
        """Stop working on a task for now, its work kept; its place is given to others."""
        return await self._verb(task, "pause")

    async def prioritise(self, task: str, priority: int) -> TaskView:
        """Give a queued task another priority, and with it another place. Raises TaskError for any other."""
        return await self._verb(task, "priority", _meant(PriorityRequest, priority=priority))

    async def resume(self, task: str, attempt: str | None = None) -> TaskView:
        """Go on with a paused task where it stood, or with one that ended badly, from what ``attempt`` left."""
        return await self._verb(task, "resume", _meant(ResumeRequest, attempt=attempt) if attempt else None)

    async def retry(self, task: str, capability: str | None = None) -> TaskView:
        """Put a task that ended badly back into the queue, under a new ``capability`` where the old one ran out.

        Raises TaskError for one that is running or delivered."""
        body = _meant(RetryRequest, capability=capability) if capability else None
        return _read(_TASK, await self._post(f"/v1/tasks/{task}/retry", body, safe=False))

    async def fork(self, task: str, request: ForkRequest) -> TaskView:
        """A new task that goes on from where an attempt of another one stood."""
        return await self._verb(task, "fork", request)

    async def message(self, task: str, text: str, key: str | None = None) -> TaskMessage:
        """Tell a task's agent something, which it hears at its next turn; the same ``key`` tells it once."""
        headers = {"idempotency-key": f'"{key}"'} if key else {}
        body = _meant(MessageRequest, text=text)
        told = await self._call("POST", f"/v1/tasks/{task}/messages", body=body, headers=headers, safe=key is not None)
        return _read(_MESSAGE, told)

    async def messages(self, task: str) -> tuple[TaskMessage, ...]:
        """What was said to a task's agent."""
        return _read(_MESSAGES, await self._get(f"/v1/tasks/{task}/messages"))

    # The queue and what fills it

    async def queue(self, limit: int = PAGE) -> QueueView:
        """The head of the queue, and what holds it back."""
        return QueueView.model_validate_json(await self._get("/v1/queue", [("limit", str(limit))]))

    async def reset_breaker(self, name: str) -> None:
        """Forget the failures of repository:NAME or image:NAME. Raises TaskNotFoundError where none is counted."""
        await self._post(f"/v1/breakers/{quote(name, safe=':')}/reset", None, safe=True)

    async def check(self, requests: Sequence[TaskRequest]) -> tuple[BatchFault, ...]:
        """Why some of these tasks, 100 at most, would not be accepted; nothing is stored."""
        return _FAULTS.validate_json(
            await self._post("/v1/batches", _meant(BatchRequest, tasks=tuple(requests)), safe=True)
        )

    async def schedules(self) -> tuple[ScheduleView, ...]:
        """All schedules, by name."""
        return _SCHEDULES.validate_json(await self._get("/v1/schedules"))

    async def add_schedule(self, wanted: ScheduleRequest) -> ScheduleView:
        """Have a task made again and again."""
        return ScheduleView.model_validate_json(await self._post("/v1/schedules", wanted, safe=True))

    async def schedule(self, name: str) -> ScheduleView:
        """One schedule. Raises TaskNotFoundError."""
        return ScheduleView.model_validate_json(await self._get(f"/v1/schedules/{name}"))

    async def remove_schedule(self, name: str) -> None:
        """Forget a schedule; the tasks that it made stay. Raises TaskNotFoundError."""
        await self._call("DELETE", f"/v1/schedules/{name}")

    async def pause_schedule(self, name: str) -> ScheduleView:
        """Make no further runs of it."""
        return ScheduleView.model_validate_json(await self._post(f"/v1/schedules/{name}/pause", None, safe=True))

    async def resume_schedule(self, name: str, right: ScheduleRight | None = None) -> ScheduleView:
        """Go on with it from now."""
        return ScheduleView.model_validate_json(await self._post(f"/v1/schedules/{name}/resume", right, safe=True))

    async def run_schedule(self, name: str) -> TaskView:
        """Make a run now, in between. Raises TaskError where it is left out."""
        return TaskView.model_validate_json(await self._post(f"/v1/schedules/{name}/run", None, safe=False))

    # Where time and money went

    async def task_time(self, task: str) -> TaskTimes:
        """Where the time of a task went. Raises TaskNotFoundError and DaemonError."""
        return _read(_TASK_TIMES, await self._get(f"/v1/tasks/{quote(task, safe='')}/time"))

    async def times(self, days: int = 7, repository: str | None = None) -> FleetTimes:
        """Where the time of all tasks went, by day. Raises DaemonError."""
        asked = {"days": str(days)} | ({} if repository is None else {"repository": repository})
        return _read(_TIMES, await self._get("/v1/times", asked))

    async def budgets(self) -> BudgetsView:
        """What was spent today, and what may be. Raises DaemonError."""
        return _read(_BUDGETS, await self._get("/v1/budgets"))

    # Machinery

    async def _verb(self, task: str, verb: str, body: BaseModel | None = None) -> TaskView:
        return _read(_TASK, await self._post(f"/v1/tasks/{task}/{verb}", body, safe=True))

    async def _get(self, path: str, params: Any = ()) -> bytes:
        return await self._call("GET", path, params=params, safe=True)

    async def _post(self, path: str, body: BaseModel | None, *, safe: bool) -> bytes:
        return await self._call("POST", path, body=body, safe=safe)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Any = (),
        body: BaseModel | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
    ) -> bytes:
        content = body.model_dump_json(exclude_unset=True).encode() if body else None
        more = dict(headers or {}) | ({"content-type": "application/json"} if body else {})
        request = self._http.build_request(method, path, params=params or None, content=content, headers=more)
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(BrokenOffError),
            stop=stop_after_attempt(TRIES if safe else 1),
            wait=wait_exponential(0.1, 2.0),
            reraise=True,
        )
        return await retrying(self._once, request)

    async def _once(self, request: httpx.Request) -> bytes:
        try:
            response = await self._http.send(request, stream=True)
            try:
                told = await _bounded(response)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if not response.is_success:
            raise _refused(response.status_code, told)
        return told

    async def _resumed(self, path: str, params: Any, after: int | None) -> AsyncGenerator[ServerSentEvent]:
        """The events of a stream, opened again after the last one wherever it breaks, until it ends by itself."""
        last, lost, reached, over = after, 0, False, False
        while not over:
            try:
                async with aclosing(self._events(path, params, last)) as events:
                    async for event in events:
                        if _leaving():  # seen under load: a library on the way kept the cancellation to itself
                            raise asyncio.CancelledError
                        reached = True
                        last = int(event.id) if event.id.isdecimal() else last
                        if event.event == "end":
                            over = True  # and read on to the end of the stream, which leaves the connection clean
                        elif event.event in {"step", "change"}:  # all else tells that it is alive, and how far
                            lost = 0
                            yield event
                if not over:
                    raise httpx.RemoteProtocolError("the stream ended early")
            except httpx.TransportError as error:
                if _leaving():
                    # Closing a stream for a cancellation can break it, and the break must not hide the cancellation.
                    raise asyncio.CancelledError from error
                # Counted by hand, not by a retry library: any event read in between starts the count afresh.
                lost += 1
                if lost > PATIENCE or (not reached and isinstance(error, httpx.ConnectError)):
                    raise self._unreachable(error) from error
                await asyncio.sleep(min(0.1 * 2**lost, 3.0))

    async def _events(self, path: str, params: Any, after: int | None) -> AsyncGenerator[ServerSentEvent]:
        headers = {} if after is None else {"last-event-id": str(after)}
        timeout = httpx.Timeout(30.0, read=60.0)
        async with aconnect_sse(
            self._http, "GET", path, params=params or None, headers=headers, timeout=timeout
        ) as source:
            if not source.response.is_success:
                raise _refused(source.response.status_code, await _bounded(source.response))
            async with aclosing(source.aiter_sse()) as events:
                async for event in events:
                    yield event

    def _unreachable(self, error: httpx.HTTPError) -> DaemonError:
        why = str(error) or type(error).__name__
        if f"[Errno {errno.EACCES}]" in why:
            mend = "become a member of the group that daemon.socket_group names, or be root"
            return DaemonError(f"the daemon's socket {self._where} is not open to this user", mend)
        if "CERTIFICATE_VERIFY_FAILED" in why:
            mend = "give the authority's certificate (ca), and call it by a name that its certificate has"
            return DaemonError(f"the certificate of {self._where} is not to be trusted: {why}", mend)
        sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        broke = sent and isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)
        kind = BrokenOffError if broke else DaemonError
        return kind(f"the daemon does not answer at {self._where}: {why}", START)


def _asked(wanted: TaskFilter) -> list[tuple[str, str]]:
    """A filter as the parameters of an address."""
    said = wanted.model_dump(mode="json", exclude_none=True, exclude={"state"})
    return [*(("state", state.value) for state in wanted.state), *((name, str(value)) for name, value in said.items())]


def _meant(form: type[Body], **words: object) -> Body:
    """What is asked of the daemon. Raises TaskError for words that no daemon would take."""
    return meant(form, words, "docs/api.md names what each call takes")


def _read(form: TypeAdapter[T], told: bytes) -> T:
    """An answer as what it should be. Raises DaemonError for anything else."""
    try:
        return form.validate_json(told)
    except ValidationError as error:
        why = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise DaemonError(
            f"the daemon's answer is not understood: {why}", "use the same version on both sides"
        ) from None


async def _bounded(response: httpx.Response) -> bytes:
    """The whole answer. Raises DaemonError for one beyond all measure."""
    told = bytearray()
    async for chunk in response.aiter_bytes():
        told += chunk
        if len(told) > LARGEST:
            raise DaemonError(f"the daemon's answer is larger than {LARGEST} bytes", "ask for less at a time")
    return bytes(told)


async def _written(path: Path, answer: httpx.Response) -> None:
    """Put an answer's body into a new file. Raises ConfigError, and DaemonError for one beyond all measure."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        mend = "name another one" if isinstance(error, FileExistsError) else "see whether you may write there"
        raise ConfigError(f"{path} cannot be written: {error.strerror}", mend) from error
    whole = False
    try:
        with open(handle, "wb") as file:  # noqa: ASYNC230, PTH123 - it is open, and written to in a thread
            async for piece in answer.aiter_bytes(PIECE):
                if file.tell() + len(piece) > LARGEST_FILE:
                    raise DaemonError(f"the daemon's file is larger than {LARGEST_FILE} bytes", "look at its log")
                await asyncio.to_thread(file.write, piece)
        whole = True
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", "see how full the disk is") from error
    finally:
        if not whole:
            path.unlink(missing_ok=True)  # noqa: ASYNC240 - at the end of it all


def _leaving() -> bool:
    """Whether who called wants to leave."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _refused(status: int, body: bytes) -> SwarmError:
    """The daemon's refusal as an error: TaskError where the caller can mend it, DaemonError where it cannot."""
    try:
        failure = Failure.model_validate_json(body)
    except ValidationError:
        mend = "look into the daemon's log, and whether it is one at all that answers there"
        return DaemonError(f"the daemon answered with status {status} and no reason", mend)
    refused: type[SwarmError] = DaemonError if status in {401, 403, 421, 429} else TaskError
    kind = DaemonError if status >= 500 else TaskNotFoundError if status == 404 else refused
    return kind(f"{failure.what}: {failure.why}", failure.mend)
