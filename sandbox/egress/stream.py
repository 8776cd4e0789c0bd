"""A tunnel's reader and writer as one byte stream, and TLS over it. Everything waits a bounded time."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from anyio import BrokenResourceError, EndOfStream
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from sandbox.egress.refusal import CutError

PIECE = 64 * 1024
GONE = (OSError, ssl.SSLError, BrokenResourceError, EndOfStream)


class Tunnel(ByteStream):
    """The stream that a sandbox's supervisor carries. ``early``: bytes that were read before their turn."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flush: float = 30.0) -> None:
        """``flush``: seconds that the other side has, at the end, to read what it was sent."""
        self._reader = reader
        self._writer = writer
        self._flush = flush
        self.early = b""

    async def receive(self, max_bytes: int = PIECE) -> bytes:
        """The next bytes. Raises EndOfStream at the end."""
        if self.early:
            data, self.early = self.early[:max_bytes], self.early[max_bytes:]
            return data
        data = await self._reader.read(max_bytes)
        if not data:
            raise EndOfStream
        return data

    async def send(self, item: bytes) -> None:
        """Send, waiting while the other side does not read."""
        self._writer.write(item)
        await self._writer.drain()

    async def send_eof(self) -> None:
        """Say that nothing more comes."""
        if self._writer.can_write_eof():
            self._writer.write_eof()

    async def aclose(self) -> None:
        """Let go of it, what was sent read or not: who never reads holds nothing for ever."""
        self._writer.close()
        try:
            async with asyncio.timeout(self._flush):
                await self._writer.wait_closed()
        except OSError:  # TimeoutError among them
            self._writer.transport.abort()


async def receive(stream: ByteStream, seconds: float) -> bytes:
    """The next bytes, empty at the end or when the other side went away. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        try:
            return await stream.receive(PIECE)
        except GONE:
            return b""


async def send(stream: ByteStream, data: bytes, seconds: float) -> None:
    """Send all of it. Raises CutError where the other side went away or does not read."""
    try:
        async with asyncio.timeout(seconds):
            await stream.send(data)
    except (TimeoutError, *GONE) as error:
        raise CutError("the other side went away") from error


async def ended(stream: ByteStream) -> None:
    """Say that nothing more comes, beneath TLS too, so that a client that reads to the end is not kept waiting."""
    with suppress(*GONE):
        await (stream.transport_stream if isinstance(stream, TLSStream) else stream).send_eof()


async def secured(stream: ByteStream, context: ssl.SSLContext, seconds: float) -> TLSStream:
    """The server's side of TLS over a stream. Raises CutError where the client does not trust us, or speaks no TLS."""
    try:
        async with asyncio.timeout(seconds):
            return await TLSStream.wrap(stream, server_side=True, ssl_context=context, standard_compatible=False)
    except (TimeoutError, *GONE) as error:
        raise CutError("no TLS came about") from error
