"""The pool's part of the daemon's door: how each model server stands, why a request went where, servers in and out."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Body, Query
from pydantic import ValidationError

from pool.config import EndpointConfig
from pool.errors import PoolConfigError
from pool.placement.view import Decision
from pool.types import EndpointStatus
from swarm.answers import EndpointMoved, PoolStatus
from swarm.api.failures import Turned
from swarm.types import Frozen

PREFIX = "/v1/pool"
LONGEST_WAIT = 3600.0  # seconds that a drain may be waited for
WHAT = "the pool cannot do that"
SEE = "see the endpoints with: swarm pool status"


class Explained(Frozen):
    """Why a request went where it went."""

    request: str
    decision: dict[str, Any]


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


def routes(servers: Servers | None) -> APIRouter:
    """The routes over a pool; none without one."""
    router = APIRouter(prefix=PREFIX, tags=["pool"])
    if servers is None:
        return router
    door = PoolDoor(servers)
    one = "/endpoints/{name}"
    router.add_api_route("/status", door.pool_status, methods=["GET"])
    router.add_api_route("/explain/{request:path}", door.explain_request, methods=["GET"])
    router.add_api_route("/endpoints", door.add_endpoint, methods=["POST"])
    router.add_api_route(f"{one}/drain", door.drain_endpoint, methods=["POST"])
    router.add_api_route(f"{one}/admit", door.admit_endpoint, methods=["POST"])
    router.add_api_route(one, door.remove_endpoint, methods=["DELETE"])
    return router


class PoolDoor:
    """One method a route."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def pool_status(self) -> PoolStatus:
        """How each model server stands."""
        return PoolStatus(endpoints=self._servers.status())

    async def explain_request(self, request: str) -> Explained:
        """Why a request to the models went where it went."""
        decision = self._servers.explain(request)
        if decision is None:
            raise Turned(404, WHAT, f"request {request[:200]} is not remembered", "only the latest requests are")
        return Explained(request=request, decision=as_json(decision))

    async def add_endpoint(self, settings: Annotated[dict[str, Any], Body()]) -> EndpointMoved:
        """Let a model server join. The body is an entry of [[pool.endpoints]].

        A key comes with the call, never by the name of a variable: a caller could else send the daemon's own away.
        """
        config = _config(settings)
        try:
            self._servers.add(config)
        except PoolConfigError as error:
            raise Turned(409, WHAT, str(error), SEE) from None
        return EndpointMoved(endpoint=config.name, state="joining")

    async def drain_endpoint(
        self, name: str, within: Annotated[float, Query(allow_inf_nan=False, description="seconds to wait")] = 0.0
    ) -> EndpointMoved:
        """Send a model server nothing new, and wait at most so long for it to be empty."""
        try:
            empty = await self._servers.drain(name, min(max(within, 0.0), LONGEST_WAIT))
        except PoolConfigError as error:
            raise _unknown(error) from None
        return EndpointMoved(endpoint=name, state="drained" if empty else "draining")

    async def admit_endpoint(self, name: str) -> EndpointMoved:
        """Take a drain back."""
        try:
            self._servers.admit(name)
        except PoolConfigError as error:
            raise _unknown(error) from None
        return EndpointMoved(endpoint=name, state="admitted")

    async def remove_endpoint(self, name: str) -> EndpointMoved:
        """Let a model server go at once: what is in flight there is sent elsewhere."""
        try:
            await self._servers.remove(name)
        except PoolConfigError as error:
            raise _unknown(error) from None
        return EndpointMoved(endpoint=name, state="removed")


def _config(settings: dict[str, Any]) -> EndpointConfig:
    """Raises Turned."""
    try:
        config = EndpointConfig.model_validate(settings)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        why = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in found[:5])
        raise Turned(422, WHAT, why, "every setting: swarm config explain") from None
    if config.api_key_env is not None and config.api_key is None:
        raise Turned(422, WHAT, "api_key_env: a variable of the caller is not the daemon's", "send the key itself")
    return config


def as_json(decision: Decision) -> dict[str, Any]:
    """A decision as plain data; its rows may come as any kind of sequence."""
    return dataclasses.asdict(dataclasses.replace(decision, rows=tuple(decision.rows)))


def _unknown(error: PoolConfigError) -> Turned:
    return Turned(404, WHAT, str(error), SEE)
