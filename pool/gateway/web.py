"""One request and its answer over ASGI: body within limits, writing that waits for slow readers, hanging up noticed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import parse_qs

from pool.gateway.held import Held, weight
from pool.gateway.replies import Refusal, RefusedError, wrong

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Header = tuple[bytes, bytes]

STOPPED = Refusal(503, "the gateway was stopped before this answer was complete", "gateway_stopped", retry_after=1.0)
CONNECTION = "gateway.connection"  # name of the extension that gives a request its connection
JSON_TYPE = (b"content-type", b"application/json")
STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class GoneError(Exception):
    """The client hung up, or read nothing for too long."""


class Connection(Protocol):
    """What a request needs of its connection. ``hung_up`` is called when the client has gone, ``cut_short`` when the
    gateway waits for its answer no longer."""

    hung_up: Callable[[], None] | None
    cut_short: Callable[[], None] | None

    @property
    def jammed(self) -> bool:
        """Whether the client does not read as fast as it is written to."""

    @property
    def arrived(self) -> bool:
        """Whether all of the request is here, so that nothing of it is waited for."""

    def belongs(self, whose: str) -> None:
        """Tell whose request is at work here. Raises RefusedError (429) where the caller has its share of them."""

    def abort(self) -> None:
        """Cut it; closing it would wait for a reader that does not read."""

    def unframed(self, size: int) -> None:
        """The next ``size`` bytes of the answer go out as they are, and it ends with the connection."""


class Exchange:
    """One request with its answer. ``started`` tells that the answer's head is out, ``complete`` that all of it is."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, stall_timeout: float, held: Held) -> None:
        self.scope = scope
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.started = False
        self.complete = False
        self._bare = False
        self.request_id = f"req-{secrets.token_hex(16)}"
        self.extra: list[Header] = [(b"x-request-id", self.request_id.encode())]
        self.torn: Callable[[Refusal], bytes] = Refusal.event
        self.refused: Callable[[Refusal], bytes] = Refusal.body
        self._connection: Connection = scope["extensions"][CONNECTION]
        self._receive = receive
        self._send = send
        self._stall_timeout = stall_timeout
        self.whose = ""
        self._held = held
        self._taken: list[tuple[str, int]] = []
        self._unread = False
        self._stopped = False

    @property
    def method(self) -> str:
        """GET, POST and so on."""
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        """The path asked for, unquoted."""
        return str(self.scope["path"])

    def belongs(self, whose: str) -> None:
        """Tell whose it is. Raises RefusedError (429) where that caller has its share of connections."""
        self.whose = whose
        self._connection.belongs(whose)

    def number(self, name: str, most: float) -> float:
        """A number from 0 to ``most`` in the query, 0 where there is none. Raises RefusedError (400) for another."""
        told = parse_qs(self.scope.get("query_string", b"")).get(name.encode(), [b"0"])[0]
        try:
            value = float(told)
        except ValueError:
            value = -1.0
        if not 0 <= value <= most:
            raise wrong(f"{name} is a number from 0 to {most:g}", name)
        return value

    async def body(self, most: int, seconds: float) -> bytes:
        """The whole body, held until `let_go`. Raises RefusedError (408, 413, 429, 503), GoneError."""
        self._unread = True
        if int(self.headers.get("content-length") or 0) > most:
            raise _too_big(most)
        try:
            async with asyncio.timeout(None if self._connection.arrived else seconds):
                body = await self._read(most)
        except TimeoutError:
            words = f"the body did not arrive within {seconds:g} s"
            raise RefusedError(Refusal(408, words, "request_timeout")) from None
        self._unread = False
        if more := weight(body):
            if not self._held.fits(len(body) + more):
                words = "the body holds more values than this gateway has memory for (max_bodies)"
                raise RefusedError(Refusal(413, words, "body_too_large"))
            self._take(more)
        return body

    def let_go(self) -> None:
        """The request is over, and so is its body."""
        for whose, size in self._taken:
            self._held.give(whose, size)
        self._taken.clear()

    async def respond(self, status: int, body: bytes, headers: Iterable[Header] = (JSON_TYPE,)) -> None:
        """A whole answer."""
        await self._head(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self._write(body, last=True)

    async def refuse(self, refusal: Refusal) -> None:
        """An error: as an answer of its own, or inside the stream that began already."""
        if self.complete:
            return
        if self.started:
            await self._write(self.torn(refusal), last=True)
            return
        hang_up = [(b"connection", b"close")] if self._unread else []  # the rest is not read
        await self.respond(refusal.status, self.refused(refusal), [JSON_TYPE, *refusal.headers(), *hang_up])

    async def stream(self) -> None:
        """Begin a stream of server-sent events. HTTP/1.0 knows no chunks to send it in (RFC 9112, 6.1)."""
        self._bare = self.scope["http_version"] == "1.0"
        if self._bare:
            self._connection.unframed(0)
        await self._head(200, STREAM_HEADERS)

    async def write(self, event: bytes) -> None:
        """Send a piece; waits while the client does not read. Raises GoneError when it does not for too long."""
        await self._write(event, last=False)

    async def end(self, event: bytes = b"") -> None:
        """Send the last piece."""
        await self._write(event, last=True)

    @contextmanager
    def until_stopped(self) -> Iterator[None]:
        """While the block runs it may be cut short, for a gateway that stops. Raises RefusedError (503) then."""
        task = asyncio.current_task()

        def cut_short() -> None:
            if task is not None and not self.complete and not self._stopped:
                self._stopped = True
                task.cancel()

        self._connection.cut_short = cut_short
        try:
            yield
        except asyncio.CancelledError:
            raise self._ended(task) from None
        finally:
            self._connection.cut_short = None

    def _ended(self, task: asyncio.Task[Any] | None) -> BaseException:
        """What a cancellation means: that the gateway stops, or what it always does."""
        if not self._stopped or (task is not None and task.uncancel() > 0):
            return asyncio.CancelledError()
        return RefusedError(STOPPED)

    async def while_there(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run ``work`` and cancel it when the client hangs up; False when that happened."""
        task = asyncio.current_task()
        gone = False

        def hung_up() -> None:
            nonlocal gone
            if task is not None and not self.complete:
                gone = True
                task.cancel()

        self._connection.hung_up = hung_up
        try:
            await work
        except asyncio.CancelledError:
            if not gone:
                raise self._ended(task) from None
            if task is not None and task.uncancel() > 0:
                raise
        finally:
            self._connection.hung_up = None
        return not gone

    async def _read(self, most: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                raise GoneError
            parts.append(part := event.get("body", b""))
            size += len(part)
            if size > most:
                raise _too_big(most)
            self._take(len(part))
            if not event.get("more_body", False):
                return b"".join(parts)

    def _take(self, size: int) -> None:
        self._held.take(self.whose, size)
        self._taken.append((self.whose, size))

    async def _head(self, status: int, headers: Iterable[Header]) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self.extra]})

    async def _write(self, body: bytes, *, last: bool) -> None:
        self.complete = self.complete or last
        if self._bare:
            self._connection.unframed(len(body))
        event = {"type": "http.response.body", "body": body, "more_body": not last}
        if not self._connection.jammed:  # nothing to wait for
            await self._send(event)
            return
        try:
            async with asyncio.timeout(self._stall_timeout):
                await self._send(event)
        except TimeoutError:
            self.complete = True
            self._connection.abort()
            raise GoneError from None


def _too_big(most: int) -> RefusedError:
    words = f"the body is longer than {most} bytes, which is what this gateway takes (max_body)"
    return RefusedError(Refusal(413, words, "body_too_large"))
