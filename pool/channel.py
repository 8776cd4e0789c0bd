"""The connections to one server for the requests that make it work: sends one, gives back its answer as it comes.

Pieces stay plain JSON: a stream of 20 of them took a quarter of what it takes through openai's SDK.
Nothing of the environment is read: no proxy, no .netrc, no key.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from pool.config import EndpointConfig
from pool.connection import BrokenError, Connection
from pool.errors import EndpointDeadError, PoolConfigError, PoolError, TransientError
from pool.wire.faults import classify
from pool.wire.stream import Event, Splitter

JSON = dict[str, Any]

KEEP_ALIVE = 3.0  # seconds an idle connection is kept: below the 5 s of uvicorn and of llama.cpp, or both sides race
LARGEST = 64 * 1024 * 1024  # bytes of an answer in one body
LINGER = 1.0  # seconds that a server has to end a body whose last event came
REFUSAL = 64 * 1024  # bytes that are read of a refusal
REFUSING = 5.0  # seconds that its body has to come
PLAIN = "/%:@!$&'()*+,;=~"  # characters that a path holds as they are
SENT = {"x-request-id", "x-session-id"}  # what a caller may add to the headers that are ours
dumped = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # json.dumps makes one each time


class DeafError(Exception):
    """No connection could be made: nobody listens."""


class Answering:
    """An answer that has begun: 2xx, with its body still to come. `close` before its end aborts the request there."""

    def __init__(self, channel: Channel, connection: Connection) -> None:
        self.status = connection.status
        self.headers = connection.headers
        kind = self.headers.get("content-type", "").partition(";")[0]
        self.streamed = kind.strip().lower() == "text/event-stream"
        self._channel = channel
        self._connection = connection
        self._left = False

    async def body(self) -> bytes:
        """The whole body. Raises TransientError for one that broke off or never ends."""
        parts, size = [], 0
        with self._channel.classed():
            while data := await self._connection.read():
                parts.append(data)
                if (size := size + len(data)) > LARGEST:
                    raise TransientError(f"endpoint {self._channel.name}: an answer of more than {LARGEST} bytes")
        return b"".join(parts)

    async def events(self) -> AsyncIterator[Event]:
        """The events of a stream, as they come. Ends where the connection does, which proves nothing."""
        splitter = Splitter()
        with self._channel.classed():
            while data := await self._connection.read():
                for event in splitter.feed(data):
                    yield event

    def hidden(self, text: str) -> str:
        """A text of the server without our key."""
        return self._channel.hidden(text)

    def close(self) -> None:
        """Let go now; an answer that has not ended is aborted at the server too, and who reads it is told."""
        if not self._left:
            self._left = True
            self._channel.leave(self._connection)

    def finish(self) -> None:
        """Let go after the last event: the connection is kept for the next request once the server ended the body."""
        if not self._left:
            self._left = True
            self._channel.leave(self._connection, linger=LINGER)


class Channel:
    """Sends requests to one server. ``idle`` are the kept connections, the longest unused first. Close it with
    `aclose`. Raises PoolConfigError for a key that no header can hold."""

    def __init__(self, config: EndpointConfig, connect_timeout: float) -> None:
        self.name = config.name
        self.closed = False
        self.idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._config = config
        self._connect_timeout = connect_timeout
        self._address = urlsplit(config.url)
        self._tls = _tls() if self._address.scheme == "https" else None
        self._common = _common(config, self._address.netloc)
        self._pruning: asyncio.TimerHandle | None = None

    async def post(self, path: str, body: JSON, headers: Mapping[str, str]) -> Answering:
        """Send one request; back as soon as a 2xx answer begins. Raises PoolError, classed, for everything else.

        A kept connection that the server had closed by then costs nothing: where no byte of an answer came, it is sent
        once more, on a new one (llm-d/llm-d#1564).
        """
        with self.classed():
            connection = await self.ask("POST", path, _written(body), headers)
            if not 200 <= connection.status < 300:
                raise await self._refused(connection)
        return Answering(self, connection)

    async def ask(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> Connection:
        """The connection on which an answer has begun, whatever its status; the caller leaves it. Raises DeafError and
        BrokenError, for `classed`."""
        sent = (self._head(method, path, len(data), headers), data)
        if (kept := self._kept()) is not None:
            try:
                return await self._asked(kept, sent)
            except BrokenError:
                if kept.heard or self.closed:
                    raise
        return await self._asked(await self._connected(), sent)

    async def aclose(self) -> None:
        """Close every connection, for good; who reads from one is told that it broke."""
        self.closed = True
        if self._pruning is not None:
            self._pruning.cancel()
        for connection in (*self.idle, *self._busy):
            connection.close()
        await asyncio.sleep(0)  # they are closed in the next round

    def leave(self, connection: Connection, linger: float = 0.0) -> None:
        """Nobody reads from it any more: it is kept once its answer has ended, for which it has ``linger`` seconds."""
        if connection.whole or not linger:
            self._keep(connection)
            return
        late = asyncio.get_running_loop().call_later(linger, connection.close)

        def ended() -> None:
            late.cancel()
            self._keep(connection)

        connection.ended = ended

    @contextmanager
    def classed(self) -> Iterator[None]:
        """Turns what a connection raises into the room's errors."""
        try:
            yield
        except DeafError as error:
            told = f"endpoint {self.name}: nobody listens at {self._config.url} ({error})"
            raise EndpointDeadError(told, reached=False) from error
        except BrokenError as error:
            told = f"endpoint {self.name}: the connection to {self._config.url} broke ({error})"
            raise TransientError(told) from error

    def hidden(self, text: str) -> str:
        """What a server said, without our key: some servers echo what they were sent."""
        key = self._config.api_key.get_secret_value() if self._config.api_key else ""
        return text.replace(key, "***") if key else text

    async def _asked(self, connection: Connection, data: tuple[bytes, ...]) -> Connection:
        if self.closed:
            connection.close()
            raise BrokenError("this endpoint has just left the pool")
        self._busy.add(connection)
        try:
            await connection.ask(*data)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connected(self) -> Connection:
        """A new connection."""
        loop, host = asyncio.get_running_loop(), self._address.hostname or ""
        try:
            async with asyncio.timeout(self._connect_timeout):
                port = self._address.port or (443 if self._tls else 80)
                _, connection = await loop.create_connection(lambda: Connection(self._gone), host, port, ssl=self._tls)
        except TimeoutError:
            raise BrokenError(f"no connection within {self._connect_timeout:g} s") from None
        except (OSError, ValueError) as error:
            raise DeafError(getattr(error, "strerror", None) or str(error) or type(error).__name__) from error
        return connection

    def _kept(self) -> Connection | None:
        """The kept connection that was used last, if its server will not have closed it by now."""
        now = asyncio.get_running_loop().time()
        while self.idle:
            connection = self.idle.pop()
            if connection.usable and now - connection.kept_since < KEEP_ALIVE:
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if self.closed or not connection.usable:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.kept_since = loop.time()
        self.idle.append(connection)
        if self._pruning is None:
            self._pruning = loop.call_later(KEEP_ALIVE, self._prune)

    def _prune(self) -> None:
        """Close those that were idle for too long, and look again when the next one will have been."""
        loop = asyncio.get_running_loop()
        long_ago = loop.time() - KEEP_ALIVE
        while self.idle and self.idle[0].kept_since <= long_ago:
            self.idle.popleft().close()
        wait = max(0.01, self.idle[0].kept_since - long_ago) if self.idle else None
        self._pruning = None if wait is None else loop.call_later(wait, self._prune)

    def _gone(self, connection: Connection) -> None:
        self._busy.discard(connection)
        with suppress(ValueError):
            self.idle.remove(connection)

    def _head(self, method: str, path: str, size: int, extra: Mapping[str, str]) -> bytes:
        told = "".join(
            f"{name}: {value}\r\n" for name, value in extra.items() if name.lower() in SENT and _decent(value)
        )
        return (
            f"{method} {_target(self._address.path + path)} HTTP/1.1\r\n{told}Content-Length: {size}\r\n".encode()
            + self._common
        )

    async def _refused(self, connection: Connection) -> PoolError:
        """The refusal in full: its body may come in several pieces, and half of one says nothing of what it is."""
        data = b""
        try:
            with suppress(BrokenError, TimeoutError):
                async with asyncio.timeout(REFUSING):
                    while len(data) < REFUSAL and (chunk := await connection.read()):
                        data += chunk
        finally:
            self.leave(connection)
        text = self.hidden(data[:REFUSAL].decode("utf-8", "replace"))
        return classify(self.name, connection.status, text, connection.headers)


def _common(config: EndpointConfig, netloc: str) -> bytes:
    """The end of every head."""
    host = netloc if netloc.isascii() else netloc.encode("idna").decode()
    lines = [f"Host: {host}", "Content-Type: application/json", "Accept: */*", "Accept-Encoding: identity"]
    if config.api_key is not None:
        lines.append(f"Authorization: Bearer {config.api_key.get_secret_value()}")
    if not all(line.isprintable() for line in lines):
        raise PoolConfigError(f"endpoint {config.name}: its url or its api_key holds a line break; mend it")
    return "\r\n".join([*lines, "", ""]).encode()


@lru_cache(maxsize=256)
def _target(path: str) -> str:
    """A path as a request's head holds it."""
    return quote(path, safe=PLAIN)


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _written(body: JSON) -> bytes:
    """A body as bytes; half a surrogate pair, which UTF-8 cannot say, is sent escaped, as it came."""
    try:
        return dumped(body).encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def _decent(value: str) -> bool:
    return value.isascii() and value.isprintable() and len(value) <= 256
