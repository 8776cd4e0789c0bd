"""Watches over one request that waits for its endpoint: looks when the patience would be over, gives up when it is.

A class and no closures: functions that name each other are freed by the garbage collector alone, and with them all that
a request holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from pool.member import Clock, Member
from pool.patience import Watch


class Lookout:
    """Use as a context manager: within the block ``give_up`` is called once where the engine stood still for too long.

    A busy server is left to work, since giving up and sending again would only double its load
    (vllm-project/vllm#20520).
    """

    __slots__ = ("_clock", "_give_up", "_member", "_pending", "_watch")

    def __init__(self, member: Member, watch: Watch, clock: Clock, give_up: Callable[[], None]) -> None:
        self._member = member
        self._watch = watch
        self._clock = clock
        self._give_up = give_up
        self._pending: asyncio.TimerHandle | asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        if (left := self._left()) > 0:
            self._pending = loop.call_later(min(self._watch.idle, left), self._check)
        else:
            self._pending = loop.create_task(self._look())

    async def _look(self) -> None:
        """What was scraped last may be older than the patience."""
        await asyncio.gather(self._member.probe(), return_exceptions=True)
        if self._left() > 0:
            self._check()
        else:
            self._give_up()

    def _left(self) -> float:
        now = self._clock()
        return max(0.0, self._watch.left(now, now - self._member.still_for))
