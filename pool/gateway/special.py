"""Names that are no tier: virtual models are answered by the pool itself, `auto` by the tier its policy chooses."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable

from pool.config import AUTO
from pool.errors import PoolError
from pool.gateway.job import Job, tell
from pool.gateway.passing import need_of, send
from pool.gateway.reading import CHAT
from pool.gateway.replies import dumps, wrong
from pool.gateway.service import Service
from pool.gateway.virtual import chat_events, chat_object, chat_request, put_messages
from pool.gateway.web import Exchange
from pool.types import ChatRequest, Reply, Usage


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
    """A virtual model's answer, which is whole before its first word is said."""
    reply = await service.tiers.chat(chat_request(job.asked.body, job.frame, strict=True))
    job.endpoint, job.attempts, job.first_at = reply.endpoint, reply.attempts, service.clock()
    job.usage, job.status = reply.usage, "200"
    tell(exchange, (("endpoint", reply.endpoint), ("tier", reply.tier), ("model", reply.model), ("why", reply.why)))
    number, created = f"chatcmpl-{job.number}", int(time.time())
    if job.asked.stream:
        await job.speech.stream(exchange, _each(chat_events(reply, number, created, usage=job.asked.usage)))
    else:
        await job.speech.whole(exchange, dumps(chat_object(reply, number, created)))


async def _each(events: Iterable[bytes]) -> AsyncIterator[bytes]:
    for event in events:
        yield event
