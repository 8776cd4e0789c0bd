"""The HTTP protocol of one connection: uvicorn's, with bounds on the size of a request's head and the time it takes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from pool.config import GatewayConfig
from pool.gateway.replies import LATER, Refusal, RefusedError
from pool.gateway.web import CONNECTION

GATHERED = 16_384  # bytes that are sent without waiting for more


class Crowd(ServerState):
    """The open connections. ``quiet`` is set while there is none; ``resting`` are those without a request, the one
    that has been so for longest first, and ``working`` how many have one of each caller."""

    def __init__(self) -> None:
        super().__init__()
        self.resting: dict[Guarded, None] = {}
        self.working: Counter[str] = Counter()
        self.quiet = asyncio.Event()
        self.quiet.set()


class Gathered:
    """A transport that sends at once what is written in one go: a head that went alone would wake its client twice."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send with what is written before the loop's next round; much of it at once, so that a full pipe is seen."""
        self._parts.append(data)
        self._size += len(data)
        if self._size > GATHERED:
            self.flush()
        elif len(self._parts) == 1:
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what was gathered."""
        parts, self._parts, self._size = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        """Close it after what was written."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._transport.is_closing()


class Guarded(HttpToolsProtocol):
    """One connection. A head that is too long gets 431; one that takes too long is cut off (slow loris).

    Beyond ``most`` connections the one that has rested longest is cut for a new one; where none rests, that gets 503.
    Of several callers each has half of them for its requests, however little it sends of each.
    """

    def __init__(self, config: Config, state: Crowd, limits: GatewayConfig, most: int | None = None) -> None:
        super().__init__(config, state, {})
        self._crowd = state
        self._limits = limits
        self._most = most
        self._share = max(1, most // 2) if most is not None and len(limits.keys) > 1 else None
        self._whose: str | None = None
        self.hung_up: Callable[[], None] | None = None
        self.cut_short: Callable[[], None] | None = None
        self._late: asyncio.TimerHandle | None = None
        self._head = 0  # bytes of the head that is arriving
        self._named = 0  # bytes of its headers alone

    @property
    def jammed(self) -> bool:
        """Whether the client does not read as fast as it is written to."""
        return self.flow.write_paused

    @property
    def arrived(self) -> bool:
        """Whether all that the client began to send is here."""
        return self.cycle is not None and not self.cycle.more_body

    def belongs(self, whose: str) -> None:
        """Tell whose request is at work here. Raises RefusedError (429) where the caller has its share of them."""
        if self._share is None or self._whose is not None:
            return
        if self._crowd.working[whose] >= self._share:
            words = f"{self._share} of your requests are under way, which is your share of max_connections"
            raise RefusedError(Refusal(429, f"{words}; let some end first", "too_many_requests", retry_after=LATER))
        self._whose = whose
        self._crowd.working[whose] += 1

    def abort(self) -> None:
        """Cut it."""
        self.transport.abort()

    def unframed(self, size: int) -> None:
        """The next ``size`` bytes of the answer go out as they are, and it ends with the connection."""
        self.cycle.chunked_encoding, self.cycle.keep_alive = False, False
        self.cycle.expected_content_length = size

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head is awaited from now on."""
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", Gathered(transport, self.loop))
        self._crowd.quiet.clear()
        self._await_head()
        if self._most is not None and len(self._crowd.connections) > self._most:
            self._make_room()
        self._crowd.resting[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._head_done()
        self._done()
        self._crowd.resting.pop(self, None)
        super().connection_lost(exc)
        if self.hung_up is not None:
            self.hung_up()
        if not self._crowd.connections:
            self._crowd.quiet.set()

    def data_received(self, data: bytes) -> None:
        """Count while a head is arriving; whatever is left of it then must fit as well."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._late is None:
            self._await_head()
        if idle:
            self._head += len(data)
        super().data_received(data)
        if self._late is not None and self._head > self._limits.max_header:
            self._refuse()

    def on_message_begin(self) -> None:
        """Give the request its connection."""
        super().on_message_begin()
        self._named = 0
        self.scope["extensions"] = cast("Any", {CONNECTION: self})

    def on_header(self, name: bytes, value: bytes) -> None:
        """Drop what is beyond the limit, so that it cannot pile up."""
        self._named += len(name) + len(value) + 4
        if self._named <= self._limits.max_header:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there: begin, unless it was too long."""
        self._head_done()
        if self._named + len(self.url) > self._limits.max_header:
            self._refuse()
            return
        self._crowd.resting.pop(self, None)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Another request may follow. The end of an answer is waited for: it goes out before anything else is done."""
        cast("Gathered", self.transport).flush()
        self._done()
        self._crowd.resting[self] = None
        super().on_response_complete()

    def on_body(self, body: bytes) -> None:
        """Not for a request that was refused."""
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Not for a request that was refused."""
        if not self.transport.is_closing():
            super().on_message_complete()

    def _done(self) -> None:
        """No request is at work here any more."""
        whose, self._whose = self._whose, None
        if whose is not None:
            self._crowd.working[whose] -= 1
            if not self._crowd.working[whose]:
                del self._crowd.working[whose]

    def _await_head(self) -> None:
        self._head = 0
        self._late = self.loop.call_later(self._limits.header_timeout, self._cut)

    def _head_done(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _cut(self) -> None:
        self._late = None
        self.transport.abort()

    def _make_room(self) -> None:
        if longest := next(iter(self._crowd.resting), None):
            longest.transport.abort()
            return
        words = f"{self._most} connections are open and at work, which is all there may be (max_connections)"
        self._turn_away(Refusal(503, words, "gateway_full", retry_after=LATER))

    def _refuse(self) -> None:
        words = f"the request's head is longer than {self._limits.max_header} bytes (max_header)"
        self._turn_away(Refusal(431, words, "head_too_large"))

    def _turn_away(self, refusal: Refusal) -> None:
        self._head_done()
        body = refusal.body()
        told = [*refusal.headers(), (b"content-length", b"%d" % len(body))]
        head = b"content-type: application/json\r\nconnection: close\r\n"
        head += b"".join(b"%b: %b\r\n" % pair for pair in told) + b"\r\n"
        self.transport.write(STATUS_LINE[refusal.status] + head + body)
        self.transport.close()


def protocol(app: Any, limits: GatewayConfig, state: Crowd, most: int | None = None) -> Any:
    """Makes the protocol of each new connection that speaks to ``app``, of which there are no more than ``most``."""
    config = Config(
        app,
        http=Guarded,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=int(limits.keep_alive),
    )
    config.load()
    return lambda: Guarded(config, state, limits, most)
