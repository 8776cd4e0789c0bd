"""One generation: who asks, for what, within which budget; then the pool's answer relayed as it comes.

A stream that breaks after its first byte ends with an error event, never as if it were whole. A client that hangs up
takes its request out of the model server at once, and out of every count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from pool.errors import PoolError
from pool.gateway.bad_news import told
from pool.gateway.bound import Answered
from pool.gateway.job import GONE, Job, job_of
from pool.gateway.keys import Caller
from pool.gateway.passing import need_of, send
from pool.gateway.reading import CHAT, SUGGESTED, Path, asked_of, read
from pool.gateway.replies import Refusal, RefusedError
from pool.gateway.responses_in import chat_body
from pool.gateway.responses_out import Answer
from pool.gateway.service import Service
from pool.gateway.special import special
from pool.gateway.speech import Retold
from pool.gateway.values import check_fields, parsed
from pool.gateway.web import Exchange, GoneError

UNHEARD = 30.0  # tokens a second that an answer is taken to be written at while nothing of it is heard
Settle = Callable[[int], None]


async def generate(service: Service, exchange: Exchange, path: Path) -> None:
    """Answer one request for text. Raises RefusedError for what is wrong before the pool is asked, GoneError."""
    caller = caller_of(service, exchange)
    asked = read(path, await _body(service, exchange))
    await answer(service, exchange, job_of(service, exchange, caller, asked))


async def respond(service: Service, exchange: Exchange) -> None:
    """Answer one request of the Responses API. Raises as `generate` does."""
    caller = caller_of(service, exchange)
    raw = await _body(service, exchange)
    body = parsed(raw)
    check_fields(body)
    job = job_of(service, exchange, caller, asked_of(CHAT, chat_body(body), len(raw), SUGGESTED))
    job.speech = Retold(Answer(job.number.removeprefix("req-"), int(time.time()), body))
    await answer(service, exchange, job)


async def _body(service: Service, exchange: Exchange) -> bytes:
    return await exchange.body(service.config.max_body, service.config.body_timeout)


def caller_of(service: Service, exchange: Exchange) -> Caller:
    """Who calls. Raises RefusedError (401, and 429 for one with too many requests under way)."""
    caller = service.keys.caller(exchange.headers.get("authorization"), exchange.headers.get("x-api-key"))
    exchange.belongs(caller.name)
    return caller


async def answer(service: Service, exchange: Exchange, job: Job) -> None:
    """Answer within the caller's budget, for as long as the client is there; count how it ended."""
    metrics = service.metrics
    running = metrics.running[job.request_class]
    with job.caller.request(job.asked.tokens) as settle:
        running.inc()
        try:
            if not await exchange.while_there(relay(service, exchange, job)):
                job.status = GONE
        except GoneError:
            job.status = GONE
        except PoolError as error:
            await refuse(service, exchange, job, told(service, error, job.number))
        except RefusedError as error:
            await refuse(service, exchange, job, error.refusal)
        finally:
            running.dec()
            _count(service, job, settle)


async def refuse(service: Service, exchange: Exchange, job: Job, refusal: Refusal) -> None:
    """Tell the client. The pool has spent the one budget of retries, so the client is asked to add none of its own."""
    job.status = "torn" if exchange.started else str(refusal.status)
    job.refusal = refusal
    if refusal.status >= 500 and refusal.retry_after is None:
        exchange.extra.append((b"x-should-retry", b"false"))
    service.remember(job.number, f"{job.status} {refusal.message}")
    await exchange.refuse(refusal)


async def relay(service: Service, exchange: Exchange, job: Job) -> None:
    """The answer of whatever the request's ``model`` names. Raises PoolError, RefusedError."""
    wanted = service.target(job.asked.model)
    if wanted.kind == "virtual":
        await special(service, exchange, job)
    else:
        await send(service, exchange, job, need_of(service.pool, job, wanted.tier, wanted.model))


def _begun(service: Service, job: Job) -> int:
    """Tokens of an answer that nobody counted: whoever hangs up early pays for what was written until then."""
    asked = job.asked
    if job.first_at is not None:  # broken off before the server counted
        return max(asked.tokens, asked.prompt + job.spoken)
    placed = service.pool.explain(job.number) if job.status == GONE else None
    if placed is None or placed.endpoint is None:  # refused, or it never left the queue
        return 0
    written = int((service.clock() - placed.at) * UNHEARD)
    return max(asked.tokens, asked.prompt + min(written, asked.ceiling or written))


def _count(service: Service, job: Job, settle: Settle) -> None:
    metrics, name = service.metrics, job.request_class
    series = metrics.of(job.endpoint, name)
    metrics.counted(job.endpoint, name, job.caller.name, job.status)
    series.seconds.observe(service.clock() - job.began)
    if job.status == GONE:
        metrics.aborted.labels(name).inc()
    if job.attempts > 1:
        series.retries.inc(job.attempts - 1)
    if job.first_at is not None:
        series.ttft.observe(job.first_at - job.began)
        series.waits.observe(job.waited)
    usage = job.usage
    tokens = _begun(service, job) if usage is None else usage.prompt_tokens + usage.completion_tokens
    settle(tokens)
    if usage is not None:
        metrics.spent(job.caller.name, usage)
    if (bound := job.caller.bound) is not None:
        seconds = service.clock() - job.began
        why = (job.refusal.message, job.refusal.param or "") if job.refusal else ("", "")
        ended = Answered(job.frame.tier, job.endpoint, job.model, job.status, tokens, usage, seconds, *why)
        heard = None if job.first_at is None else max(0.0, job.first_at - job.began - job.waited)
        parts = job.report.parts if job.report else ()
        gpu = sum(part.gpu_seconds for part in parts) or max(0.0, seconds - job.waited) * job.gpus
        times = replace(ended, waited=job.waited, prefill=heard, gpu_seconds=gpu, report=job.report)
        bound.account.answered(times)
