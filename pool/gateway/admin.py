"""Routes for whoever owns the gateway, on its unix socket alone: status, explain, endpoints in and out."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import ValidationError

from pool.config import EndpointConfig
from pool.errors import PoolConfigError
from pool.gateway.replies import Refusal, RefusedError, dumps, wrong
from pool.gateway.service import Service
from pool.gateway.web import Exchange

PREFIX = "/admin/"
LARGEST = 65_536  # bytes of an endpoint's settings
LONGEST = 3600.0  # seconds that one waits for a drain


async def answer(service: Service, exchange: Exchange) -> None:
    """Answer one admin request. Raises RefusedError."""
    match exchange.method, exchange.path.removeprefix(PREFIX).split("/"):
        case "GET", ["status"]:
            await _say(exchange, status(service))
        case "GET", ["explain", number]:
            await _say(exchange, explained(service, number))
        case "POST", ["endpoints"]:
            await _say(exchange, add(service, await exchange.body(LARGEST, 10.0)))
        case "POST", ["endpoints", name, "drain"]:
            await _say(exchange, await drain(service, name, exchange.number("within", LONGEST)))
        case "POST", ["endpoints", name, "admit"]:
            service.pool.admit(_known(service, name))
            await _say(exchange, {"endpoint": name, "state": "admitted"})
        case "DELETE", ["endpoints", name]:
            await service.pool.remove(_known(service, name))
            await _say(exchange, {"endpoint": name, "state": "removed"})
        case _:
            raise RefusedError(Refusal(404, f"there is no admin route {exchange.path[:200]}", "no_such_route"))


def status(service: Service) -> dict[str, Any]:
    """How everything stands. No key is in it."""
    return {
        "ready": service.ready,
        "draining": service.draining,
        "endpoints": [one.model_dump(mode="json") for one in service.pool.status()],
    }


def explained(service: Service, number: str) -> dict[str, Any]:
    """Why a request went where it went. Raises RefusedError (404) for one that is not remembered."""
    decision, ended = service.pool.explain(number), service.ended(number)
    if decision is None:
        words = "is not remembered; only the latest ones are, and of refused ones as many"
        if ended:
            words = f"was placed nowhere as a whole; it ended with {ended}"
        raise RefusedError(Refusal(404, f"request {number[:100]} {words}", "no_such_request"))
    if ended:
        decision = dataclasses.replace(decision, reason=f"{decision.reason}; it ended with {ended}")
    rows = tuple(decision.rows)
    told = dataclasses.asdict(dataclasses.replace(decision, rows=rows))
    told["rows"] = [dataclasses.asdict(row) | {"total": row.total} for row in rows]
    return {"request": number, "decision": told}


def add(service: Service, raw: bytes) -> dict[str, Any]:
    """Join an endpoint. Raises RefusedError: 400 for a bad one, 409 for a name that is taken."""
    try:
        config = EndpointConfig.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise wrong(first["msg"], ".".join(str(part) for part in first["loc"])) from None
    try:
        service.pool.add(config)
    except PoolConfigError as error:
        raise RefusedError(Refusal(409, str(error), "taken")) from None
    return {"endpoint": config.name, "state": "joining"}


async def drain(service: Service, name: str, within: float) -> dict[str, Any]:
    """Send an endpoint nothing new, and wait ``within`` seconds for what runs there. Raises RefusedError (404)."""
    empty = await service.pool.drain(_known(service, name), within)
    return {"endpoint": name, "state": "drained" if empty else "draining"}


def _known(service: Service, name: str) -> str:
    if name not in {one.name for one in service.pool.status()}:
        raise RefusedError(Refusal(404, f"there is no endpoint {name[:100]}", "no_such_endpoint"))
    return name


async def _say(exchange: Exchange, body: dict[str, Any]) -> None:
    await exchange.respond(200, dumps(body))
