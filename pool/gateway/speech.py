"""How an answer is told to a client: as the chat that it is, byte for byte, or in the words of another API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Protocol

from pool.gateway.replies import Refusal, dumps
from pool.gateway.web import Exchange


class Speech(Protocol):
    """Tells one answer."""

    async def whole(self, exchange: Exchange, body: bytes) -> None:
        """An answer that came in one piece."""

    async def stream(self, exchange: Exchange, events: AsyncIterator[bytes]) -> None:
        """An answer that comes as server-sent events; what ``events`` raises is passed on."""


class AsItIs:
    """Bytes go through unread, each event as soon as it is there."""

    async def whole(self, exchange: Exchange, body: bytes) -> None:
        """The body as it is."""
        await exchange.respond(200, body)

    async def stream(self, exchange: Exchange, events: AsyncIterator[bytes]) -> None:
        """The events as they are."""
        await exchange.stream()
        async for event in events:
            await exchange.write(event)
        await exchange.end()


class Telling(Protocol):
    """An answer in the words of another API: it grows by a chat's chunks, and each step gives the events to send."""

    def begin(self) -> Iterator[bytes]:
        """It exists, with nothing in it."""

    def take(self, chunk: Mapping[str, Any]) -> Iterator[bytes]:
        """One chunk, or a whole chat."""

    def alive(self, comment: bytes) -> bytes:
        """A sign of life, where the chat had a comment."""

    def end(self) -> Iterator[bytes]:
        """It is whole."""

    def fail(self, refusal: Refusal) -> bytes:
        """It broke off."""

    def whole(self) -> dict[str, Any]:
        """The object, once it has ended."""


class Retold:
    """As another API tells it: OpenAI's Responses or Anthropic's Messages."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling

    async def whole(self, exchange: Exchange, body: bytes) -> None:
        """One object."""
        for _ in (*self._telling.take(json.loads(body)), *self._telling.end()):
            pass
        await exchange.respond(200, dumps(self._telling.whole()))

    async def stream(self, exchange: Exchange, events: AsyncIterator[bytes]) -> None:
        """Its own events, made of the chat's."""
        exchange.torn = self._telling.fail
        await exchange.stream()
        await exchange.write(b"".join(self._telling.begin()))
        async for event in events:
            if event.startswith(b":"):
                await exchange.write(self._telling.alive(event))
            elif event.startswith(b"data: {") and (told := b"".join(self._telling.take(json.loads(event[6:])))):
                await exchange.write(told)
        await exchange.end(b"".join(self._telling.end()))
