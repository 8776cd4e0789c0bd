"""The pool's part of the daemon's door: how each model server stands, why a request went where, servers in and out.

GET    /v1/pool/status                   {"endpoints": [EndpointStatus]}
GET    /v1/pool/explain/{request}        {"request", "decision"}
POST   /v1/pool/endpoints                EndpointConfig -> {"endpoint", "state"}
POST   /v1/pool/endpoints/{name}/drain   ?within=SECONDS waits so long for it to be empty
POST   /v1/pool/endpoints/{name}/admit   takes a drain back
DELETE /v1/pool/endpoints/{name}         at once: what is in flight there is sent elsewhere
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, Protocol

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pool.config import EndpointConfig
from pool.errors import PoolConfigError
from pool.placement.view import Decision
from pool.types import EndpointStatus
from swarm.types import Failure

PREFIX = "/v1/pool"
LONGEST_WAIT = 3600.0  # seconds that a drain may be waited for
BODY_LIMIT = 65_536  # bytes of an endpoint's settings


class Servers(Protocol):
    """What this door needs of the pool."""

    def status(self) -> tuple[EndpointStatus, ...]:
        """Where each endpoint stands."""

    def explain(self, request_id: str) -> Decision | None:
        """Why a request went where it went."""

    def add(self, config: EndpointConfig) -> None:
        """Let an endpoint join."""

    async def drain(self, name: str, within: float | None = None) -> bool:
        """Send it nothing new; whether it is empty."""

    def admit(self, name: str) -> None:
        """Take a drain back."""

    async def remove(self, name: str) -> None:
        """Let an endpoint go."""


def routes(servers: Servers | None) -> list[Route]:
    """The routes over a pool; none without one."""
    if servers is None:
        return []
    door = PoolDoor(servers)
    one = f"{PREFIX}/endpoints/{{name}}"
    return [
        Route(f"{PREFIX}/status", door.status),
        Route(f"{PREFIX}/explain/{{request:path}}", door.explain),
        Route(f"{PREFIX}/endpoints", door.add, methods=["POST"]),
        Route(f"{one}/drain", door.drain, methods=["POST"]),
        Route(f"{one}/admit", door.admit, methods=["POST"]),
        Route(one, door.remove, methods=["DELETE"]),
    ]


class PoolDoor:
    """One method a route."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def status(self, _: Request) -> Response:
        """GET /v1/pool/status"""
        return _json({"endpoints": [one.model_dump(mode="json") for one in self._servers.status()]})

    async def explain(self, request: Request) -> Response:
        """GET /v1/pool/explain/{request}"""
        number = request.path_params["request"]
        decision = self._servers.explain(number)
        if decision is None:
            return _failure(404, f"request {number} is not remembered", "only the latest requests are")
        return _json({"request": number, "decision": as_json(decision)})

    async def add(self, request: Request) -> Response:
        """POST /v1/pool/endpoints

        A key comes with the call, never by the name of a variable: a caller could else send the daemon's own away.
        """
        config = await _config(request)
        if isinstance(config, Response):
            return config
        try:
            self._servers.add(config)
        except PoolConfigError as error:
            return _failure(409, str(error), "see the endpoints with: swarm pool status")
        return _json({"endpoint": config.name, "state": "joining"})

    async def drain(self, request: Request) -> Response:
        """POST /v1/pool/endpoints/{name}/drain"""
        within = float(request.query_params.get("within", "0"))
        if not math.isfinite(within):
            raise ValueError("within: seconds, not " + request.query_params["within"])
        try:
            empty = await self._servers.drain(request.path_params["name"], min(max(within, 0.0), LONGEST_WAIT))
        except PoolConfigError as error:
            return _unknown(error)
        return _json({"endpoint": request.path_params["name"], "state": "drained" if empty else "draining"})

    async def admit(self, request: Request) -> Response:
        """POST /v1/pool/endpoints/{name}/admit"""
        try:
            self._servers.admit(request.path_params["name"])
        except PoolConfigError as error:
            return _unknown(error)
        return _json({"endpoint": request.path_params["name"], "state": "admitted"})

    async def remove(self, request: Request) -> Response:
        """DELETE /v1/pool/endpoints/{name}"""
        try:
            await self._servers.remove(request.path_params["name"])
        except PoolConfigError as error:
            return _unknown(error)
        return _json({"endpoint": request.path_params["name"], "state": "removed"})


async def _config(request: Request) -> EndpointConfig | Response:
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > BODY_LIMIT:
            return _failure(413, f"the settings are larger than {BODY_LIMIT} bytes", "say less")
    try:
        config = EndpointConfig.model_validate_json(bytes(raw))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        why = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in found[:5])
        return _failure(422, why, "every setting: swarm config explain")
    if config.api_key_env is not None and config.api_key is None:
        return _failure(422, "api_key_env: a variable of the caller is not the daemon's", "send the key itself")
    return config


def as_json(decision: Decision) -> dict[str, Any]:
    """A decision as plain data; its rows may come as any kind of sequence."""
    return dataclasses.asdict(dataclasses.replace(decision, rows=tuple(decision.rows)))


def _json(body: dict[str, Any]) -> Response:
    return Response(json.dumps(body), media_type="application/json")


def _unknown(error: PoolConfigError) -> Response:
    return _failure(404, str(error), "see the endpoints with: swarm pool status")


def _failure(status: int, why: str, mend: str) -> Response:
    failure = Failure(what="the pool cannot do that", why=why, mend=mend)
    return Response(failure.model_dump_json(), status, media_type="application/json")
