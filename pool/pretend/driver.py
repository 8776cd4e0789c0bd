"""Runs a pretend engine against the wall clock, and tells each request of its tokens as they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from pool.pretend.engine import Engine, EngineSettings, Sequence
from pool.pretend.kv import KvEvent

LAG = 0.25  # seconds that the driver may be behind its own clock before it gives up catching up
IDLE_RETRY = 0.001


class Ticket:
    """One sequence inside the engine, as its request sees it: ``out`` tokens are delivered so far."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.out = 0
        self._goal = 0
        self._reached: asyncio.Future[None] | None = None

    async def reach(self, tokens: int) -> None:
        """Wait until so many tokens are out."""
        if self.out >= tokens:
            return
        self._goal = tokens
        self._reached = asyncio.get_running_loop().create_future()
        await self._reached

    def deliver(self, tokens: int) -> None:
        """So many more came out."""
        self.out += tokens
        if self._reached is not None and self.out >= self._goal and not self._reached.done():
            self._reached.set_result(None)


class Driver:
    """The engine's life: one task that steps while there is work. ``lost`` are
    seconds by which it fell behind its own clock for good: a busy machine, not a busy engine.

    ``told`` takes the KV events of each step. A wedged driver takes requests and computes nothing.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        told: Callable[[tuple[KvEvent, ...]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = Engine(settings)
        self.lost = 0.0
        self.moving = asyncio.Event()
        self.moving.set()
        self._told = told
        self._clock = clock
        self._work = asyncio.Event()
        self._tickets: dict[str, Ticket] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to step."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End, with everybody inside unanswered."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def submit(self, sequences: Iterable[Sequence]) -> list[Ticket]:
        """Queue sequences. Raises ValueError for one that never fits."""
        tickets = []
        for sequence in sequences:
            sequence.arrival = self._clock()
            self.engine.add(sequence)
            tickets.append(Ticket(sequence))
            self._tickets[sequence.id] = tickets[-1]
        self._work.set()
        return tickets

    def abort(self, tickets: Iterable[Ticket]) -> None:
        """Drop those of the tickets that are still inside."""
        left = [ticket.sequence.id for ticket in tickets if self._tickets.pop(ticket.sequence.id, None) is not None]
        if left:
            self.engine.abort(left)

    async def _run(self) -> None:
        due = self._clock()
        while True:
            if not self.engine.inside:
                self._work.clear()
                await self._work.wait()
                due = self._clock()
            if not self.moving.is_set():
                await self.moving.wait()
                due = self._clock()
            due = await self._step(due)

    async def _step(self, due: float) -> float:
        """One step that begins when the last one was due to end; the moment at which this one ends."""
        result = self.engine.step(due)
        if result.idle:
            await asyncio.sleep(IDLE_RETRY)
            return self._clock()
        due += result.duration
        lag = self._clock() - due
        if lag > LAG:
            self.lost += lag
            due += lag
        await asyncio.sleep(max(0.0, due - self._clock()))
        await self.moving.wait()
        if self._told is not None and result.events:
            self._told(result.events)
        for sequence, tokens in result.emitted.items():
            if (ticket := self._tickets.get(sequence)) is not None:
                ticket.deliver(tokens)
        for ended in result.finished:
            self._tickets.pop(ended.id, None)
        return due
