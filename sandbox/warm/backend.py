"""Holds sandboxes ready around any backend, and hands each out once, to one caller.

What was started before it was asked for is empty and nobody's: it is filled and labelled when it is handed out, and
closed after that like any other. How many there are follows from demand (`sizing`); starting them is never waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sandbox.base import Rescue, Sandbox, SandboxBackend
from sandbox.config import WarmConfig
from sandbox.errors import SandboxError, SandboxLostError
from sandbox.finishing import Finishing
from sandbox.register import UNUSED, WARM, Register
from sandbox.types import LeftBehind, SandboxSpec, SelfTest
from sandbox.warm.lent import Lent, lent
from sandbox.warm.once import Once
from sandbox.warm.shelf import Held, Shelf, key_of
from sandbox.warm.sizing import Bounds, share, starters

_TICK = 5.0
_SHELVES = 64
_FAREWELL = 60.0
_SHARE = 8  # of the memory that is free, what ready sandboxes may take at most

log = logging.getLogger(__name__)


def free_memory() -> int:
    """Bytes that the host can still give, as the kernel reckons; see proc(5), MemAvailable."""
    with Path("/proc/meminfo").open(encoding="ascii") as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")), 0)


@dataclass(frozen=True)
class Host:
    """The machine as sizing sees it; tests have one of their own.

    ``patience`` are the seconds in which a ready sandbox must have answered; past that none is waited for.
    """

    clock: Callable[[], float] = time.monotonic
    memory: Callable[[], int] = free_memory
    processors: int = os.cpu_count() or 1
    patience: float = 2.0


@runtime_checkable
class Borrowing(Protocol):
    """A backend that copies a fork into an empty sandbox, and takes that from where it is told to."""

    fresh: Callable[[SandboxSpec], AbstractAsyncContextManager[Any]]


class WarmBackend:
    """Keeps the `SandboxBackend` protocol over another backend. It belongs to one event loop.

    With a count of zero nothing is held ready; what was handed out is written down all the same.
    """

    def __init__(self, bare: SandboxBackend, config: WarmConfig, register: Register, host: Host | None = None) -> None:
        self._bare = bare
        self._config = config
        self._register = register
        self._host = host or Host()
        self._shelves: dict[str, Shelf] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._finishing = Finishing()
        self._cold = 0
        self._wake = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False
        if isinstance(bare, Borrowing):
            bare.fresh = self.borrow

    @property
    def bare(self) -> SandboxBackend:
        """The backend inside."""
        return self._bare

    @property
    def ready(self) -> int:
        """How many are held ready now."""
        return sum(len(shelf.ready) for shelf in self._shelves.values())

    async def self_test(self) -> SelfTest:
        """As the protocol says."""
        return await self._bare.self_test()

    def open(
        self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None
    ) -> AbstractAsyncContextManager[Lent]:
        """As the protocol says; a ready one where there is one that answers."""
        return lent(self.borrow(spec, workspace), spec.labels, self._register)

    @asynccontextmanager
    async def borrow(self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None) -> AsyncIterator[Sandbox]:
        """The same without writing down whose it is: for a backend that makes a fork of it, which is no fork yet."""
        shelf, stream = self._shelf(spec), Once(workspace)
        shelf.demand = shelf.demand.asked(self._host.clock())
        async with AsyncExitStack() as stack:
            sandbox = await self._lend(shelf, spec, stream, stack) or await self._open_cold(spec, stream, stack)
            self._keep_going()
            yield sandbox

    async def prepare(self, spec: SandboxSpec) -> int:
        """Hold one ready before it is asked for, as far as the bounds allow; how many of this spec are ready then."""
        shelf = self._shelf(spec)
        shelf.demand = shelf.demand.asked(self._host.clock())
        if not shelf.count and self._targets()[shelf.key] and not self._closed:
            self._begin(shelf)
        while not shelf.ready and shelf.starting:
            await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED)
        self._keep_going()
        return len(shelf.ready)

    async def left_behind(self) -> tuple[LeftBehind, ...]:
        """As the protocol says; labels are those that were in force."""
        return tuple(self._register.told(left) for left in await self._bare.left_behind())

    async def sweep(self, rescue: Rescue | None = None, only: Collection[str] | None = None) -> int:
        """As the protocol says. What was never handed out holds nothing, and is removed without a word."""

        async def told(left: LeftBehind, workspace: AsyncIterator[bytes]) -> None:
            found = self._register.told(left)
            if rescue is not None and found.labels.get("kind") != UNUSED:
                await rescue(found, workspace)

        before = {left.name for left in await self._bare.left_behind()}
        removed = await self._bare.sweep(told, only)
        still = {left.name for left in await self._bare.left_behind()}
        # No others: what this backend does not see may be another's, or on an engine that is not asked today.
        self._register.tidy(before - still)
        return removed

    async def close(self) -> None:
        """As the protocol says. What was handed out stays with whoever has it."""
        await self._finishing.finish(self._close())

    async def _close(self) -> None:
        self._closed = True
        working = [*self._starting, *([self._keeper] if self._keeper else [])]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        for shelf in self._shelves.values():
            while shelf.ready:
                self._discard(shelf.ready.popleft())
        await self._finishing.settle(_FAREWELL)
        self._shelves.clear()
        await self._bare.close()

    # Handing out

    async def _lend(self, shelf: Shelf, spec: SandboxSpec, stream: Once, stack: AsyncExitStack) -> Sandbox | None:
        """A ready one, filled and labelled, that ``stack`` will close. None where none answers in time."""
        until = self._host.clock() + self._host.patience
        while shelf.ready and self._host.clock() < until:
            held = shelf.ready.popleft()
            try:
                if await self._answers(held.sandbox):
                    await held.sandbox.adopt(spec.labels, stream.pieces())
                    await stack.enter_async_context(held.stack)
                    return held.sandbox
            except SandboxLostError:
                if stream.touched:
                    self._discard(held)
                    raise
            except BaseException:
                self._discard(held)
                raise
            log.info("the ready sandbox %s is gone or does not answer; another one is taken", held.sandbox.name)
            self._discard(held)
        return None

    async def _open_cold(self, spec: SandboxSpec, stream: Once, stack: AsyncExitStack) -> Sandbox:
        self._cold += 1
        try:
            return await stack.enter_async_context(self._bare.open(spec, stream.pieces()))
        finally:
            self._cold -= 1

    # Keeping some ready

    def _shelf(self, spec: SandboxSpec) -> Shelf:
        key = key_of(spec)
        if key not in self._shelves:
            if len(self._shelves) >= _SHELVES:
                oldest = min(self._shelves, key=lambda each: self._shelves[each].demand.last)
                for held in self._shelves.pop(oldest).ready:
                    self._discard(held)
            self._shelves[key] = Shelf(key, spec.model_copy(update={"labels": {"kind": WARM}}))
        return self._shelves[key]

    def _targets(self) -> dict[str, int]:
        memory = min(self._config.memory, self._host.memory() // _SHARE)
        bounds = Bounds(self._config.max, memory, self._host.processors, self._config.idle)
        return share({key: shelf.demand for key, shelf in self._shelves.items()}, self._host.clock(), bounds)

    def _keep_going(self) -> None:
        if self._closed or not self._config.max:
            return
        self._wake.set()
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep(), name="warm sandboxes")

    async def _keep(self) -> None:
        """Until nothing is wanted and nothing is left."""
        while self._tend():
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK):
                    await self._wake.wait()

    def _tend(self) -> bool:
        """Let go of what is too many, begin to start what is too few; whether there is anything to look after."""
        targets, now = self._targets(), self._host.clock()
        for key, shelf in list(self._shelves.items()):
            while shelf.ready and shelf.count > targets[key]:
                self._discard(shelf.ready.popleft())
            if not targets[key] and not shelf.count:
                del self._shelves[key]
        room = starters(self._host.processors) - len(self._starting) - self._cold
        for key, shelf in self._shelves.items():
            while room > 0 and shelf.count < targets[key] and now >= shelf.not_before:
                self._begin(shelf)
                room -= 1
        return bool(self._shelves)

    def _begin(self, shelf: Shelf) -> None:
        shelf.starting += 1
        task = asyncio.create_task(self._start(shelf), name="a sandbox to hold ready")
        self._starting.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """One start is over; there is room for the next."""
        self._starting.discard(task)
        self._wake.set()

    async def _start(self, shelf: Shelf) -> None:
        began, stack = self._host.clock(), AsyncExitStack()
        try:
            sandbox = await self._open_empty(shelf.spec, stack)
        except BaseException as error:
            wait = shelf.failed(self._host.clock())
            await self._finishing.finish(_close(stack))
            if not isinstance(error, Exception):
                raise
            log.warning("no sandbox could be started to hold ready; tried again in %.0f s: %s", wait, error)
        else:
            shelf.started(Held(sandbox, stack), self._host.clock() - began)
            if self._shelves.get(shelf.key) is not shelf:  # nobody looks after it any more
                self._discard(shelf.ready.popleft())
        finally:
            shelf.starting -= 1

    async def _open_empty(self, spec: SandboxSpec, stack: AsyncExitStack) -> Sandbox:
        """One with its supervisor started, so that this need not be waited for when it is handed out."""
        sandbox = await stack.enter_async_context(self._bare.open(spec))
        await sandbox.ping()
        return sandbox

    async def _answers(self, sandbox: Sandbox) -> bool:
        """Whether its supervisor does, in bounded time."""
        try:
            async with asyncio.timeout(self._host.patience):
                await sandbox.ping()
        except (SandboxError, TimeoutError):
            return False
        return True

    def _discard(self, held: Held) -> None:
        self._finishing.keep(asyncio.create_task(_close(held.stack), name="a sandbox to close"))


async def _close(stack: AsyncExitStack) -> None:
    try:
        await stack.aclose()
    except Exception as error:  # noqa: BLE001 - a later sweep finds what could not be closed now
        log.warning("a sandbox that was held ready could not be closed: %s", error)
