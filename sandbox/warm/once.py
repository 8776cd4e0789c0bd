"""A stream that can tell whether anyone has begun to read it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator


class Once:
    """Hands out a stream that can be read once. While ``touched`` is false it can still be given to someone else."""

    def __init__(self, stream: AsyncIterator[bytes] | None) -> None:
        self._stream = stream
        self.touched = False

    def pieces(self) -> AsyncIterator[bytes] | None:
        """The stream; None where there is none. Ending an unread one leaves it unread."""
        return None if self._stream is None else self._read(self._stream)

    async def _read(self, stream: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        self.touched = True
        try:
            async for piece in stream:
                yield piece
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
