"""One answer of a server as it comes: its pieces are judged on the way, its end is believed only when it is whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from pool.channel import Answering
from pool.errors import PoolError, TornError, TransientError
from pool.wire.assembly import Assembly
from pool.wire.faults import classify
from pool.wire.stream import Event

JSON = dict[str, Any]
LARGEST = 64 * 1024 * 1024  # bytes of a stream, comments included
AFTER = 1024  # pieces that may follow the end of every sample: a usage of each of them
ENDING = 10.0  # seconds that its terminator may take then
Piece = tuple[Event, JSON | None]


class Relay:
    """A 2xx answer. ``assembly`` holds what a stream said so far. Close it with `aclose`; that aborts what goes on."""

    def __init__(self, where: str, answering: Answering, *, ending: float = ENDING) -> None:
        self.where = where
        self.status = answering.status
        self.headers = answering.headers
        self.streamed = answering.streamed
        self.assembly = Assembly()
        self.said = False
        self.whole = False
        self.data = b""
        self._answering = answering
        self._given_up = ""
        self._patience = ending
        self._size = 0
        self._after = 0
        self._ending: asyncio.TimerHandle | None = None

    async def body(self) -> bytes:
        """The body of an answer that is no stream. Raises TransientError for one that broke off."""
        self.data = await self._answering.body()
        self.whole = True
        return self.data

    async def json(self) -> object:
        """The body as JSON. Raises as `body` does, the classed error for one that holds an error, and for no JSON."""
        data = await self.body()
        try:
            value: object = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise TransientError(f"endpoint {self.where}: its answer could not be read: {error}") from error
        if isinstance(value, dict) and value.get("error") and not value.get("choices"):
            raise self._in_band(value)
        return value

    async def events(self) -> AsyncIterator[Event]:
        """The events of a stream. Raises as `pieces` does."""
        async for event, _ in self.pieces():
            yield event

    async def pieces(self) -> AsyncIterator[Piece]:
        """The events of a stream with what they hold, None for comments and for the terminator.

        A stream is whole only with a finish reason of every sample and the terminator: neither an upstream that was cut
        (Portkey-AI/gateway#1797, vllm-project/vllm#52852, semantic-router#3063) nor `[DONE]` alone proves anything.
        Raises TornError for one that ends otherwise after something was said, before that the classed error.
        """
        try:
            async for event in self._answering.events():
                if event.sort == "done":
                    self._end()
                    yield event, None
                    return
                yield event, self._take(event)
        except TornError:
            raise
        except PoolError as error:
            raise (self._torn(self._given_up or str(error)) if self.said else error) from error
        raise self._torn("the answer broke off: the connection ended without a terminator")

    def give_up(self, told: str) -> None:
        """Abort it; whoever reads it is told why."""
        self._given_up = told
        self._answering.close()

    async def aclose(self) -> None:
        """Let go; aborts the request at the server when its answer has not ended."""
        self._end_of_wait()
        if self.whole:
            self._answering.finish()
        else:
            self._answering.close()

    def _take(self, event: Event) -> JSON | None:
        self._size += len(event.raw)
        if self._size > LARGEST:
            raise TransientError(f"endpoint {self.where}: an answer of more than {LARGEST} bytes")
        if event.sort == "comment":
            return None
        piece = event.json()
        if event.sort == "error" or (piece.get("error") and not piece.get("choices")):
            raise self._in_band(piece)
        self.said = self.assembly.add(piece) or self.said
        if self.assembly.ended:
            self._past()
        return piece

    def _past(self) -> None:
        """Once every sample has finished, a usage of each and the terminator may follow, and soon."""
        if not self.assembly.finished:
            return
        self._after += 1
        if self._after > AFTER:
            raise TransientError(f"endpoint {self.where}: an answer that goes on after its end")
        if self._ending is None:
            told = f"endpoint {self.where}: the answer ended, and its terminator did not come in {self._patience:g} s"
            self._ending = asyncio.get_running_loop().call_later(self._patience, self.give_up, told)

    def _end_of_wait(self) -> None:
        if self._ending is not None:
            self._ending.cancel()

    def _end(self) -> None:
        if not self.assembly.finished:
            raise self._torn("the answer broke off: its stream ended without a finish reason")
        self.whole = True

    def _torn(self, told: str) -> TornError:
        message = told if told.startswith("endpoint ") else f"endpoint {self.where}: {told}"
        return TornError(message, self.assembly.text if self.assembly.plain else "")

    def _in_band(self, body: JSON) -> PoolError:
        """The error inside an answer that began with 200."""
        inner = body.get("error", body)
        code = inner.get("code") if isinstance(inner, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        return classify(self.where, status, self._answering.hidden(json.dumps(body)), {})
