"""Who may call what: the caller's uid from the kernel, its roles, threads of its own, and what is recorded."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, ParamSpec, TypeVar

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker.audit import Audit
from broker.config.settings import Roles
from broker.door.bodies import SMALL_BODY, answer, http_problem, malformed, problem_of, read_body, unexpected, wait_of
from broker.errors import BrokerError, FencedError, RightsError
from broker.rationing import Rationing

Handler = Callable[[Request], Awaitable[Response]]
Role = Literal["person", "coordinator"]
Row = tuple[str, str, tuple[Role, ...], Handler]
"""A route: verb, path, the roles that may use it, and what carries it out."""
Watch = Callable[[str, bytes], bool]
"""Looks for a planted secret in what came in; True, after the alarm, if it is there. The words say where."""
EITHER: tuple[Role, ...] = ("person", "coordinator")
_PROMPT_THREADS = 2
_LOOKED_AT = 1 << 20
_Asked = TypeVar("_Asked", bound=BaseModel)
_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def never(_where: str, _text: bytes) -> bool:
    """The watch of a broker that planted nothing."""
    return False


def unchanged(text: str) -> str:
    """The redactor of a broker that lends nothing."""
    return text


class Guard:
    """One socket's guard. Its threads are its own, so that the calls of one socket cannot hold up the other's.

    A few of them are for verbs that wait for nobody: a stop has its thread though every other call waits for a forge.
    """

    def __init__(
        self,
        roles: Roles,
        audit: Audit,
        threads: int,
        *,
        redact: Callable[[str], str] = unchanged,
        watch: Watch = never,
        fenced: Callable[[FencedError], None] = lambda _error: None,
    ) -> None:
        self._roles = roles
        self._rationing = Rationing(audit)
        self._redact = redact
        self._watch = watch
        self._fenced = fenced
        self._patient = ThreadPoolExecutor(threads, thread_name_prefix="verb")
        self._prompt = ThreadPoolExecutor(_PROMPT_THREADS, thread_name_prefix="prompt")
        self._running: set[Future[Any]] = set()

    def app(self, table: tuple[Row, ...]) -> Starlette:
        """The application that knows these routes and no other."""
        routes = [Route(path, self._guarded(roles, handler), methods=[verb]) for verb, path, roles, handler in table]
        handlers: dict[Any, Any] = {HTTPException: http_problem, ValueError: malformed, Exception: unexpected}
        return Starlette(routes=routes, exception_handlers=handlers)

    def roles_of(self, uid: int) -> tuple[Role, ...]:
        """The roles that the settings give to a uid."""
        return tuple(role for role in EITHER if uid in getattr(self._roles, role))

    async def call(self, verb: Callable[_Given, _Answer], *args: _Given.args, **more: _Given.kwargs) -> _Answer:
        """Runs a blocking verb in one of this socket's threads."""
        return await self._in(self._patient, functools.partial(verb, *args, **more))

    async def promptly(self, verb: Callable[_Given, _Answer], *args: _Given.args, **more: _Given.kwargs) -> _Answer:
        """The same for one that looks into the broker's own books alone: it never waits for what may be silent."""
        return await self._in(self._prompt, functools.partial(verb, *args, **more))

    async def _in(self, threads: ThreadPoolExecutor, verb: Callable[[], _Answer]) -> _Answer:
        future = threads.submit(verb)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(future)

    @property
    def running(self) -> int:
        """Calls that are still under way, those among them whose caller is gone."""
        return len(self._running)

    async def body(self, request: Request, limit: int = SMALL_BODY) -> bytes:
        """The body, within its limit and without a planted secret. Raises HTTPException and RightsError."""
        body = await read_body(request, limit)
        await self.promptly(
            self.look, request, "body", body[:_LOOKED_AT]
        )  # a pack's objects are looked at when unpacked
        return body

    async def asked(self, model: type[_Asked], request: Request) -> _Asked:
        """A small body as a message. Raises ValidationError."""
        message = model.model_validate_json(await self.body(request))
        self.look(request, "message", message.model_dump_json().encode())
        return message

    def _guarded(self, roles: tuple[Role, ...], handler: Handler) -> Handler:
        @functools.wraps(handler)
        async def guarded(request: Request) -> Response:
            try:
                self._require(request, roles)
                return await handler(request)
            except (BrokerError, ValueError, OverflowError, OSError) as error:
                return await self.promptly(self._problem, request, error)

        return guarded

    def _require(self, request: Request, roles: tuple[Role, ...]) -> None:
        uid = uid_of(request)
        if roles and not set(roles) & set(self.roles_of(uid)):
            mend = f"the operator adds it under [roles] {roles[0]} in broker.toml"
            raise RightsError(f"uid {uid} is no {' or '.join(roles)} of this broker", mend)
        head = b"\n".join(
            [request.url.path.encode(), request.url.query.encode(), *map(b": ".join, request.headers.raw)]
        )
        self.look(request, "head", head)

    def look(self, request: Request, part: str, text: bytes) -> None:
        """Looks for a planted secret in a part of a call. Raises RightsError, which does not say so."""
        where = f"the {part} of {request.method} {request.url.path[:100]} by uid {uid_of(request)}"
        if self._watch(where, text):
            raise RightsError("the call was refused", "the operator finds the reason in the log")

    def _problem(self, request: Request, error: Exception) -> Response:
        if isinstance(error, FencedError):
            self._fenced(error)
        problem, status = problem_of(error)
        problem = problem.model_copy(
            update={"message": self._redact(problem.message), "mend": self._redact(problem.mend)}
        )
        if problem.code in {"rights", "capability"}:
            path = self._redact(request.url.path)[:200]
            self.record(request, "turned-away", path=path, reason=problem.message)
        return answer(problem, status, wait_of(error, time.time()))

    def record(self, request: Request, event: str, **fields: str) -> None:
        """Writes down what a caller did. Anyone who can connect can cause it; all without a role share one ration."""
        uid = uid_of(request)
        whose = f"uid:{uid}" if self.roles_of(uid) else "strangers"
        self._rationing.append(whose, event, uid=uid, **fields)


def uid_of(request: Request) -> int:
    """The caller, as the kernel says; -1, which has no role, where it said nothing."""
    return int(getattr(request.state, "peer_uid", -1))
