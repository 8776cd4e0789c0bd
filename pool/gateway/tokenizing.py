"""Counts tokens for clients: vLLM's /tokenize and /detokenize, asked of any endpoint that has them.

It is a small question beside the queues: nothing is generated, so no place is taken and no token is charged; a key's
limit of requests holds, and a key whose tokens are spent waits here as well.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from pool.errors import PermanentError, PoolError, TransientError
from pool.gateway.bad_news import told as told_of
from pool.gateway.catalogue import Target, alive, served
from pool.gateway.forward import caller_of
from pool.gateway.job import GONE, tell
from pool.gateway.reading import class_of
from pool.gateway.replies import Refusal, RefusedError, dumps, wrong
from pool.gateway.service import Service
from pool.gateway.values import parsed
from pool.gateway.web import Exchange, GoneError
from pool.types import EndpointStatus
from pool.wire.tokens import (
    OddTokensError,
    asked_of_llamacpp,
    prompt_of_template,
    template_of,
    told_by_llamacpp,
    told_by_vllm,
)

JSON = dict[str, Any]
Asking = Callable[[JSON], JSON]
Telling = Callable[[JSON], JSON]
TOKENIZE = "/tokenize"
PATHS = (TOKENIZE, "/detokenize")
PATIENCE = 30.0  # seconds for one endpoint
TRIES = 3  # endpoints that are asked
BEYOND = ("_M_range_check", "out of range")  # what servers say of a token id that they do not have
MISSING = {404, 405, 501}  # what a server without the route says


async def answer(service: Service, exchange: Exchange) -> None:
    """Answer one such request and count it. Raises RefusedError, GoneError."""
    await counted(service, exchange, exchange.path.rstrip("/"))


async def counted(
    service: Service, exchange: Exchange, path: str = TOKENIZE, *, asking: Asking = dict, telling: Telling = dict
) -> None:
    """Put the question that ``asking`` makes of a body to a server's ``path``, and tell its answer as ``telling`` makes
    it. Raises as `answer` does."""
    caller = caller_of(service, exchange)
    body = asking(parsed(await exchange.body(service.config.max_body, service.config.body_timeout)))
    endpoints = _fit(service, body)
    name, status = "none", GONE
    request_class = caller.lowered(class_of(exchange.headers))
    with caller.request(0):
        try:
            name, status = endpoints[0].name, "200"
            if not await exchange.while_there(_passed_on(service, exchange, (path, body, telling), endpoints)):
                status = GONE
        except GoneError:
            status = GONE
        except RefusedError as error:
            status = str(error.refusal.status)
            raise
        finally:
            service.metrics.counted(name, request_class, caller.name, status)


def _fit(service: Service, body: JSON) -> list[EndpointStatus]:
    """The endpoints that may be asked, the least busy first. Raises RefusedError where there is none."""
    name = body.get("model")
    if not isinstance(name, str) or not name:
        raise wrong("say which model: a tier or a real one; GET /v1/models lists them", "model")
    wanted = service.target(name)
    if wanted.kind == "virtual":
        raise wrong(f"{name} has no tokenizer of its own; ask one of its tiers", "model", "unsupported")
    living = [one for one in alive(service.pool.status()) if _serves(one, wanted)]
    if not living:
        raise RefusedError(Refusal(503, f"no endpoint that serves {name!r} is up", "no_endpoint", retry_after=1.0))
    return sorted(living, key=lambda one: (one.kind == "other", one.state != "up", one.in_flight))[:TRIES]


def _serves(endpoint: EndpointStatus, wanted: Target) -> bool:
    return wanted.model in served(endpoint) if wanted.kind == "model" else endpoint.tier == wanted.tier


async def _passed_on(
    service: Service, exchange: Exchange, question: tuple[str, JSON, Telling], endpoints: list[EndpointStatus]
) -> None:
    (path, body, telling), without, last = question, list[str](), None
    for one in endpoints:
        try:
            answer = await _asked(service, one, path, body)
        except PermanentError as error:
            if error.status not in MISSING:
                raise RefusedError(told_of(service, error, path)) from None
            without.append(one.name)
        except PoolError as error:
            if path != TOKENIZE and any(word in str(error) for word in BEYOND):
                raise wrong("tokens holds an id that is no token of this model", "tokens") from None
            last = error
        else:
            tell(exchange, (("endpoint", one.name), ("tier", one.tier), ("model", one.model or "")))
            await exchange.respond(200, dumps(telling(answer)))
            return
    if last is not None:
        raise RefusedError(told_of(service, last, path))
    words = f"{path} is answered by vLLM and by llama.cpp's server; {', '.join(without)} does not have it"
    raise RefusedError(Refusal(501, words, "not_implemented"))


async def _asked(service: Service, endpoint: EndpointStatus, path: str, body: JSON) -> JSON:
    """The answer of one endpoint in vLLM's words. Raises PoolError."""

    async def ask(there: str, what: JSON) -> JSON:
        try:
            value = json.loads((await service.pool.question(endpoint.name, there, what)).body)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise OddTokensError("what it answered is no JSON object")
        return value

    try:
        async with asyncio.timeout(PATIENCE):
            if endpoint.kind != "llamacpp":
                model = body["model"] if body["model"] in served(endpoint) else endpoint.model
                return told_by_vllm(path, await ask(path, body | {"model": model}))
            if template := template_of(path, body):
                body = prompt_of_template(body, await ask("/apply-template", template))
            return told_by_llamacpp(path, await ask(path, asked_of_llamacpp(path, body)), endpoint.window)
    except TimeoutError:
        raise TransientError(f"endpoint {endpoint.name}: no answer within {PATIENCE:g} s") from None
    except OddTokensError as error:
        raise TransientError(f"endpoint {endpoint.name}: {error}") from None
