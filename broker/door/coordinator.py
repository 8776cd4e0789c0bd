"""The coordinator's socket: mirror, propose, explain. Nothing here grants, approves, stops or shows the log."""

from __future__ import annotations

import asyncio
import os

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from broker.config.settings import BrokerConfig
from broker.door.bodies import answer, chunks
from broker.door.guard import Guard, Role, uid_of
from broker.door.shared import Shared
from broker.service.service import Service
from broker.wire import MirrorRequest, decode_proposal

_ROLE: tuple[Role, ...] = ("coordinator",)
_AT_ONCE = 4  # proposals in memory; the rest wait in their sockets


class CoordinatorDoor:
    """Handlers of the coordinator's verbs."""

    def __init__(self, service: Service, config: BrokerConfig, guard: Guard) -> None:
        self._service = service
        self._config = config
        self._guard = guard
        self._gate = asyncio.Semaphore(_AT_ONCE)

    def app(self) -> Starlette:
        """The application."""
        return self._guard.app(
            (
                ("POST", "/v1/mirror", _ROLE, self._mirror),
                ("POST", "/v1/propose", _ROLE, self._propose),
                ("POST", "/v1/explain", _ROLE, self._explain),
                *Shared(self._service, self._guard).table(),
            )
        )

    async def _mirror(self, request: Request) -> Response:
        asked = await self._guard.asked(MirrorRequest, request)
        commit, pack = await self._guard.call(self._service.reads.mirror, asked)
        headers = {"X-Base-Commit": commit, "Content-Length": str(os.fstat(pack.fileno()).st_size)}
        return StreamingResponse(chunks(pack), headers=headers, media_type="application/x-git-packed-objects")

    async def _propose(self, request: Request) -> Response:
        async with self._gate:
            proposal, pack = decode_proposal(await self._large_body(request))
            return answer(await self._guard.call(self._service.proposals.propose, proposal, pack))

    async def _explain(self, request: Request) -> Response:
        async with self._gate:
            proposal, pack = decode_proposal(await self._large_body(request))
            return answer(await self._guard.call(self._service.proposals.explain, proposal, pack))

    async def _large_body(self, request: Request) -> bytes:
        try:
            return await self._guard.body(request, self._config.max_body_bytes)
        except HTTPException as error:
            if error.status_code == 413:
                await self._guard.call(self._guard.audit.append, "too-large", uid=uid_of(request))
            raise
