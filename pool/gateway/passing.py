"""Sends a job to a plain tier, or to a real model, and relays the pool's answer as it comes."""

from __future__ import annotations

from collections.abc import Callable

from pool.gateway.job import Job, tell
from pool.gateway.service import Service
from pool.gateway.web import Exchange
from pool.relayed import Relayed
from pool.router import Pool
from pool.trip import FORECAST, Need

Told = Callable[[Relayed], None]


def need_of(pool: Pool, job: Job, tier: str, model: str | None) -> Need:
    """What the pool is asked for."""
    asked, frame = job.asked, job.frame
    return Need(
        tier=tier,
        session=frame.session,
        prompt=pool.keys.body(tier or model or "", frame.session, asked.body),
        request=job.number,
        program=frame.program,
        request_class=frame.request_class,
        deadline=frame.deadline,
        output_tokens=min(FORECAST, asked.ceiling or FORECAST),
        ceiling=asked.ceiling,
        needs=asked.needs,
        model=model,
        cache_salt=salt if isinstance(salt := asked.body.get("cache_salt"), str) else None,
        whole=not asked.stream,
        caller=job.caller.name,
    )


async def send(service: Service, exchange: Exchange, job: Job, need: Need, why: str = "") -> Relayed:
    """Have the pool answer and pass it on. Raises PoolError; once the exchange has started the answer is torn."""
    async with service.pool.relay(need, job.asked.path, job.asked.body, {}) as relayed:
        job.endpoint, job.model, job.attempts = relayed.endpoint, relayed.model, relayed.attempts
        job.first_at, job.waited, job.gpus = service.clock(), relayed.waited, relayed.gpus
        tell(
            exchange,
            (
                ("endpoint", relayed.endpoint),
                ("tier", relayed.tier),
                ("model", relayed.model),
                ("queue-ms", f"{relayed.waited * 1000:.1f}"),
                ("attempts", str(relayed.attempts)),
            ),
        )
        if why:
            tell(exchange, (("why", why),))
        try:
            if relayed.streamed:
                await job.speech.stream(exchange, aiter(relayed))
            else:
                await job.speech.whole(exchange, await relayed.body())
        finally:
            job.spoken += relayed.spoken
        job.status, job.usage = "200", relayed.usage
    return relayed
