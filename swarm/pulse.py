"""Signs of life of one attempt: what its journal last said, and what it waits for right now.

An attempt is only held for stuck where both agree: nothing was written for a long time, and nothing is under way that
may still come to an end.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass

from pool.types import ChatRequest, CompletionRequest, Reply
from sandbox.base import OnOutput, Sandbox
from sandbox.types import Command, Outcome
from swarm.types import Failure, Fault
from swarm.work import Chat

MODEL, COMMAND = "a model call", "a command"
CALL = 3600.0  # seconds that a model call without a deadline may take
ROOM = 7200.0  # seconds that an image and a set-up may take before a sandbox is open
SLACK = 60.0  # seconds past its own limit that something under way still counts as a sign of life


@dataclass(frozen=True)
class _Under:
    """Something under way, and when it must have ended."""

    what: str
    until: float


class Pulse:
    """``quiet`` is for how many seconds an attempt may say nothing and do nothing; 0 is for ever."""

    def __init__(self, quiet: float = 0.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock
        self._last = clock()
        self._under: dict[int, _Under] = {}
        self._count = 0
        self._broken_off: dict[str, float] = {}

    def said(self) -> None:
        """A model or a sandbox gave a sign."""
        self._last = self._clock()

    def wrote(self) -> None:
        """The journal got a line."""
        self._broken_off.clear()
        self.said()

    @property
    def broken_off(self) -> dict[str, float]:
        """What was under way and came to no end since the journal's last line, and for how many seconds."""
        return dict(self._broken_off)

    @contextmanager
    def under_way(self, what: str, limit: float) -> Iterator[None]:
        """Something begins that takes at most ``limit`` seconds."""
        self._count += 1
        key, began = self._count, self._clock()
        self._under[key] = _Under(what, began + limit + SLACK)
        try:
            yield
        except BaseException:
            self._broken_off[what] = max(self._clock() - began, self._broken_off.get(what, 0.0))
            raise
        finally:
            del self._under[key]
            self.said()

    @property
    def silent(self) -> float:
        """Seconds since the last sign of life."""
        return self._clock() - self._last

    def stuck(self) -> Fault | None:
        """Why the attempt is to be ended; None while it lives."""
        now = self._clock()
        silent = now - self._last
        if not self._quiet or silent < self._quiet or any(one.until > now for one in self._under.values()):
            return None
        over = ", ".join(sorted({one.what for one in self._under.values()})) or "nothing"
        why = f"its journal says nothing for {silent:.0f} s, and under way is {over}"
        return Fault(kind="passing", failure=Failure(what="the attempt stood still", why=why))


class PulsingChat:
    """A pool whose calls are signs of life."""

    def __init__(self, pool: Chat, pulse: Pulse) -> None:
        self._pool = pool
        self._pulse = pulse
        self.native_tools = pool.native_tools
        self.traits = pool.traits
        self.acting = pool.acting
        self.end_session = pool.end_session

    async def chat(self, request: ChatRequest) -> Reply:
        """As `work.Chat` says."""
        with self._pulse.under_way(MODEL, request.deadline or CALL):
            return await self._pool.chat(request)

    async def complete(self, request: CompletionRequest) -> Reply:
        """As `work.Chat` says."""
        with self._pulse.under_way(MODEL, request.deadline or CALL):
            return await self._pool.complete(request)


class PulsingSandbox:
    """A sandbox whose commands, and what they print, are signs of life. ``wall`` is a command's limit in seconds."""

    def __init__(self, sandbox: Sandbox, pulse: Pulse, wall: float) -> None:
        self._sandbox = sandbox
        self._pulse = pulse
        self._wall = wall
        self.ping = sandbox.ping
        self.read = sandbox.read
        self.write = sandbox.write
        self.export = sandbox.export
        self.unpack = sandbox.unpack
        self.adopt = sandbox.adopt

    @property
    def name(self) -> str:
        """As the protocol says."""
        return self._sandbox.name

    async def run(self, command: Command, on_output: OnOutput | None = None) -> Outcome:
        """As the protocol says."""

        def heard(piece: bytes) -> None:
            self._pulse.said()
            if on_output is not None:
                on_output(piece)

        with self._pulse.under_way(COMMAND, self._wall):
            return await self._sandbox.run(command, heard)

    def fork(self, labels: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Sandbox]:
        """As the protocol says; what runs in the fork is a sign of life as well."""
        return self._fork(labels)

    @asynccontextmanager
    async def _fork(self, labels: Mapping[str, str] | None) -> AsyncIterator[Sandbox]:
        async with self._sandbox.fork(labels) as forked:
            yield PulsingSandbox(forked, self._pulse, self._wall)
