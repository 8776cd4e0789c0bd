"""What is going on over one line: requests and connections as channels, each with its own credit.

What comes from inside is hostile: all that a channel may hold is counted, and one byte too many ends the line. What
goes inside is queued and sent by one task, so that a cancelled caller never leaves half a frame; credit bounds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from sandbox.errors import SandboxLostError
from sandbox.inside import protocol as inside
from sandbox.line.cell import Line
from sandbox.line.wire import BrokenLineError, Done, Frame, Frames, count, done, frame, request
from sandbox.types import MIB

_BACKLOG = 64 * MIB  # more than all that credit allows, with the largest requests


class Channel:
    """One request, or one connection that was made inside. ``room`` is how many bytes may wait here."""

    def __init__(self, conversation: Conversation, number: int, room: int) -> None:
        self.number = number
        self.done: Done | None = None
        self.refused: str | None = None
        self.ended = self.closed = self.alive = self._finished = False
        self._conversation = conversation
        self._room = room
        self._credit, self._owed = inside.WINDOW, 0
        self._held: dict[int, list[bytes]] = {}
        self._news = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.done is not None or self.refused is not None or self.closed or (self.ended and self._finished)

    def take(self, kind: int) -> bytes:
        """What came of one kind since the last time, without waiting."""
        return b"".join(self._held.pop(kind, ()))

    async def news(self) -> None:
        """Wait until something came. Raises SandboxLostError when nothing will, for the line is lost."""
        self._conversation.check()
        await self._news.wait()
        self._news.clear()

    async def read(self) -> bytes:
        """The next bytes of a stream, and credit for as many more, some at a time; empty at its end, good or bad."""
        while True:
            data = self.take(inside.DATA)
            if data:
                self._room += len(data)
                self._owed += len(data)
                if self._owed >= inside.FRAME and not self.over:
                    self._conversation.post(frame(inside.CREDIT, self.number, inside.COUNT.pack(self._owed)))
                    self._owed = 0
                return data
            if self.ended or self.over:
                return b""
            await self.news()

    async def send(self, data: bytes) -> None:
        """Give bytes, waiting for credit. They are dropped once the channel is over."""
        for at in range(0, len(data), inside.FRAME):
            piece = data[at : at + inside.FRAME]
            while self._credit < len(piece) and not self.over:
                await self.news()
            if self.over:
                return
            self._credit -= len(piece)
            self._conversation.post(frame(inside.DATA, self.number, piece))

    async def feed(self, stream: AsyncIterator[bytes]) -> None:
        """Give a whole stream and its end, or as much of it as is wanted."""
        async for chunk in stream:
            await self.send(chunk)
            if self.over:
                return
        self.end()

    def end(self) -> None:
        """Say that no more bytes will be given."""
        if not self.over:
            self._conversation.post(frame(inside.END, self.number))
            self._finished = True
            if self.ended:
                self._conversation.forget(self)

    def close(self) -> None:
        """Say that nothing more is wanted."""
        if not self.over and self._conversation.lost is None:
            self._conversation.post(frame(inside.CLOSE, self.number))

    async def finish(self) -> Done | None:
        """Wait for the request's end; None where it was refused, see ``refused``."""
        while not self.over:
            await self.news()
        return self.done

    def arrived(self, piece: Frame) -> None:
        """Take a frame from inside. Raises BrokenLineError for more than was allowed."""
        if piece.kind == inside.CREDIT:
            self._credit += count(piece.data)
            if self._credit > inside.WINDOW:
                raise BrokenLineError("a supervisor gave credit for bytes that it was never sent")
        elif piece.kind == inside.DONE:
            self.done = done(piece.data)
        elif piece.kind == inside.REFUSED:
            self.refused = piece.data[-1000:].decode("utf-8", "replace")
        elif piece.kind in {inside.END, inside.CLOSE} and self.number < inside.TUNNEL:
            raise BrokenLineError("a supervisor ended a request as if it were a connection")  # ours would wait for ever
        elif piece.kind == inside.END:
            self.ended = True
        elif piece.kind == inside.CLOSE:
            self.closed = True
        elif piece.kind == inside.ALIVE:
            self.alive = True  # until somebody takes note
        else:
            self._room -= len(piece.data)
            if self._room < 0 or self.ended:
                raise BrokenLineError("a supervisor sent more than it was asked for")
            self._held.setdefault(piece.kind, []).append(piece.data)
        self.wake()

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._news.set()


class Conversation:
    """One line from its first byte to its last. ``opened`` is called with each connection made inside and its port."""

    def __init__(self, line: Line, opened: Callable[[Conversation, Channel, int], None]) -> None:
        self.hello: dict[str, int] | None = None
        self.lost: str | None = None
        self._line, self._opened = line, opened
        self._channels: dict[int, Channel] = {}
        self._places: set[int] = set()
        self._last, self._last_open = 0, inside.TUNNEL
        self._queue: list[bytes] = []
        self._behind = 0
        self._queued, self._greeted = asyncio.Event(), asyncio.Event()
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._speak())]

    def check(self) -> None:
        """Raises SandboxLostError when the line is lost."""
        if self.lost is not None:
            raise SandboxLostError(self.lost)

    def post(self, data: bytes) -> None:
        """Queue whole frames. A supervisor that makes us answer and does not listen is lost."""
        if self.lost is not None:
            return
        self._behind += len(data)
        if self._behind > _BACKLOG:
            self._lose("its supervisor listens no more")
        self._queue.append(data)
        self._queued.set()

    async def greeted(self) -> dict[str, int]:
        """What the supervisor said first. Raises SandboxLostError."""
        await self._greeted.wait()
        self.check()
        return self.hello or {}

    def ask(self, *words: Any, room: int = inside.WINDOW) -> Channel:
        """Begin a request."""
        self.check()
        self._last = self._last + 1 if self._last < inside.TUNNEL - 1 else 1
        channel = Channel(self, self._last, room)
        self._channels[channel.number] = channel
        self.post(request(channel.number, *words))
        return channel

    def forget(self, channel: Channel) -> None:
        """Drop what may still come for a channel."""
        self._channels.pop(channel.number, None)

    def leave(self, channel: Channel) -> None:
        """Nothing is left here of a connection that was made inside: another one may have its place.

        Its channel may be forgotten long before, as soon as it is broken off inside.
        """
        self._places.discard(channel.number)
        self.post(frame(inside.FREE, channel.number))

    async def close(self) -> None:
        """Let go of the line; what still waits for it is lost."""
        self._lose("the line to the supervisor was closed")
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            await self._line.close()

    def _lose(self, why: str) -> None:
        if self.lost is None:
            self.lost = why
        self._greeted.set()
        for channel in self._channels.values():
            channel.wake()

    async def _listen(self) -> None:
        frames = Frames()
        try:
            while self.lost is None and (data := await self._line.receive()):
                for piece in frames.feed(data):
                    self._take(piece)
                if len(data) >= inside.FRAME:  # less means that there was no more, so that the next call waits
                    await asyncio.sleep(0)  # one that floods us may not keep the others from their turn
        except (SandboxLostError, OSError) as error:
            self._lose(str(error))
        finally:
            self._lose("its supervisor ended")  # where nothing else was told before

    async def _speak(self) -> None:
        try:
            while True:
                await self._queued.wait()
                self._queued.clear()
                data, self._queue, self._behind = b"".join(self._queue), [], 0
                await self._line.send(data)
        except (SandboxLostError, OSError) as error:
            self._lose(str(error))
        finally:
            self._lose("its supervisor listens no more")

    def _take(self, piece: Frame) -> None:
        channel = self._channels.get(piece.channel)
        if piece.kind == inside.HELLO:
            self._greet(piece)
        elif piece.kind == inside.OPEN:
            self._open(piece)
        elif channel is not None:
            channel.arrived(piece)
            if channel.over:
                self.forget(channel)
        elif piece.channel == 0 or piece.channel > (self._last_open if piece.channel >= inside.TUNNEL else self._last):
            raise BrokenLineError("a supervisor answered what it was not asked")

    def _greet(self, piece: Frame) -> None:
        if self.hello is not None or piece.channel != 0:
            raise BrokenLineError("a supervisor greeted twice")
        self.hello = _greeting(piece.data)
        self._greeted.set()

    def _open(self, piece: Frame) -> None:
        if piece.channel < inside.TUNNEL or piece.channel in self._channels or piece.channel in self._places:
            raise BrokenLineError("a supervisor opened a connection under a number that is taken")
        if len(self._places) >= inside.CONNECTIONS:
            raise BrokenLineError("a supervisor opened more connections than it may")
        channel = Channel(self, piece.channel, inside.WINDOW)
        self._channels[piece.channel] = channel
        self._places.add(piece.channel)
        self._last_open = max(self._last_open, piece.channel)
        self._opened(self, channel, count(piece.data))


def _greeting(data: bytes) -> dict[str, int]:
    words = (line.split() for line in data.decode("ascii", "replace").splitlines()[:20])
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit() and len(pair[1]) < 10}
