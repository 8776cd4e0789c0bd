"""Connections made inside, served by the host's ways out: one socket pair each, with a pump in each direction."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Mapping, Sequence

from sandbox.base import Exit
from sandbox.errors import SandboxLostError
from sandbox.inside import protocol as inside
from sandbox.line.conversation import Channel, Conversation
from sandbox.line.wire import BrokenLineError

_HELD = 0.2  # seconds
_LINGER = 5.0  # seconds in which the other side may still end by itself, so that it can read the last answer

log = logging.getLogger(__name__)


class Tunnels:
    """The connections of one sandbox that are open now."""

    def __init__(self, exits: Sequence[Exit]) -> None:
        self._exits = {way.port: way for way in exits}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ports(self) -> tuple[int, ...]:
        """Where a supervisor has to listen."""
        return tuple(self._exits)

    def opened(self, conversation: Conversation, channel: Channel, port: int, labels: Mapping[str, str]) -> None:
        """Serve a connection. Raises BrokenLineError for a port where no supervisor was told to listen.

        Its place is taken until nothing is left of it here, however soon it was broken off inside, and for `_HELD` at
        least: else a program that connects and breaks off in a loop would fill this process with tasks.
        """
        way = self._exits.get(port)
        if way is None:
            raise BrokenLineError(f"a supervisor opened a connection to port {port}, where it has nothing to listen to")
        loop = asyncio.get_running_loop()
        until = loop.time() + _HELD
        task = asyncio.create_task(_serve(conversation, channel, way, dict(labels)))
        self._tasks.add(task)

        def served(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            loop.call_at(until, conversation.leave, channel)

        task.add_done_callback(served)

    async def close(self) -> None:
        """Break off what is open."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _serve(conversation: Conversation, channel: Channel, way: Exit, labels: dict[str, str]) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003 - socket's own
    try:
        reader, writer = await asyncio.open_connection(sock=theirs)
    except BaseException:
        ours.close()
        theirs.close()
        channel.close()
        raise
    pumps = asyncio.create_task(_outwards(channel, ours)), asyncio.create_task(_inwards(channel, ours))
    both = asyncio.gather(*pumps, return_exceptions=True)
    both.add_done_callback(lambda _: ours.close())  # not sooner, and also when we are cancelled while we tidy up
    try:
        try:
            await way.serve(reader, writer, labels)
        except Exception as error:  # noqa: BLE001 - what an exit raises ends this connection alone
            log.warning("a connection through port %d ended: %s", way.port, error)
        writer.close()
        await asyncio.wait(pumps[1:])
        await asyncio.wait(pumps[:1], timeout=_LINGER)
    finally:
        for pump in pumps:
            pump.cancel()
        writer.close()
        channel.close()
        conversation.forget(channel)
        await asyncio.wait(pumps)
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _outwards(channel: Channel, ours: socket.socket) -> None:
    """From inside to the exit. What the exit reads no more is dropped, so that inside nobody is cut off before it read.

    A connection that was broken off inside is broken off for the exit, in both directions.
    """
    loop, how, heard = asyncio.get_running_loop(), socket.SHUT_RDWR, True
    with contextlib.suppress(SandboxLostError):
        while data := await channel.read():
            try:
                if heard:
                    await loop.sock_sendall(ours, data)
            except OSError:
                heard = False
        how = socket.SHUT_RDWR if channel.closed else socket.SHUT_WR
    with contextlib.suppress(OSError):
        ours.shutdown(how)


async def _inwards(channel: Channel, ours: socket.socket) -> None:
    """From the exit to inside."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(SandboxLostError, OSError):
        while data := await loop.sock_recv(ours, inside.FRAME):
            await channel.send(data)
        channel.end()
