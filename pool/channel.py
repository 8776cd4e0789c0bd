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
from typing import Any

import aiohttp

from pool.config import EndpointConfig
from pool.errors import EndpointDeadError, PoolError, TransientError
from pool.wire.faults import classify
from pool.wire.stream import Event, Splitter

JSON = dict[str, Any]

KEEP_ALIVE = 3.0  # seconds an idle connection is kept: below the 5 s of uvicorn and of llama.cpp, or both sides race
LARGEST = 64 * 1024 * 1024  # bytes of an answer in one body
LINGER = 1.0  # seconds that a server has to end a body whose last event came
REFUSAL = 64 * 1024  # bytes that are read of a refusal
REFUSING = 5.0  # seconds that its body has to come
SENT = {"x-request-id", "x-session-id"}  # what a caller may add to the headers that are ours
dumped = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # json.dumps makes one each time
BROKEN = (aiohttp.ClientError, TimeoutError, OSError)


class Answering:
    """An answer that has begun: 2xx, with its body still to come. `close` before its end aborts the request there."""

    def __init__(self, channel: Channel, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self.streamed = response.content_type == "text/event-stream"
        self._channel = channel
        self._response = response

    async def body(self) -> bytes:
        """The whole body. Raises TransientError for one that broke off or never ends."""
        parts, size = [], 0
        with self._channel.classed():
            async for chunk in self._response.content.iter_any():
                parts.append(chunk)
                if (size := size + len(chunk)) > LARGEST:
                    raise TransientError(f"endpoint {self._channel.name}: an answer of more than {LARGEST} bytes")
        return b"".join(parts)

    async def events(self) -> AsyncIterator[Event]:
        """The events of a stream, as they come. Ends where the connection does, which proves nothing."""
        splitter = Splitter()
        with self._channel.classed():
            async for chunk in self._response.content.iter_any():
                for event in splitter.feed(chunk):
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
        self._channel.under_way.discard(self)
        if not self._response.closed:
            asyncio.get_running_loop().call_later(LINGER, self._response.close)


class Channel:
    """Sends requests to one server; ``under_way`` are the answers that are being read. Close it with `aclose`."""

    def __init__(self, config: EndpointConfig, connect_timeout: float) -> None:
        self.name = config.name
        self.under_way: set[Answering] = set()
        self.closed = False
        self._config = config
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def post(self, path: str, body: JSON, headers: Mapping[str, str]) -> Answering:
        """Send one request; back as soon as a 2xx answer begins. Raises PoolError, classed, for everything else.

        A kept connection that the server had closed by then costs nothing: where no byte of an answer came, it is sent
        once more, on a new one (llm-d/llm-d#1564).
        """
        data = _written(body)
        with self.classed():
            used: dict[str, bool] = {}
            try:
                response = await self._send(path, data, headers, fresh=False, used=used)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if not used.get("again") or isinstance(error, aiohttp.ClientConnectorError):
                    raise
                response = await self._send(path, data, headers, fresh=True, used=used)
            if not 200 <= response.status < 300:
                raise await self._refused(response)
            answering = Answering(self, response)
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
        except BROKEN as error:
            raise self._broken(error) from error

    async def _send(
        self, path: str, data: bytes, headers: Mapping[str, str], *, fresh: bool, used: dict[str, bool]
    ) -> aiohttp.ClientResponse:
        return await self._session(fresh=fresh).post(
            self._config.url + path,
            data=data,
            headers=self._headers(headers),
            allow_redirects=False,
            trace_request_ctx=used,
        )

    def _headers(self, extra: Mapping[str, str]) -> dict[str, str]:
        headers = {name: value for name, value in extra.items() if name.lower() in SENT and _decent(value)}
        headers |= {"content-type": "application/json", "accept-encoding": "identity"}
        if self._config.api_key is not None:
            headers["authorization"] = f"Bearer {self._config.api_key.get_secret_value()}"
        return headers

    def _session(self, *, fresh: bool) -> aiohttp.ClientSession:
        """The session that keeps connections, or the one that never does. None is made once this is closed."""
        if self.closed:
            raise aiohttp.ClientConnectionError("this endpoint has just left the pool")
        if fresh not in self._sessions:
            kept: dict[str, Any] = {"force_close": True} if fresh else {"keepalive_timeout": KEEP_ALIVE}
            trace = aiohttp.TraceConfig()
            trace.on_connection_reuseconn.append(_reused)
            self._sessions[fresh] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, **kept),  # no limit of our own: that is the pool's to set
                timeout=self._timeout,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[trace],
                skip_auto_headers=("User-Agent",),
            )
        return self._sessions[fresh]

    async def _refused(self, response: aiohttp.ClientResponse) -> PoolError:
        """The refusal in full: its body may come in several pieces, and half of one says nothing of what it is."""
        data = b""
        try:
            with suppress(*BROKEN):
                async with asyncio.timeout(REFUSING):
                    while len(data) < REFUSAL and (chunk := await response.content.read(REFUSAL - len(data))):
                        data += chunk
        finally:
            response.close()
        headers = {name.lower(): value for name, value in response.headers.items()}
        return classify(self.name, response.status, self.hidden(data.decode("utf-8", "replace")), headers)

    def hidden(self, text: str) -> str:
        """What a server said, without our key: some servers echo what they were sent."""
        key = self._config.api_key.get_secret_value() if self._config.api_key else ""
        return text.replace(key, "***") if key else text

    def _broken(self, error: BaseException) -> PoolError:
        reason = f"{type(error).__name__} {error}".rstrip()
        if isinstance(error, aiohttp.ClientConnectorError):
            return EndpointDeadError(f"endpoint {self.name}: nobody listens at {self._config.url} ({reason})")
        return TransientError(f"endpoint {self.name}: the connection to {self._config.url} broke ({reason})")


def _written(body: JSON) -> bytes:
    """A body as bytes; half a surrogate pair, which UTF-8 cannot say, is sent escaped, as it came."""
    try:
        return dumped(body).encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def _decent(value: str) -> bool:
    return value.isascii() and value.isprintable() and len(value) <= 256


async def _reused(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionReuseconnParams) -> None:
    context.trace_request_ctx["again"] = True
