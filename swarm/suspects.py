"""Runs that may be what ends the process: of them one goes on at a time, so that the innocent get on beside the guilty.

The one that took the fewest processes with it goes first.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(order=True)
class _Ticket:
    lives: int
    number: int
    go: asyncio.Future[None] = field(compare=False)


class Suspects:
    """Hands out turns. ``settle`` is for how many seconds a first one waits for others to come along."""

    def __init__(self, settle: float) -> None:
        self._settle = settle
        self._numbers = itertools.count()
        self._waiting: list[_Ticket] = []
        self._on: _Ticket | None = None

    @asynccontextmanager
    async def turn(self, lives: int, getting_on: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Wait for a turn, which ends with the block, or before, once ``getting_on`` returns: then it is no suspect."""
        loop = asyncio.get_running_loop()
        mine = _Ticket(lives, next(self._numbers), loop.create_future())
        self._waiting.append(mine)
        loop.call_later(self._settle, self._call)
        watch: asyncio.Future[None] | None = None
        try:
            await mine.go
            watch = asyncio.ensure_future(getting_on())
            watch.add_done_callback(lambda _: self._leave(mine))
            yield
        finally:
            if watch is not None:
                watch.cancel()
            self._leave(mine)

    def _leave(self, ticket: _Ticket) -> None:
        if self._on is ticket:
            self._on = None
            self._call()
        elif ticket in self._waiting:
            self._waiting.remove(ticket)

    def _call(self) -> None:
        there = [ticket for ticket in self._waiting if not ticket.go.done()]
        if self._on is None and there:
            self._on = min(there)
            self._waiting.remove(self._on)
            self._on.go.set_result(None)
