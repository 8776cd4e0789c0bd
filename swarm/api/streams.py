"""Server-sent events: a task's journal until its end, and every task's moves; taken up after the last one seen.

A reader who takes nothing holds one page in memory and is cut by the server in time (see `swarm.serving`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from swarm.answers import TaskFilter
from swarm.api.desk import Caller, Desk
from swarm.api.failures import Turned
from swarm.store.journal import EVERYTHING

HEARTBEAT = 10.0  # seconds between comments on a quiet stream, so that both ends notice a dead connection
LOOK = 2.0  # seconds after which a quiet stream looks by itself: what other hosts write rings no bell here
BATCH = 200  # lines that are read at once
MOST = 512  # streams that are open at a time
EACH = 64  # of one caller


class _Stream(StreamingResponse):
    """Events as they come; ``left`` is called once nobody reads them any more."""

    def __init__(self, events: AsyncIterator[str], left: Callable[[], None]) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()


class Streams:
    """The open streams of one door: counted from when they are let in, and ended with the right to look."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._open: Counter[str] = Counter()

    def journal(self, caller: Caller, task: str, after: int) -> StreamingResponse:
        """A task's lines as events "step" until it is final, then one event "end". Raises Turned."""
        return self._answer(caller, self._journal(caller, task, after))

    def changes(self, caller: Caller, wanted: TaskFilter, after: int | None) -> StreamingResponse:
        """The moves of all tasks as events "change", from now on or after a position. Raises Turned."""
        return self._answer(caller, self._changes(caller, wanted, after))

    def _answer(self, caller: Caller, events: AsyncIterator[str]) -> StreamingResponse:
        if self._open[caller.name] >= EACH or self._open.total() >= MOST:
            why = f"{self._open[caller.name]} streams of {caller.name} are open, {self._open.total()} of all"
            raise Turned(429, "there are too many open streams", why, "close some, or ask for pages", retry_after=5)
        self._open[caller.name] += 1
        return _Stream(events, lambda: self._left(caller.name))

    def _left(self, name: str) -> None:
        self._open[name] -= 1
        self._open += Counter()  # those without any are forgotten

    async def _journal(self, caller: Caller, task: str, after: int) -> AsyncIterator[str]:
        bell = self._desk.store.bell
        rung = bell.listen(task)
        last = after
        quiet = 0.0
        try:
            while self._desk.lets_in(caller):
                rung.clear()
                closing = self._desk.closing.is_set()
                # The state is asked first: once it is final, the lines read after it are all there will be.
                state = await self._desk.store.state(task)
                steps = await self._desk.store.steps(task, after=last, limit=BATCH)
                for step in steps:
                    last, quiet = step.seq, 0.0
                    yield f"id: {last}\nevent: step\ndata: {step.model_dump_json()}\n\n"
                if state.final and not steps:
                    yield f"id: {last}\nevent: end\ndata: {state.value}\n\n"
                    return
                if closing and not steps:
                    return  # without an end: who follows comes back to the next daemon
                if not steps:
                    quiet = await self._wake(rung, quiet)
                    if quiet >= HEARTBEAT:
                        quiet = 0.0
                        yield ": still here\n\n"
        finally:
            bell.leave(task, rung)

    async def _changes(self, caller: Caller, wanted: TaskFilter, after: int | None) -> AsyncIterator[str]:
        bell, feed = self._desk.store.bell, self._desk.store.feed
        rung = bell.listen(EVERYTHING)
        quiet = 0.0
        try:
            last = await feed.last() if after is None else after
            yield f"id: {last}\nevent: begin\ndata: {last}\n\n"  # so that even a reader who saw nothing can come back
            while self._desk.lets_in(caller):
                rung.clear()
                closing = self._desk.closing.is_set()
                found, reached = await feed.changes(last, wanted, BATCH)
                for change in found:
                    quiet = 0.0
                    yield f"id: {change.position}\nevent: change\ndata: {change.model_dump_json()}\n\n"
                moved, last = reached > last, reached
                if moved:
                    continue
                if closing:
                    return
                quiet = await self._wake(rung, quiet)
                if quiet >= HEARTBEAT:
                    quiet = 0.0
                    yield f"id: {last}\n: still here\n\n"  # the position moves on past what the filter left out
        finally:
            bell.leave(EVERYTHING, rung)

    async def _wake(self, rung: asyncio.Event, quiet: float) -> float:
        """Wait for the bell, the end or the next look; seconds of quiet by then."""
        waits = [asyncio.ensure_future(rung.wait()), asyncio.ensure_future(self._desk.closing.wait())]
        patience = min(LOOK, HEARTBEAT)
        try:
            done, _ = await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*waits, return_exceptions=True)
        return quiet if done else quiet + patience
