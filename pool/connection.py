"""One HTTP/1.1 connection to a model server: sends a request, then gives its answer's head and body as they come.

Read by httptools (Node's llhttp). A client for everything makes a task, four objects of headers and two timers for
each request, which took as long as choosing where to send it. Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, cast

import httptools

HEAD = 64 * 1024  # bytes of a head, of a trailer or of framing in a row
HELD = 256 * 1024  # bytes that may wait for their reader before the server is made to wait
INFLATED = 64 * 1024 * 1024  # bytes that one read may inflate to
BODILESS = (204, 304)


class BrokenError(Exception):
    """The connection ended before its answer did, or what came was no HTTP."""


class Connection(asyncio.Protocol):
    """One request at a time. ``heard`` tells that a byte of the answer came, ``whole`` that all of it did.

    ``gone`` is called when the connection ends, ``ended`` once, when the answer that is under way is whole.
    """

    def __init__(self, gone: Callable[[Connection], None]) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.heard = False
        self.whole = True
        self.kept_since = 0.0
        self.ended: Callable[[], None] | None = None
        self._gone = gone
        self._parser = httptools.HttpResponseParser(self)
        self._lasts = True
        self._begun = False
        self._parts: list[bytes] = []
        self._held = 0
        self._unread = 0  # bytes in a row that were neither a whole head nor of a body
        self._paused = False
        self._inflate: Any = None
        self._error: BrokenError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""
        return self.whole and self._lasts and self._error is None and not self._transport.is_closing()

    async def ask(self, *data: bytes) -> None:
        """Send a request; back once the head of its answer is there. Raises BrokenError."""
        if not self.usable:
            raise BrokenError("it was closed before")
        self.heard = self.whole = self._begun = False
        self.status, self.headers, self._unread, self._inflate = 0, {}, 0, None
        self._transport.writelines(data)
        while not self._begun:
            await self._news()

    async def read(self) -> bytes:
        """What came of the body since; nothing at its end. Raises BrokenError where it ends too early."""
        while True:
            while not self._parts:
                if self.whole:
                    return b""
                await self._news()
            data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts, self._held = [], 0
            if self._paused:
                self._paused = False
                self._transport.resume_reading()
            if self._inflate is None or (data := _inflated(self._inflate, data)):
                return data

    def close(self) -> None:
        """End it now; a server that still answers is told so, and who reads from it too."""
        self._fail("it was let go")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came. Those that nobody asked for end it: the next answer could be another one's."""
        if self.whole:
            self._fail("bytes that nobody asked for")
            return
        self.heard = True
        self._unread += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"what came is no HTTP: {error}")
            return
        if self._unread > HEAD and not self.whole:
            self._fail(f"more than {HEAD} bytes of headers")
        elif self._held > HELD and not self.whole:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended. That is an answer's own end only where no length was told and nothing went wrong."""
        if not self.whole and self._error is None:
            if exc is None and self._begun and not self._framed:
                self._finish()
            else:
                self._error = BrokenError(f"the server closed it ({exc or 'early'})")
        self._lasts = False
        self._wake()
        self._gone(self)

    def on_message_begin(self) -> None:
        """An answer begins; a second one was not asked for."""
        self._lasts = self._lasts and not self.whole

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Trailers say nothing that is needed."""
        if not self._begun:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole; that of an interim answer (1xx) is followed by another."""
        status = self._parser.get_status_code()
        if self.whole or status < 200:
            self.headers = {}
            return
        coding = self.headers.get("content-encoding", "identity").lower()
        if coding in ("gzip", "x-gzip", "deflate"):
            self._inflate = zlib.decompressobj(wbits=47)  # either of both, by its own head
        elif coding != "identity":
            self._error = BrokenError(f"its answer is coded as {coding[:40]!r}, which nobody asked for")
            return
        self.status, self._begun, self._unread = status, True, 0

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if not self.whole:
            self._parts.append(body)
            self._held += len(body)
            self._unread = 0

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was an interim one."""
        if self._begun and not self.whole:
            self._lasts = self._lasts and self._parser.should_keep_alive()
            self._finish()

    @property
    def _framed(self) -> bool:
        """Whether the answer itself tells where it ends."""
        chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        return chunked or "content-length" in self.headers or self.status in BODILESS

    def _finish(self) -> None:
        self.whole = True
        if (ended := self.ended) is not None:
            self.ended = None
            ended()

    def _fail(self, why: str) -> None:
        self._lasts = False
        if self._error is None and not self.whole:
            self._error = BrokenError(why)
        self._wake()
        self._transport.abort()

    async def _news(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _inflated(inflate: Any, data: bytes) -> bytes:
    try:
        plain: bytes = inflate.decompress(data, INFLATED)
    except zlib.error as error:
        raise BrokenError(f"its answer cannot be inflated: {error}") from None
    if inflate.unconsumed_tail:
        raise BrokenError(f"its answer inflates to more than {INFLATED} bytes")
    return plain
