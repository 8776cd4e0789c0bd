"""The stream of an engine's exec: output in frames from a raw socket, input and its end to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from sandbox.process import HeadTail

_OOM = b"agent-swarm oom_kill "


@dataclass
class Said:
    """What an exec gave. Standard error carries the supervisor's own report; the agent could forge it, to no gain."""

    output: HeadTail
    errors: HeadTail = field(default_factory=lambda: HeadTail(64 * 1024))
    timed_out: bool = False
    code: int | None = None


async def _received(raw: socket.socket) -> AsyncIterator[bytes]:
    """Bytes until the other side closes or breaks off; how the exec ended is asked elsewhere."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionResetError):
        while chunk := await loop.sock_recv(raw, 256 * 1024):
            yield chunk


async def frames(raw: socket.socket) -> AsyncIterator[tuple[int, bytes]]:
    """Pieces of output with their stream, 1 or 2, in the engine's framing: kind, three zeros, length, data."""
    buffer = bytearray()
    kind = left = 0
    async for chunk in _received(raw):
        buffer += chunk
        while buffer:
            if not left:
                if len(buffer) < 8:
                    break
                kind, left = struct.unpack(">BxxxI", buffer[:8])
                del buffer[:8]
            data = bytes(buffer[:left])
            if data:
                del buffer[: len(data)]
                left -= len(data)
                yield kind, data


async def first_of(listening: asyncio.Task[None], feeding: asyncio.Task[None], limit: float) -> None:
    """Wait for the end of the output or of the time. Raises what the input's own stream raised."""
    until = time.monotonic() + limit
    await asyncio.wait([listening, feeding], timeout=limit, return_when=asyncio.FIRST_COMPLETED)
    if feeding.done():
        feeding.result()
    await asyncio.wait([listening], timeout=max(0.0, until - time.monotonic()))


async def listen(raw: socket.socket, said: Said) -> None:
    async for kind, data in frames(raw):
        (said.errors if kind == 2 else said.output).add(data)


async def send(raw: socket.socket, stream: AsyncIterator[bytes]) -> None:
    """Give a stream to the exec's standard input and close that direction."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        async for chunk in stream:
            await loop.sock_sendall(raw, chunk)
        raw.shutdown(socket.SHUT_WR)


async def after_go(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The line that starts the supervisor, then the command's own input."""
    yield b"\n"
    async for chunk in stream:
        yield chunk


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def reported(said: Said) -> int | None:
    """The count of out-of-memory kills that the supervisor read at its end."""
    for line in reversed(said.errors.result()[0].splitlines()):
        number = line.removeprefix(_OOM)
        if number != line and number.isdigit():
            return int(number)
    return None


def without_report(said: Said) -> bytes:
    return b"\n".join(line for line in said.errors.result()[0].splitlines() if not line.startswith(_OOM))
