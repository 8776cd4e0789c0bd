"""The stream from inside: nobody there can hold an end of it for ever."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandbox.egress.refusal import CutError
from sandbox.egress.stream import Tunnel, receive, send


async def test_who_never_reads_is_let_go_in_time() -> None:
    gone: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tunnel = Tunnel(reader, writer, flush=0.2)
        begun = time.monotonic()
        with pytest.raises(CutError):
            await send(tunnel, b"x" * 30_000_000, 0.2)
        await tunnel.aclose()
        gone.set_result(time.monotonic() - begun)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1], limit=1)
        assert await asyncio.wait_for(gone, 10) < 5
        writer.close()


async def test_what_came_early_comes_first_and_the_end_is_empty() -> None:
    read: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tunnel = Tunnel(reader, writer)
        tunnel.early = b"early"
        read.set_result([await receive(tunnel, 5) for _ in range(3)])
        await tunnel.aclose()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        writer.write(b"late")
        writer.write_eof()
        assert await asyncio.wait_for(read, 10) == [b"early", b"late", b""]
        writer.close()
