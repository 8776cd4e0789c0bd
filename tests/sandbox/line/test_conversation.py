"""A line over which the other side says what it likes, or nothing, or does not listen."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.errors import SandboxLostError
from sandbox.inside import protocol as inside
from sandbox.line.conversation import Channel, Conversation
from sandbox.line.wire import frame
from sandbox.types import MIB


class Deaf:
    """A line whose other side says what it is told to say, and never listens."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, data: bytes) -> None:
        await asyncio.Event().wait()

    async def receive(self) -> bytes:
        return await self.said.get()

    async def close(self) -> None:
        pass


def opening(number: int) -> bytes:
    return frame(inside.OPEN, inside.TUNNEL + number, inside.COUNT.pack(80))


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_supervisor_that_makes_us_answer_and_never_listens_is_lost() -> None:
    line = Deaf()
    talk = Conversation(line, lambda *_: None)
    for _ in range(64):
        talk.post(bytes(MIB))
    assert talk.lost is None
    talk.post(b"x")
    with pytest.raises(SandboxLostError, match="listens no more"):
        talk.check()
    line.said.put_nowait(b"rubbish that nobody reads now")
    await settled()
    assert talk.lost == "its supervisor listens no more"
    await talk.close()


async def test_a_connection_has_its_place_until_nothing_is_left_of_it_here() -> None:
    line, opened = Deaf(), list[Channel]()
    talk = Conversation(line, lambda _, channel, port: opened.append(channel))
    for number in range(inside.CONNECTIONS):
        line.said.put_nowait(opening(number) + frame(inside.CLOSE, inside.TUNNEL + number))
    await settled()
    while not line.said.empty():
        await settled()
    assert len(opened) == inside.CONNECTIONS
    assert all(channel.closed for channel in opened)
    talk.leave(opened[0])
    line.said.put_nowait(opening(1000))
    await settled()
    assert len(opened) == inside.CONNECTIONS + 1
    assert talk.lost is None
    line.said.put_nowait(opening(1001))
    await settled()
    assert talk.lost == "a supervisor opened more connections than it may"
    await talk.close()


async def test_a_number_is_not_taken_twice_while_its_place_is() -> None:
    line = Deaf()
    talk = Conversation(line, lambda *_: None)
    line.said.put_nowait(opening(1) + frame(inside.CLOSE, inside.TUNNEL + 1) + opening(1))
    await settled()
    assert talk.lost == "a supervisor opened a connection under a number that is taken"
    await talk.close()
