"""One generation: who asks, for what, within which budget; then the pool's answer relayed as it comes.

A stream that breaks after its first byte ends with an error event, never as if it were whole. A client that hangs up
takes its request out of the model server at once, and out of every count.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

from pool.errors import PoolError
from pool.gateway.identity import identify
from pool.gateway.keys import Caller
from pool.gateway.reading import CHAT, Asked, Path, asked_of, class_of, deadline_of, parsed, read
from pool.gateway.replies import Refusal, RefusedError, dumps, refusal_of, wrong
from pool.gateway.responses_in import chat_body
from pool.gateway.responses_out import Answer
from pool.gateway.service import Service
from pool.gateway.speech import AsItIs, AsResponse, Speech
from pool.gateway.virtual import Frame, chat_events, chat_object, chat_request
from pool.gateway.web import Exchange, GoneError
from pool.relayed import Relayed
from pool.router import Pool
from pool.trip import FORECAST, Need
from pool.types import RequestClass, Usage
from pool.wire.gate import ordered

Settle = Callable[[int], None]
GONE = "499"  # the status under which a client that hung up is counted


@dataclass(slots=True)
class Job:
    """One request on its way, and what is known of its answer so far. ``began`` is on the service's clock."""

    asked: Asked
    caller: Caller
    frame: Frame
    number: str
    began: float
    speech: Speech
    endpoint: str = "none"
    status: str = "500"
    first_at: float | None = None
    waited: float = 0.0
    attempts: int = 1
    usage: Usage | None = None

    @property
    def request_class(self) -> RequestClass:
        """Its class."""
        return self.frame.request_class


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
    job = job_of(service, exchange, caller, asked_of(CHAT, chat_body(body), len(raw)))
    job.speech = AsResponse(Answer(job.number.removeprefix("req-"), int(time.time()), body))
    await answer(service, exchange, job)


async def _body(service: Service, exchange: Exchange) -> bytes:
    return await exchange.body(service.config.max_body, service.config.body_timeout)


def caller_of(service: Service, exchange: Exchange) -> Caller:
    """Who calls. Raises RefusedError (401)."""
    return service.keys.caller(exchange.headers.get("authorization"), exchange.headers.get("x-api-key"))


def job_of(service: Service, exchange: Exchange, caller: Caller, asked: Asked) -> Job:
    """The job that a request makes."""
    identity = identify(exchange.headers, asked.body, "" if caller.name == "anybody" else caller.name)
    body, wanted = ordered(asked.body)
    deadline = deadline_of(exchange.headers, service.config.deadline, stream=asked.stream)
    frame = Frame(
        tier=asked.model,
        session=identity.session,
        program=service.trees.root(identity),
        request_class=caller.lowered(class_of(exchange.headers) or wanted),
        deadline=deadline,
    )
    number = f"req-{uuid.uuid4().hex}"
    job = Job(asked.with_body(dict(body)), caller, frame, number, service.clock(), AsItIs())
    exchange.extra.append((b"x-request-id", job.number.encode()))
    return job


async def answer(service: Service, exchange: Exchange, job: Job) -> None:
    """Answer within the caller's budget, for as long as the client is there; count how it ended."""
    metrics = service.metrics
    running = metrics.in_flight.labels(job.request_class)
    with job.caller.request(job.asked.tokens) as settle:
        running.inc()
        try:
            if not await exchange.while_there(relay(service, exchange, job)):
                job.status = GONE
        except GoneError:
            job.status = GONE
        except PoolError as error:
            await refuse(exchange, job, refusal_of(error))
        except RefusedError as error:
            await refuse(exchange, job, error.refusal)
        finally:
            running.dec()
            _count(service, job, settle)


async def refuse(exchange: Exchange, job: Job, refusal: Refusal) -> None:
    """Tell the client. The pool has spent the one budget of retries, so the client is asked to add none of its own."""
    job.status = "torn" if exchange.started else str(refusal.status)
    if refusal.status >= 500 and refusal.retry_after is None:
        exchange.extra.append((b"x-should-retry", b"false"))
    await exchange.refuse(refusal)


async def relay(service: Service, exchange: Exchange, job: Job) -> None:
    """The pool's answer as it comes, from the tier or the real model that the request names."""
    wanted = service.target(job.asked.model)
    if wanted.kind == "virtual":
        await _settled(service, exchange, job)
        return
    await _relay(service, exchange, job, need_of(service.pool, job, wanted.tier, wanted.model))


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
    )


async def _relay(service: Service, exchange: Exchange, job: Job, need: Need) -> None:
    async with service.pool.relay(need, job.asked.path, job.asked.body, {}) as relayed:
        _committed(service, exchange, job, relayed)
        if relayed.streamed:
            await job.speech.stream(exchange, aiter(relayed))
        else:
            await job.speech.whole(exchange, await relayed.body())
        job.status, job.usage = "200", relayed.usage


def _committed(service: Service, exchange: Exchange, job: Job, relayed: Relayed) -> None:
    """The first piece is there: say whose it is."""
    job.endpoint, job.attempts = relayed.endpoint, relayed.attempts
    job.first_at, job.waited = service.clock(), relayed.waited
    exchange.extra += [
        (b"x-swarm-endpoint", clean(relayed.endpoint)),
        (b"x-swarm-tier", clean(relayed.tier)),
        (b"x-swarm-model", clean(relayed.model)),
        (b"x-swarm-queue-ms", b"%.1f" % (relayed.waited * 1000)),
        (b"x-swarm-attempts", b"%d" % relayed.attempts),
    ]


async def _settled(service: Service, exchange: Exchange, job: Job) -> None:
    """An answer by a virtual model, or by the tier that the policy of `auto` chooses."""
    if job.asked.path != CHAT:
        raise wrong(f"{job.asked.model} answers chats only; ask a tier", "model", "unsupported")
    request = chat_request(job.asked.body, job.frame, strict=True)
    reply = await service.tiers.chat(request)
    job.endpoint, job.attempts, job.first_at = reply.endpoint, reply.attempts, service.clock()
    job.usage, job.status = reply.usage, "200"
    exchange.extra += [
        (b"x-swarm-endpoint", clean(reply.endpoint)),
        (b"x-swarm-tier", clean(reply.tier)),
        (b"x-swarm-model", clean(reply.model)),
        (b"x-swarm-why", clean(reply.why)),
    ]
    number, created = f"chatcmpl-{job.number}", int(time.time())
    if job.asked.stream:
        await job.speech.stream(exchange, _each(chat_events(reply, number, created, usage=True)))
    else:
        await job.speech.whole(exchange, dumps(chat_object(reply, number, created)))


async def _each(events: Iterable[bytes]) -> AsyncIterator[bytes]:
    for event in events:
        yield event


def clean(text: str) -> bytes:
    """A header's value: printable ASCII of bounded length."""
    return "".join(c if " " <= c <= "~" else "?" for c in text[:200]).encode("ascii")


def _count(service: Service, job: Job, settle: Settle) -> None:
    metrics, labels = service.metrics, (job.endpoint, job.request_class)
    if job.status == GONE:
        metrics.aborted.labels(job.request_class).inc()
    metrics.requests.labels(*labels, job.caller.name, job.status).inc()
    metrics.seconds.labels(*labels).observe(service.clock() - job.began)
    if job.attempts > 1:
        metrics.retries.labels(*labels).inc(job.attempts - 1)
    if job.first_at is not None:
        metrics.ttft.labels(*labels).observe(job.first_at - job.began)
        metrics.waits.labels(*labels).observe(job.waited)
    elif job.status != GONE:
        settle(0)  # nothing was generated
    if job.usage is not None:
        settle(job.usage.prompt_tokens + job.usage.completion_tokens)
        metrics.spent(job.caller.name, job.usage)
