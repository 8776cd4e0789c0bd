"""Names that are no tier: virtual models are answered by the pool itself, `auto` by the tier its policy chooses."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from pool.config import AUTO
from pool.errors import PoolError
from pool.gateway.aloud import Aloud, Ledger
from pool.gateway.job import Job, tell
from pool.gateway.passing import need_of, send
from pool.gateway.reading import CHAT
from pool.gateway.replies import dumps, wrong
from pool.gateway.service import Service
from pool.gateway.virtual import chat_object, chat_request, put_messages
from pool.gateway.web import Exchange
from pool.types import ChatRequest, Reply, Usage
from pool.wire.fields import merge


async def special(service: Service, exchange: Exchange, job: Job) -> None:
    """Answer a job for such a name. Raises PoolError, RefusedError."""
    if job.asked.path != CHAT:
        raise wrong(f"{job.asked.model} answers chats only; ask a tier", "model", "unsupported")
    await (_chosen if job.asked.model == AUTO else _made)(service, exchange, job)


async def _chosen(service: Service, exchange: Exchange, job: Job) -> None:
    """Let the policy choose a tier and pass the body on as it is; choose again while nothing reached the client."""
    settled = service.tiers.settle(chat_request(job.asked.body, job.frame, strict=False))
    while True:
        request = settled.request
        if settled.shortened and isinstance(request, ChatRequest):
            job.asked = job.asked.with_body(put_messages(job.asked.body, request))
        if request.logprobs:
            job.asked = job.asked.with_body(job.asked.body | {"logprobs": True})
        try:
            relayed = await send(service, exchange, job, need_of(service.pool, job, request.tier, None), settled.why)
        except PoolError as error:
            again = None if exchange.started else service.tiers.failed(settled, error)
            if again is None:
                raise
            settled = again
        else:
            break
    reply = Reply(
        choices=relayed.choices,
        usage=relayed.usage or Usage(),
        endpoint=relayed.endpoint,
        model=relayed.model,
        seconds=service.clock() - job.began,
        attempts=relayed.attempts,
        tier=relayed.tier,
    )
    service.tiers.learn(settled, reply)


async def _made(service: Service, exchange: Exchange, job: Job) -> None:
    """A virtual model's answer: whole, or heard while its last part is written. What its parts cost is counted however
    it ends."""
    body = {name: value for name, value in job.asked.body.items() if name not in job.asked.hints}
    request = chat_request(body, job.frame, strict=True)
    if job.asked.stream and (plain := service.tiers.straight(request)):
        await _passed_on(service, exchange, job, *plain)
        return
    heard = Aloud(service, job) if job.asked.stream else Ledger(service)
    try:
        await (
            _streamed(exchange, job, heard, request)
            if isinstance(heard, Aloud)
            else _whole(exchange, job, heard, request)
        )
        job.status = "200"
        if reply := heard.reply:
            service.remember(job.number, f"200, made for {job.asked.model} and told by {reply.endpoint}: {reply.why}")
    finally:
        if reply := heard.reply:
            job.endpoint, job.model = reply.endpoint, reply.model
            job.attempts, job.usage, job.report = reply.attempts, reply.usage, reply.report
        elif heard.parts:
            job.usage = merge(heard.parts)


async def _passed_on(service: Service, exchange: Exchange, job: Job, tier: str, why: str) -> None:
    """A request that is nothing for this kind of model goes to a plain tier as it is."""
    await send(service, exchange, job, need_of(service.pool, job, tier, None), why)


async def _whole(exchange: Exchange, job: Job, ledger: Ledger, request: ChatRequest) -> None:
    reply = await ledger.made(request)
    job.first_at = ledger.service.clock()
    tell(exchange, ledger.told)
    await job.speech.whole(exchange, dumps(chat_object(reply, f"chatcmpl-{job.number}", int(time.time()))))


async def _streamed(exchange: Exchange, job: Job, aloud: Aloud, request: ChatRequest) -> None:
    """What goes wrong before the first sign of life is an answer with a status of its own."""
    async with aloud.performing(request) as events:
        first = await anext(events)
        tell(exchange, aloud.told)
        await job.speech.stream(exchange, _after(first, events))


async def _after(first: bytes, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for event in events:
        yield event
