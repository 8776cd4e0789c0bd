"""The routes of the HTTP protocol. Checks the role before a body is read, and its size while it is; judges nothing."""

from __future__ import annotations

import asyncio
import functools
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import IO, Literal

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from broker.config.settings import BrokerConfig
from broker.errors import (
    AbsentError,
    BrokerError,
    CapabilityError,
    ConflictError,
    ForgeError,
    OutboxFullError,
    RightsError,
)
from broker.service.service import Service
from broker.wire import GrantRequest, Health, MirrorRequest, Problem, decode_proposal

Handler = Callable[[Request], Awaitable[Response]]
Role = Literal["person", "coordinator"]
_EITHER: tuple[Role, ...] = ("person", "coordinator")
_SMALL_BODY = 64 * 1024
_BODY_SECONDS = 120.0
_AT_ONCE = 4  # proposals in memory; the rest wait in their sockets
_CHUNK = 256 * 1024
_RECORDED = 200
_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (RightsError, 403, "rights"),
    (CapabilityError, 403, "capability"),
    (AbsentError, 404, "absent"),
    (ConflictError, 409, "conflict"),
    (OutboxFullError, 507, "outbox-full"),
    (ForgeError, 502, "forge"),
    (ValidationError, 400, "malformed"),
    (ValueError, 400, "malformed"),
    (BrokerError, 500, "internal"),
    (OSError, 500, "internal"),
)


class Door:
    """The routes. Each names the roles that may use it; everything else is refused before a body is read."""

    def __init__(self, service: Service, config: BrokerConfig) -> None:
        self._service = service
        self._config = config
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._turned_away: Counter[int] = Counter()

    def app(self) -> Starlette:
        """The application."""
        person: tuple[Role, ...] = ("person",)
        coordinator: tuple[Role, ...] = ("coordinator",)
        table: tuple[tuple[str, str, tuple[Role, ...], Handler], ...] = (
            ("POST", "/v1/grant", person, self._grant),
            ("POST", "/v1/mirror", coordinator, self._mirror),
            ("POST", "/v1/propose", coordinator, self._propose),
            ("POST", "/v1/explain", coordinator, self._explain),
            ("GET", "/v1/proposals/{id}", _EITHER, self._status),
            ("GET", "/v1/repositories", _EITHER, self._repositories),
            ("GET", "/v1/log", person, self._log),
            ("GET", "/v1/outbox", person, self._outbox),
            ("GET", "/v1/outbox/{id}", person, self._kept),
            ("POST", "/v1/outbox/{id}/discard", person, self._discard),
            ("GET", "/v1/pulls/{repository}", person, self._pulls),
            ("GET", "/v1/pulls/{repository}/{number:int}", person, self._pull),
            ("POST", "/v1/pulls/{repository}/{number:int}/merge", person, self._merge),
        )
        routes = [Route(path, self._guarded(roles, handler), methods=[verb]) for verb, path, roles, handler in table]
        routes.append(Route("/v1/health", self._health, methods=["GET"]))
        return Starlette(routes=routes, exception_handlers={HTTPException: _http_problem, Exception: _unexpected})

    def _guarded(self, roles: tuple[Role, ...], handler: Handler) -> Handler:
        @functools.wraps(handler)
        async def guarded(request: Request) -> Response:
            try:
                self._require(request, roles)
                return await handler(request)
            except (BrokerError, ValueError, OSError) as error:
                return await asyncio.to_thread(self._problem, request, error)

        return guarded

    def _require(self, request: Request, roles: tuple[Role, ...]) -> None:
        uid = _uid(request)
        if not set(roles) & set(self._roles(uid)):
            mend = f"the operator adds it under [roles] {roles[0]} in broker.toml"
            raise RightsError(f"uid {uid} is no {' or '.join(roles)} of this broker", mend)

    def _roles(self, uid: int) -> tuple[Role, ...]:
        return tuple(role for role in _EITHER if uid in getattr(self._config.roles, role))

    def _problem(self, request: Request, error: Exception) -> Response:
        status, code = next((status, code) for kind, status, code in _STATUS if isinstance(error, kind))
        if code in {"rights", "capability"}:
            self._record_turned_away(_uid(request), request.url.path, str(error))
        message = _plain(error)
        return _json(Problem(code=code, message=message, mend=getattr(error, "mend", "")), status)

    def _record_turned_away(self, uid: int, path: str, reason: str) -> None:
        # Anyone who can connect can be turned away; nobody shall fill the disk with it.
        self._turned_away[uid] += 1
        if self._turned_away[uid] <= _RECORDED:
            self._service.audit.append("turned-away", uid=uid, path=path[:200], reason=reason)
        elif self._turned_away[uid] == _RECORDED + 1:
            self._service.audit.append(
                "turned-away", uid=uid, reason="more of the same is not recorded until a restart"
            )

    # --- verbs

    async def _health(self, request: Request) -> Response:
        uid = _uid(request)
        return _json(Health(uid=uid, role=self._roles(uid)))

    async def _grant(self, request: Request) -> Response:
        asked = GrantRequest.model_validate_json(await _body(request, _SMALL_BODY))
        return _json(await asyncio.to_thread(self._service.grants.grant, asked, _uid(request)))

    async def _mirror(self, request: Request) -> Response:
        asked = MirrorRequest.model_validate_json(await _body(request, _SMALL_BODY))
        commit, pack = await asyncio.to_thread(self._service.reads.mirror, asked)
        headers = {"X-Base-Commit": commit, "Content-Length": str(os.fstat(pack.fileno()).st_size)}
        return StreamingResponse(_chunks(pack), headers=headers, media_type="application/x-git-packed-objects")

    async def _propose(self, request: Request) -> Response:
        async with self._gate:
            proposal, pack = decode_proposal(await self._proposal_body(request))
            return _json(await asyncio.to_thread(self._service.proposals.propose, proposal, pack))

    async def _explain(self, request: Request) -> Response:
        async with self._gate:
            proposal, pack = decode_proposal(await self._proposal_body(request))
            return _json(await asyncio.to_thread(self._service.proposals.explain, proposal, pack))

    async def _proposal_body(self, request: Request) -> bytes:
        try:
            return await _body(request, self._config.max_body_bytes)
        except HTTPException as error:
            if error.status_code == 413:
                await asyncio.to_thread(self._service.audit.append, "too-large", uid=_uid(request))
            raise

    async def _status(self, request: Request) -> Response:
        return _json(await asyncio.to_thread(self._service.proposals.status, request.path_params["id"]))

    async def _repositories(self, _request: Request) -> Response:
        return _json(self._service.reads.repositories())

    async def _log(self, request: Request) -> Response:
        after = int(request.query_params.get("after", "0"))
        return _json(await asyncio.to_thread(self._service.log, after))

    async def _outbox(self, _request: Request) -> Response:
        return _json(await asyncio.to_thread(self._service.proposals.outbox))

    async def _kept(self, request: Request) -> Response:
        return _json(await asyncio.to_thread(self._service.proposals.kept, request.path_params["id"]))

    async def _discard(self, request: Request) -> Response:
        return _json(await asyncio.to_thread(self._service.proposals.discard, request.path_params["id"], _uid(request)))

    async def _pulls(self, request: Request) -> Response:
        return _json(await asyncio.to_thread(self._service.pulls.listing, request.path_params["repository"]))

    async def _pull(self, request: Request) -> Response:
        where = request.path_params
        return _json(await asyncio.to_thread(self._service.pulls.show, where["repository"], where["number"]))

    async def _merge(self, request: Request) -> Response:
        where = request.path_params
        merge = self._service.pulls.merge
        return _json(await asyncio.to_thread(merge, where["repository"], where["number"], _uid(request)))


def _uid(request: Request) -> int:
    return int(getattr(request.state, "peer_uid", -1))


async def _body(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise HTTPException(413, f"the body has {declared} bytes, {limit} are read")
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                parts.append(chunk)
                size += len(chunk)
                if size > limit:
                    raise HTTPException(413, f"the body has more than {limit} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {_BODY_SECONDS:g} s") from None
    return b"".join(parts)


def _chunks(pack: IO[bytes]) -> Iterator[bytes]:
    with pack:
        while chunk := pack.read(_CHUNK):
            yield chunk


def _json(model: BaseModel, status: int = 200) -> Response:
    return Response(model.model_dump_json(), status, media_type="application/json")


def _plain(error: Exception) -> str:
    if isinstance(error, ValidationError):
        details = error.errors(include_url=False, include_input=False, include_context=False)
        return "; ".join(f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in details)[:2000]
    return str(error)


async def _http_problem(_request: Request, error: Exception) -> Response:
    status, message = getattr(error, "status_code", 500), getattr(error, "detail", "")
    return _json(Problem(code=str(status), message=message, mend=_MENDS.get(status, "")), status)


_MENDS = {
    404: "the verbs are listed at the top of broker/wire.py",
    405: "the verbs are listed at the top of broker/wire.py",
    413: "propose a smaller change, or the operator raises max_body_bytes in broker.toml",
}


async def _unexpected(_request: Request, error: Exception) -> Response:
    # The class alone: the text of an error nobody foresaw could hold anything.
    problem = Problem(code="internal", message=f"the broker failed ({type(error).__name__})", mend="see its own output")
    return _json(problem, 500)
