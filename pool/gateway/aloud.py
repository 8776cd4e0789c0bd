"""A virtual model's answer for a client who reads a stream: heard while its last part is written, with signs of life
before that. What might have to be taken back is held until it is judged: tool calls, text that must fit a schema."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from pool.gateway.job import Job
from pool.gateway.reading import CHAT
from pool.gateway.service import Service
from pool.gateway.veil import hidden
from pool.gateway.virtual import Chunks
from pool.relayed import Relayed
from pool.tiers.beneath import Quietly
from pool.trip import Need
from pool.types import ChatRequest, Reply, Served, Usage
from pool.wire.arguments import judged
from pool.wire.fields import chat_body

AHEAD = 16  # events that may be ready before the client has read them
COMMENT = b": the parts of this answer are under way\n\n"
ANY = Served(kind="vllm", model="")  # the fields of the newest vLLM; each server is sent them as it knows them
JSON = dict[str, Any]
Told = tuple[tuple[str, str], ...]


class Ledger:
    """Hears what one answer costs (a `Listener` of the tiers), for a client who reads it whole. ``parts`` is what every
    part cost so far, ``reply`` the answer once it is there."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.heard = False
        self.parts: list[Usage] = []
        self.reply: Reply | None = None

    async def made(self, request: ChatRequest) -> Reply:
        """The virtual model's answer. Raises PoolError."""
        self.reply = await self.service.tiers.speak(request, self)
        return self.reply

    async def hear(self, request: ChatRequest, quietly: Quietly) -> Reply:
        """Have a plain tier answer. Raises PoolError."""
        return await quietly(request)

    def paid(self, usage: Usage) -> None:
        """A part is over and cost so much."""
        self.parts.append(usage)

    @property
    def told(self) -> Told:
        """What the head of the answer can say of who answers: nothing while drafts are under way."""
        reply = self.reply
        if reply is None:
            return ()
        return (("endpoint", reply.endpoint), ("tier", reply.tier), ("model", reply.model), ("why", reply.why))


class Aloud(Ledger):
    """Hears one answer while it is written, and makes its events."""

    def __init__(self, service: Service, job: Job) -> None:
        super().__init__(service)
        self._job = job
        self._speaker: Relayed | None = None
        self._said: set[str] = set()
        self._blank: list[tuple[JSON, Any]] = []
        self._ready: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(AHEAD)
        self._chunks = Chunks(f"chatcmpl-{job.number}", int(time.time()), job.asked.usage)

    @asynccontextmanager
    async def performing(self, request: ChatRequest) -> AsyncIterator[AsyncIterator[bytes]]:
        """Gives the events, and has them made for as long as the block runs: leaving it aborts all parts under way.

        Reading them raises PoolError where there is no answer, or where it broke off.
        """
        making = asyncio.create_task(self._make(request), name=f"virtual model {request.tier}")
        try:
            async with aclosing(self._events(self.service.config.comment_interval)) as events:
                yield events
        finally:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)

    async def hear(self, request: ChatRequest, quietly: Quietly) -> Reply:  # noqa: ARG002  nobody waits for it quietly
        """Have a plain tier answer, and say it as it comes. Raises PoolError."""
        pool, began = self.service.pool, self.service.clock()
        need = Need.of(request, pool.keys.chat(request.tier, request))
        async with pool.relay(need, CHAT, chat_body(request, ANY, 1) | _streamed(), {}) as relayed:
            try:
                async for event in relayed:
                    await self._take(event, relayed, request)
            except BaseException:  # what was written is paid for, whoever broke it off
                self.paid(Usage(prompt_tokens=need.prompt.tokens, completion_tokens=relayed.spoken))
                raise
        return Reply(
            choices=tuple(judged(choice, request.tools) for choice in relayed.choices),
            usage=relayed.usage or Usage(),
            endpoint=relayed.endpoint,
            model=relayed.model,
            seconds=self.service.clock() - began,
            attempts=relayed.attempts,
            tier=relayed.tier,
            request=need.request,
        )

    @property
    def told(self) -> Told:
        """As far as it is known when the first word is."""
        if self.reply or (who := self._speaker) is None:
            return super().told
        return (("endpoint", who.endpoint), ("tier", who.tier), ("model", who.model))

    async def _make(self, request: ChatRequest) -> None:
        try:
            reply = await self.made(request)
            for event in self._chunks.ending(reply, self._said, self._how(reply)):
                await self._ready.put(event)
            await self._ready.put(None)
        except Exception as error:  # noqa: BLE001  raised again by whoever reads the events
            await self._ready.put(error)

    async def _events(self, silence: float) -> AsyncGenerator[bytes, None]:
        """The events as they are made, a comment after each ``silence`` seconds without one."""
        while True:
            try:
                async with asyncio.timeout(silence):
                    event = await self._ready.get()
            except TimeoutError:
                yield COMMENT
                continue
            if isinstance(event, Exception):
                raise event
            if event is None:
                return
            yield event

    async def _take(self, event: bytes, relayed: Relayed, request: ChatRequest) -> None:
        """Say what may be said of one event of the server's."""
        if not event.startswith(b"data: {"):
            return
        for choice in json.loads(event[6:]).get("choices") or ():
            delta = _sayable(choice.get("delta") or {}, text=request.json_schema is None)
            if not delta:
                continue
            likely = choice.get("logprobs") if request.logprobs and "content" in delta else None
            if not self.heard and not delta.get("content", "-").strip():
                self._blank.append((delta, likely))  # by itself that is no answer, and another one might have to stand
                continue
            for piece, known in (*self._blank, (delta, likely)) if "content" in delta else ((delta, likely),):
                await self._say(relayed, piece, known)

    async def _say(self, relayed: Relayed, delta: JSON, logprobs: Any) -> None:
        if not self._said:
            self._speaker, self._job.first_at = relayed, self.service.clock()
            delta = {"role": "assistant", **delta}
        if "content" in delta:
            self.heard, self._blank = True, []
        self._said |= delta.keys()
        self._job.spoken += 1
        await self._ready.put(self._chunks.piece(relayed.model, delta, logprobs))

    def _how(self, reply: Reply) -> Mapping[str, Any]:
        """How an answer was made, for its last event. A client sees no address of a server in it."""
        report = reply.report.model_dump(mode="json") if reply.report else None
        urls = [one.url for one in self.service.pool.status()]
        for part in report["parts"] if report else ():
            part["failed"] = hidden(part["failed"], urls)
        who = {"endpoint": reply.endpoint, "tier": reply.tier, "model": reply.model}
        return who | {"why": reply.why, "report": report}


def _sayable(delta: Mapping[str, Any], *, text: bool) -> JSON:
    thought = delta.get("reasoning") or delta.get("reasoning_content")
    told = {"reasoning": thought, "content": delta.get("content") if text else None}
    return {name: value for name, value in told.items() if isinstance(value, str) and value}


def _streamed() -> JSON:
    return {"stream": True, "stream_options": {"include_usage": True}}
