"""One HTTP/1.1 connection from inside, the server's side: requests read strictly and bounded, answers framed by h11.

Each request gets an h11 connection of its own, so that its head can be judged on the raw bytes before h11 sees it;
what came early stays with us until its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import h11
from anyio.abc import ByteStream

from sandbox.egress.heads import Field, fault, hopeless
from sandbox.egress.refusal import PLAIN, CutError, Refusal, RefusedError
from sandbox.egress.stream import GONE, PIECE, ended, receive, send

_KNOWN = frozenset(HTTPStatus)
_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Caps:
    """Bounds of one connection. Bytes and seconds: ``idle`` without a byte, ``between`` two requests."""

    body: int = 0
    head: int = 32 * 1024
    fields: int = 100
    head_seconds: float = 15.0
    idle: float = 60.0
    between: float = 60.0
    linger: float = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's head. Field names have small letters; ``body`` tells whether one follows."""

    method: str
    target: str
    fields: tuple[Field, ...]
    body: bool


class Conversation:
    """Requests one after the other: ``ask``, then ``answer`` or ``refuse``, until either tells that it is over."""

    def __init__(self, stream: ByteStream, caps: Caps, *, errors: str = PLAIN) -> None:
        self.stream = stream
        self._caps = caps
        self._errors = errors
        self._early = bytearray()
        self._http = h11.Connection(h11.SERVER)
        self._whole = asyncio.Event()

    @property
    def early(self) -> bytes:
        """What came after the request before it was answered."""
        return self._http.trailing_data[0] + bytes(self._early)

    async def ask(self) -> Asked | None:
        """The next request; None where the client is through. Raises RefusedError for one that cannot be read."""
        self._early[:] = self.early
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._caps.head)
        head = await self._head()
        if head is None:
            return None
        if words := fault(head, self._caps.fields):
            raise RefusedError(Refusal(400, f"the request is refused: {words}"))
        self._http.receive_data(head + _END)
        event = self._next()
        if not isinstance(event, h11.Request):
            raise RefusedError(Refusal(400, "the request is refused: it is not HTTP/1.1"))
        if event.http_version not in {b"1.0", b"1.1"}:
            raise RefusedError(Refusal(505, f"HTTP/{event.http_version.decode()} is not spoken here, but HTTP/1.1"))
        names = dict(event.headers)
        body = b"transfer-encoding" in names or names.get(b"content-length", b"0").strip(b"0") != b""
        self._whole = asyncio.Event()
        if not body:
            self._next()
            self._whole.set()
        return Asked(event.method.decode(), event.target.decode(), tuple(event.headers), body)

    async def body(self) -> AsyncIterator[bytes]:
        """The request's body as it comes. Raises RefusedError when it is too long, broken or too slow."""
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        if self._early:
            self._http.receive_data(bytes(self._early))
            self._early.clear()
        length = 0
        while not isinstance(event := self._next(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                length += len(event.data)
                if length > self._caps.body:
                    raise RefusedError(Refusal(413, f"the body is longer than the {self._caps.body} bytes allowed"))
                yield bytes(event.data)
            else:
                self._http.receive_data(await self._more(self._caps.idle) or self._broke_off())
        self._whole.set()

    async def answer(self, status: int, fields: Sequence[Field], pieces: AsyncIterator[bytes]) -> bool:
        """Send an answer piece by piece; whether the connection may go on. Raises CutError when the client is gone."""
        phrase = HTTPStatus(status).phrase.encode() if status in _KNOWN else b""
        await self._send(h11.Response(status_code=status, headers=list(fields), reason=phrase))
        async for piece in pieces:
            await self._send(h11.Data(data=piece))
        try:
            await self._send(h11.EndOfMessage())
        except h11.LocalProtocolError as error:
            raise CutError("the answer was shorter than its length") from error
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def accept(self) -> None:
        """Answer a CONNECT with 200; what comes now is no HTTP of ours."""
        await self._send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        self._early[:] = self.early

    async def refuse(self, refusal: Refusal) -> None:
        """Tell a refusal, and end: what the client still sends is read a moment, so that it reads the reason."""
        data = refusal.body(self._errors)
        length = (b"content-length", b"%d" % len(data))
        fields = [(b"content-type", self._errors.encode()), length, (b"connection", b"close")]
        if refusal.status in {429, 503}:
            fields.append((b"retry-after", b"2"))
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            await self._send(h11.Response(status_code=refusal.status, headers=fields, reason=refusal.phrase))
            await self._send(h11.Data(data=data))
            await self._send(h11.EndOfMessage())
            await self._linger()

    async def hung_up(self) -> None:
        """Returns when the client went away; keeps what else it sends, up to a bound, for its turn."""
        await self._whole.wait()
        while len(self._early) < self._caps.head:
            try:
                self._early += await self.stream.receive(PIECE)
            except GONE:
                return
        await asyncio.Event().wait()

    async def _head(self) -> bytes | None:
        """Up to the empty line. The whole of it has ``head_seconds`` from its first byte (slowloris)."""
        if not self._early:
            try:
                self._early += await self._more(self._caps.between)
            except RefusedError:
                return None
        if not self._early:
            return None
        try:
            async with asyncio.timeout(self._caps.head_seconds):
                return await self._rest_of_head()
        except TimeoutError as error:
            seconds = self._caps.head_seconds
            raise RefusedError(Refusal(408, f"the request's head did not come within {seconds:g} s")) from error

    async def _rest_of_head(self) -> bytes:
        while (end := self._early.find(_END)) < 0:
            if len(self._early) > self._caps.head:
                raise self._too_long()
            if words := hopeless(self._early):
                raise RefusedError(Refusal(400, f"the request is refused: {words}"))
            self._early += await self._more(self._caps.head_seconds) or self._broke_off()
        if end > self._caps.head:
            raise self._too_long()
        head = bytes(self._early[:end])
        del self._early[: end + len(_END)]
        return head

    def _too_long(self) -> RefusedError:
        return RefusedError(Refusal(431, f"the request's head is longer than {self._caps.head} bytes"))

    def _broke_off(self) -> bytes:
        raise CutError("the request broke off")

    async def _more(self, seconds: float) -> bytes:
        try:
            return await receive(self.stream, seconds)
        except TimeoutError as error:
            raise RefusedError(Refusal(408, f"nothing came for {seconds:g} s", denied=False)) from error

    def _next(self) -> object:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise RefusedError(Refusal(error.error_status_hint, f"the request is refused: {error}")) from error

    async def _send(self, event: h11.Event) -> None:
        try:
            data = self._http.send(event)
        except h11.LocalProtocolError as error:
            raise CutError("the answer was not framed as its head says") from error
        if data:
            await send(self.stream, data, self._caps.idle)

    async def _linger(self) -> None:
        left = 1 << 20
        await ended(self.stream)
        try:
            async with asyncio.timeout(self._caps.linger):
                while left > 0 and (data := await receive(self.stream, self._caps.linger)):
                    left -= len(data)
        except TimeoutError:
            pass
