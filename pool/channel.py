"""The connections to one server for the requests that make it work: sends one, gives back its answer as it comes.

aiohttp carries them, and pieces stay plain JSON: at 100 streams of 20 pieces each took 2.0 ms of processor time,
through openai's SDK 7.6 ms on aiohttp and 17 ms on httpx, whose pool looks at every connection for every request.
Nothing of the environment is read: no proxy, no .netrc, no key.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from pool.config import EndpointConfig
from pool.errors import BrokenError, EndpointDeadError, PoolConfigError, PoolError, TransientError
from pool.wire.faults import classify
from pool.wire.stream import Event, Splitter

JSON = dict[str, Any]

KEEP_ALIVE = 3.0  # seconds an idle connection is kept: below the 5 s of uvicorn and of llama.cpp, or both sides race
LARGEST = 64 * 1024 * 1024  # bytes of an answer in one body
LINGER = 1.0  # seconds that a server has to end a body whose last event came
BEFORE = 256 * 1024  # bytes that may come before the body of an answer: its head, and interim ones
REFUSAL = 64 * 1024  # bytes that are read of a refusal
REFUSING = 5.0  # seconds that its body has to come
PLAIN = ("", "identity")
SENT = {"x-request-id", "x-session-id"}  # what a caller may add to the headers that are ours
dumped = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # json.dumps makes one each time
BROKEN = (aiohttp.ClientError, TimeoutError, OSError)


class UnreadError(TransientError):
    """An answer came and was left unread: it is too large, or compressed."""


class Line(ResponseHandler):
    """One connection, which is cut where it says what nobody asked for, or very much before the body of an answer.

    aiohttp 3.14 would take what comes on an idle connection for the next request's answer (its pool asks only whether a
    connection is open, and for how long), and bounds a header by the piece.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._body: aiohttp.StreamReader | None = None  # of the answer that has begun
        self._before = 0

    def set_response_params(self, **how: Any) -> None:
        """A request goes out."""
        self._body, self._before = None, 0
        super().set_response_params(**how)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """The head of an answer is read."""
        if data[0].code >= 200:
            self._body = data[1]
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._body is None:
            self._before += len(data)
            if self._before > BEFORE:
                told = f"more than {BEFORE} bytes before the body of an answer"
                self.set_exception(aiohttp.ClientConnectionError(told))
                self._cut()
                return
        elif data and self._body.is_eof():
            self._cut()
            return
        super().data_received(data)

    def _cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Connector(aiohttp.TCPConnector):
    """Makes such connections; aiohttp has no public way to say so, and the tests of this file see whether it is one.
    No limit to their number: that is the pool's to set."""

    def __init__(self, **how: Any) -> None:
        super().__init__(limit=0, **how)
        self._factory = partial(_line, loop=self._loop)


def _line(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return Line(loop)


class Answering:
    """An answer that has begun, with its body still to come. `close` before its end aborts the request there."""

    def __init__(self, channel: Channel, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self.streamed = response.content_type == "text/event-stream"
        self._channel = channel
        self._response = response

    async def body(self, most: int = LARGEST) -> bytes:
        """The whole body. Raises TransientError for one that broke off, UnreadError for one of more bytes."""
        parts, size = [], 0
        with self._channel.classed():
            while data := await self._response.content.readany():
                parts.append(data)
                if (size := size + len(data)) > most:
                    raise UnreadError(f"endpoint {self._channel.name}: an answer of more than {most} bytes")
        return b"".join(parts)

    async def beginning(self, most: int) -> bytes:
        """As much of the body as comes, up to so many bytes; it may break off. Raises nothing for that."""
        data = b""
        with suppress(*BROKEN):
            while len(data) < most and (chunk := await self._response.content.read(most - len(data))):
                data += chunk
        return data

    async def events(self) -> AsyncIterator[Event]:
        """The events of a stream, as they come. Ends where the connection does, which proves nothing."""
        splitter = Splitter()
        with self._channel.classed():
            while data := await self._response.content.readany():
                for event in splitter.feed(data):
                    yield event

    def hidden(self, text: str) -> str:
        """A text of the server without our key."""
        return self._channel.hidden(text)

    def close(self) -> None:
        """Let go now; an answer that has not ended is aborted at the server too, and who reads it is told."""
        self._channel.under_way.discard(self)
        self._response.close()

    def finish(self) -> None:
        """Let go after the last event: the connection is kept for the next request once the server ended the body."""
        if self._response.closed:
            self._channel.under_way.discard(self)
        else:
            asyncio.get_running_loop().call_later(LINGER, self.close)


class Channel:
    """Sends requests to one server; ``under_way`` are the answers that are being read. Close it with `aclose`. Raises
    PoolConfigError for a key that no header can hold."""

    def __init__(self, config: EndpointConfig, connect_timeout: float) -> None:
        self.name = config.name
        self.under_way: set[Answering] = set()
        self.closed = False
        self._config = config
        self._headers = _common(config)
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def post(self, path: str, body: JSON, headers: Mapping[str, str]) -> Answering:
        """Send one request; back as soon as a 2xx answer begins. Raises PoolError, classed, for everything else."""
        answering = await self.ask("POST", path, _written(body), headers)
        if not 200 <= answering.status < 300:
            raise await self._refused(answering)
        return answering

    async def ask(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> Answering:
        """An answer that has begun, whatever its status; the caller closes it. Raises PoolError, classed, where none
        came, and UnreadError for a compressed one: a small body may become gigabytes.

        A kept connection that the server had closed by then costs nothing: where no byte of an answer came, it is sent
        once more, on a new one (llm-d/llm-d#1564).
        """
        with self.classed():
            used: dict[str, bool] = {}
            try:
                response = await self._send(method, path, data, headers, used)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if not used.get("again") or isinstance(error, aiohttp.ClientConnectorError):
                    raise
                response = await self._send(method, path, data, headers, None)
        answering = Answering(self, response)
        if (coding := answering.headers.get("content-encoding", "").strip().lower()) not in PLAIN:
            answering.close()
            raise UnreadError(f"endpoint {self.name}: its answer to {path} is coded as {coding[:40]!r}, unasked for")
        self.under_way.add(answering)
        return answering

    async def aclose(self) -> None:
        """Close every connection, for good; who reads from one is told that it broke."""
        self.closed = True
        for answering in tuple(self.under_way):
            answering.close()
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    @contextmanager
    def classed(self) -> Iterator[None]:
        """Turns what the library raises into the room's errors."""
        try:
            yield
        except aiohttp.ClientSSLError as error:
            told = f"endpoint {self.name}: {_untrusted(error, self._config.url)}"
            raise EndpointDeadError(told, reached=False) from error
        except aiohttp.ClientConnectorError as error:
            told = f"endpoint {self.name}: nobody listens at {self._config.url} ({_reason(error.os_error)})"
            raise EndpointDeadError(told, reached=False) from error
        except BROKEN as error:
            told = f"endpoint {self.name}: the connection to {self._config.url} broke ({_reason(error)})"
            raise BrokenError(told) from error

    def hidden(self, text: str) -> str:
        """What a server said, without our key: some servers echo what they were sent."""
        key = self._config.api_key.get_secret_value() if self._config.api_key else ""
        return text.replace(key, "***") if key else text

    async def _send(
        self, method: str, path: str, data: bytes, headers: Mapping[str, str], used: dict[str, bool] | None
    ) -> aiohttp.ClientResponse:
        told = {name: value for name, value in headers.items() if name.lower() in SENT and _decent(value)}
        return await self._session(fresh=used is None).request(
            method, self._config.url + path, data=data, headers=told, allow_redirects=False, trace_request_ctx=used
        )

    def _session(self, *, fresh: bool) -> aiohttp.ClientSession:
        """The session that keeps connections, or the one that never does. None is made once this is closed."""
        if self.closed:
            raise aiohttp.ClientConnectionError("this endpoint has just left the pool")
        if fresh not in self._sessions:
            kept: dict[str, Any] = {"force_close": True} if fresh else {"keepalive_timeout": KEEP_ALIVE}
            self._sessions[fresh] = aiohttp.ClientSession(
                connector=Connector(**kept),
                timeout=self._timeout,
                headers=self._headers,
                auto_decompress=False,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[] if fresh else [_traced()],
                skip_auto_headers=("User-Agent",),
            )
        return self._sessions[fresh]

    async def _refused(self, answering: Answering) -> PoolError:
        """The refusal in full: its body may come in several pieces, and half of one says nothing of what it is."""
        data = b""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(REFUSING):
                    data = await answering.beginning(REFUSAL)
        finally:
            answering.close()
        return classify(self.name, answering.status, self.hidden(data.decode("utf-8", "replace")), answering.headers)


def _common(config: EndpointConfig) -> dict[str, str]:
    """The headers of every request."""
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if config.api_key is not None:
        headers["Authorization"] = f"Bearer {config.api_key.get_secret_value()}"
    if not all(value.isprintable() for value in (*headers.values(), config.url)):
        raise PoolConfigError(f"endpoint {config.name}: its url or its api_key holds a line break; mend it")
    return headers


def _traced() -> aiohttp.TraceConfig:
    """Notes in a request's context that its connection had been kept."""
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_reused)
    return trace


async def _reused(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionReuseconnParams) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx["again"] = True


def _untrusted(error: aiohttp.ClientSSLError, url: str) -> str:
    """Somebody listens, but not by https that can be relied on: what is wrong, and the mend."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        told = f"the certificate of {url} is not trusted ({error.certificate_error})"
        return f"{told}; give it one that is, or name its authority in SSL_CERT_FILE"
    return f"what listens at {url} speaks no https; write http:// where it has no encryption"


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientPayloadError):
        return "its answer did not come whole"  # the library's words name its own classes
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _written(body: JSON) -> bytes:
    """A body as bytes; half a surrogate pair, which UTF-8 cannot say, is sent escaped, as it came."""
    try:
        return dumped(body).encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def _decent(value: str) -> bool:
    return value.isascii() and value.isprintable() and len(value) <= 256
