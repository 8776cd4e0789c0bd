"""Clean-up that is done to its end, however often whoever began it is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class Finishing:
    """The works of one backend that go on even where nobody waits for them any more."""

    def __init__(self) -> None:
        self._going: set[asyncio.Task[Any]] = set()

    def keep(self, task: asyncio.Task[_T]) -> asyncio.Task[_T]:
        """See a task to its end."""

        def ended(task: asyncio.Task[Any]) -> None:
            self._going.discard(task)
            if not task.cancelled():
                task.exception()  # whoever waits for it is told; after a cancellation nobody does

        self._going.add(task)
        task.add_done_callback(ended)
        return task

    async def finish(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Wait for the work; it goes on where we are cancelled."""
        return await asyncio.shield(self.keep(asyncio.create_task(work)))

    async def settle(self, patience: float) -> None:
        """Wait for all that goes on, ``patience`` seconds at most."""
        going = self._going - {asyncio.current_task()}
        if going:
            await asyncio.wait(going, timeout=patience)
