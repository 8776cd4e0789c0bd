"""One answer on its way to a caller of the gateway: begun, watched, gone on with elsewhere where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from pool.errors import PermanentError, PoolError, TornError, TransientError
from pool.lease import Lease
from pool.member import Clock, Member
from pool.relay import Piece, Relay
from pool.resume import can, continued, safe, spliced
from pool.sender import Sender
from pool.trip import Started, Trip
from pool.types import Choice, Usage
from pool.wire.assembly import assembled
from pool.wire.capability import Record
from pool.wire.fields import ceiling
from pool.wire.gate import gated
from pool.wire.passage import Passage, mark_cut, wants_stream, written
from pool.wire.recast import Whole, pieces_of

JSON = dict[str, Any]
SILENCE = 4096  # pieces without a word before the first that says something; keep-alive comments are such
CHARACTERS = 4  # of a text that are taken for one token
CEILINGS = ("max_tokens", "max_completion_tokens")


class Live:
    """A relay whose first piece of meaning, or whose whole body, is there.

    With ``stream`` it gives events and without a body, whichever of these the server gave.
    """

    def __init__(self, relay: Relay, heard: Callable[[], None], *, stream: bool) -> None:
        self.relay = relay
        self._stream = stream
        self.head: list[Piece] = []
        self.data = b""
        self.usage: Usage | None = None
        self._heard = heard
        self._pieces = relay.pieces()

    async def begin(self) -> None:
        """Wait for the first piece of meaning. Raises PoolError, classed, where none comes."""
        if not self.relay.streamed:
            value = self._take(await self.relay.json())
            self.head = pieces_of(value) if self._stream else []
        elif self._stream:
            await self._listen()
        else:
            await self._gather()

    async def _listen(self) -> None:
        async for piece in self._pieces:
            self.head.append(piece)
            if self.relay.said:
                self._heard()
                return
            if len(self.head) > SILENCE:
                raise TransientError(f"endpoint {self.relay.where}: {SILENCE} pieces of an answer that say nothing")

    async def _gather(self) -> None:
        """A stream that nobody asked for: hear it to its end."""
        whole = Whole()
        async for _, piece in self._pieces:
            if piece is not None:
                whole.add(piece)
                self._heard()
        body = whole.body
        mark_cut(body, self.relay.assembly)
        self.relay.assembly.check()
        self.usage = self.relay.assembly.usage or Usage()
        self.data = written(body)[len(b"data: ") : -2]

    async def pieces(self) -> AsyncIterator[Piece]:
        """All pieces. Raises TornError where they break off."""
        for piece in self.head:
            yield piece
        if not self.relay.streamed:
            return
        async for piece in self._pieces:
            if piece[1] is not None:
                self._heard()
            yield piece

    async def aclose(self) -> None:
        """Let go; aborts what has not ended."""
        self._heard = _unheard  # it knows the whole request, which knows this: only the collector would free them
        await self._pieces.aclose()  # type: ignore[attr-defined]  # an async generator by its nature
        await self.relay.aclose()

    def _take(self, value: object) -> JSON:
        assembly = assembled(value)
        assembly.check()
        assert isinstance(value, dict)  # noqa: S101  assembled() refuses everything else
        self.usage = assembly.usage or Usage()
        if all(part.get("index") == number for number, part in enumerate(value["choices"])):
            self.relay.assembly = assembly
        else:
            self.relay.assembly.add(value)
        changed = mark_cut(value, self.relay.assembly)
        self.data = written(value)[len(b"data: ") : -2] if changed else self.relay.data
        return value


class Relayed:
    """Iterate over it for the events of a stream, as bytes, or await `body` where the caller asked for none.

    ``usage`` is known after the end. Made by `Pool.relay`, which closes it.
    """

    def __init__(
        self,
        sender: Sender,
        trip: Trip,
        call: tuple[str, JSON, Mapping[str, str]],
        clock: Clock,
        ended: Callable[[Member, Usage], None],
    ) -> None:
        self.usage: Usage | None = None
        self._sender = sender
        self._trip = trip
        self._path, self._body, headers = call
        self._headers = {**headers, "X-Session-ID": trip.need.session}
        self._clock = clock
        self._ended = ended
        self._passage = Passage(self._body)
        self._partial = ""
        self._tokens = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Handle | None = None
        self._look: asyncio.Task[None] | None = None
        self._started: Started[Live] | None = None
        self._model = ""

    async def open(self) -> None:
        """Begin. Raises PoolError, classed, while nothing reached the caller."""
        self._started = await self._sender.begin(self._trip, self._start)

    @property
    def status(self) -> int:
        """The server's own status."""
        return self._now.value.relay.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The server's own headers, in small letters."""
        return self._now.value.relay.headers

    @property
    def streamed(self) -> bool:
        """Whether the answer comes as a stream: as it was asked for."""
        return wants_stream(self._body)

    @property
    def endpoint(self) -> str:
        """Who answers now."""
        return self._now.endpoint

    @property
    def tier(self) -> str:
        """The tier that answers."""
        return self._now.member.config.tier

    @property
    def model(self) -> str:
        """The model as the endpoint calls it."""
        return self._model

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What the endpoint answered, once that is whole. Raises TransientError before."""
        return self._now.value.relay.assembly.done()[0]

    @property
    def attempts(self) -> int:
        """Tries so far."""
        return self._trip.attempts

    @property
    def spoken(self) -> int:
        """About how many tokens were heard so far: a piece may hold many of them."""
        heard = 0 if self._started is None else self._started.value.relay.assembly.characters // CHARACTERS
        return max(self._tokens, heard)

    @property
    def gpus(self) -> float:
        """Of the endpoint that answers now."""
        return self._now.member.config.gpus

    @property
    def waited(self) -> float:
        """Seconds in our own queue before the last try."""
        return self._now.lease.waited

    async def body(self) -> bytes:
        """The body of an answer that is no stream.

        What is learnt from it takes longer than to pass it on: that is done in the loop's next round, or on closing.
        """
        live = self._now.value
        self.usage = live.usage
        self._ending = asyncio.get_running_loop().call_soon(self._finish, live.usage)
        return live.data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The events, each whole with its blank line. Raises TornError where they break off for good."""
        while True:
            flow = self._flow()
            try:
                async with aclosing(flow):  # type: ignore[type-var]  # an async generator by its nature
                    async for data in flow:
                        yield data
            except TornError as error:
                await self._go_on(error)
            else:
                return

    async def aclose(self) -> None:
        """Give the place back; aborts what has not ended."""
        self._rest()
        if self._ending is not None:
            self._ending.cancel()
            self._finish(self.usage)
        if self._started is not None:
            await self._started.aclose()

    @property
    def _now(self) -> Started[Live]:
        if self._started is None:
            raise RuntimeError("an answer is read after it was opened")
        return self._started

    async def _flow(self) -> AsyncIterator[bytes]:
        live = self._now.value
        self._watch()
        async for event, piece in live.pieces():
            if event.sort == "done":  # all is known: let the place go before the caller takes the last event
                self._rest()
                self._finish(live.usage or live.relay.assembly.usage)
            if data := self._passage.out(event, piece, live.relay.assembly):
                yield data

    async def _start(self, member: Member, lease: Lease) -> Live:
        record = _record(member)
        if self._partial and not (record.model == self._model and can(record.kind, self._body)):
            raise PermanentError(f"endpoint {member.name}: it cannot go on with an answer that another one began")
        self._model = record.model
        headers = {**self._headers, "X-Request-Id": f"{self._trip.need.request}-{self._trip.attempts}"}
        relay = await member.endpoint.relay(self._path, self._for(record), headers)
        watch = self._trip.watch

        def heard() -> None:
            member.moved()
            watch.heard(self._clock())
            if not self._tokens:
                lease.first_token()
            self._tokens += 1
            lease.grew(1)

        live = Live(relay, heard, stream=self.streamed)
        try:
            await live.begin()
        except BaseException:
            await live.aclose()
            raise
        return live

    def _for(self, record: Record) -> JSON:
        """The body as this endpoint is sent it."""
        body = continued(self._body, self._partial, self._tokens) if self._partial else dict(self._body)
        if body is None:
            raise PermanentError("too little is left of the answer to go on with it")
        body["model"] = self._trip.need.model or record.model
        if wants_stream(body):
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        for name in CEILINGS:
            if isinstance(most := body.get(name), int):
                body[name] = ceiling(most, record.window)
        return gated(body, record)

    async def _go_on(self, error: TornError) -> None:
        """Have another endpoint go on where this one broke off. Raises the error where that is not safe."""
        self._rest()
        started, trip = self._now, self._trip
        blamed = self._sender.blame(trip, started.member, started.visit, error)
        text = started.value.relay.assembly.text
        await started.aclose()
        partial = spliced(self._partial, text) if self._partial else text
        given_up = blamed is not error or not error.partial
        if given_up or not safe(self._body, plain=True) or not self._sender.may_retry(trip):
            raise TornError(str(error), partial) from error
        self._partial = partial
        self._passage.joined(partial, self._tokens)
        trip.tried |= {m.name for m in self._sender.members(trip.need.tier) if not can(_record(m).kind, self._body)}
        try:
            self._started = await self._sender.begin(trip, self._start)
        except PoolError as failed:
            raise TornError(f"{error}; nobody could go on with it: {failed}", partial) from failed

    def _finish(self, usage: Usage | None) -> None:
        told = usage or Usage(prompt_tokens=self._trip.need.prompt.tokens, completion_tokens=self._tokens)
        self.usage, self._ending = usage, None
        assembly = self._now.value.relay.assembly
        self._now.lease.finish(told, self._trip.called(assembly.tools, cut=assembly.cut))
        if usage is not None:
            self._ended(self._now.member, usage)

    def _watch(self) -> None:
        """Look again when the patience with this answer would be over, or its deadline is."""
        started, now = self._now, self._clock()
        left = started.watch.left(now, now - started.member.still_for)
        late = self._trip.until - now
        if late <= 0:
            started.value.relay.give_up("no whole answer within the deadline")
        elif left > 0:
            self._timer = asyncio.get_running_loop().call_later(min(left, late), self._watch)
        else:
            self._look = asyncio.create_task(self._look_again(started))

    async def _look_again(self, started: Started[Live]) -> None:
        """What was scraped last may be older than the patience."""
        await started.member.probe()
        now = self._clock()
        if started.watch.left(now, now - started.member.still_for) > 0:
            self._watch()
        else:
            started.value.relay.give_up(started.watch.verdict)

    def _rest(self) -> None:
        for pending in (self._timer, self._look):
            if pending is not None:
                pending.cancel()
        self._timer = self._look = None


def _unheard() -> None:
    """Nobody listens any more."""


def _record(member: Member) -> Record:
    if member.record is None:
        raise PermanentError(f"endpoint {member.name} was not discovered yet")
    return member.record
