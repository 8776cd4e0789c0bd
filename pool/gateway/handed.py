"""A gateway without an address: connections are handed in, all of them of one caller, who needs no key."""

from __future__ import annotations

import asyncio
import socket

from pool.gateway.guard import Crowd, protocol
from pool.gateway.keys import Caller
from pool.gateway.routes import Door
from pool.gateway.service import Service

MOST = 32  # connections of one caller
BODIES = 2  # of the longest bodies, held at a time for one caller
LAST_WORDS = 2.0  # seconds in which requests that are cut off are told so


class Handed:
    """One caller's way into the gateway of this process: no address, so nobody else can take it, and no key to keep."""

    def __init__(self, service: Service, caller: Caller, tier: str) -> None:
        own = service.for_one(caller, tier, BODIES * service.config.max_body)
        self._service = own
        self._crowd = Crowd()
        self._made = protocol(Door(own), own.config, self._crowd, MOST)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A new connection. Raises ConnectionRefusedError once this is closed."""
        if self._service.draining:
            raise ConnectionRefusedError("the gateway takes no request of this attempt any more")
        near, far = socket.socketpair()
        near.setblocking(False)  # noqa: FBT003  positional by its definition
        far.setblocking(False)  # noqa: FBT003
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._made, far)
        except BaseException:
            far.close()
            near.close()
            raise
        try:
            return await asyncio.open_unix_connection(sock=near)
        except BaseException:
            near.close()  # the other end closes with it
            raise

    async def close(self) -> None:
        """Take no more, and end what runs with an error that its client can read."""
        self._service.draining = True
        for connection in tuple(self._crowd.connections):
            if (cut_short := getattr(connection, "cut_short", None)) is not None:
                cut_short()
            connection.shutdown()
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._crowd.quiet.wait()
        except TimeoutError:
            for connection in tuple(self._crowd.connections):
                connection.transport.abort()
        await asyncio.gather(*tuple(self._crowd.tasks), return_exceptions=True)
