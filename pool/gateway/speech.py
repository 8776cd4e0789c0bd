"""How an answer is told to a client: as the chat that it is, byte for byte, or in the words of the Responses API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Protocol

from pool.gateway.replies import dumps
from pool.gateway.responses_out import Answer
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


class AsResponse:
    """As OpenAI's Responses API tells it."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def whole(self, exchange: Exchange, body: bytes) -> None:
        """One object."""
        for _ in self._answer.take(json.loads(body)):
            pass
        for _ in self._answer.end():
            pass
        await exchange.respond(200, dumps(self._answer.whole()))

    async def stream(self, exchange: Exchange, events: AsyncIterator[bytes]) -> None:
        """Its own events, made of the chat's."""
        exchange.torn = self._answer.fail
        await exchange.stream()
        await exchange.write(b"".join(self._answer.begin()))
        async for event in events:
            if event.startswith(b":"):  # a sign of life
                await exchange.write(event)
            elif event.startswith(b"data: {") and (told := b"".join(self._answer.take(json.loads(event[6:])))):
                await exchange.write(told)
        await exchange.end(b"".join(self._answer.end()))
