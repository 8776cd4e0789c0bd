"""The coordinator's socket: objects, proposals, words, events. Nothing here grants, approves, stops or logs."""

from __future__ import annotations

import asyncio
import threading
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from broker.config.settings import BrokerConfig
from broker.door.bodies import PackResponse, answer
from broker.door.guard import Guard, Role
from broker.door.shared import Shared
from broker.service.service import Service
from broker.wire import Ask, DrawRequest, IssueRequest, MirrorRequest, Proposal, StatusNote, decode_proposal

_ROLE: tuple[Role, ...] = ("coordinator",)
_LAST = 1 << 62
_LONGEST = 30.0  # seconds that a call for events may wait
_LOOK = 0.5  # seconds between two looks for one
_AT_ONCE = 4  # proposals in memory, and packs on disk that are being read; the rest wait in their sockets


class CoordinatorDoor:
    """Handlers of the coordinator's verbs."""

    def __init__(
        self, service: Service, config: BrokerConfig, guard: Guard, ending: threading.Event | None = None
    ) -> None:
        """``ending`` is set when the broker is to end: whoever waits for events is then answered at once."""
        self._service = service
        self._config = config
        self._guard = guard
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._packs = asyncio.Semaphore(_AT_ONCE)
        self._ending = ending or threading.Event()

    def app(self) -> Starlette:
        """The application."""
        return self._guard.app(
            (
                ("POST", "/v1/mirror", _ROLE, self._mirror),
                ("POST", "/v1/draw", _ROLE, self._draw),
                ("POST", "/v1/propose", _ROLE, self._propose),
                ("POST", "/v1/explain", _ROLE, self._explain),
                ("POST", "/v1/issue", _ROLE, self._issue),
                ("POST", "/v1/pull", _ROLE, self._pull),
                ("POST", "/v1/comment", _ROLE, self._comment),
                ("GET", "/v1/events", _ROLE, self._events),
                *Shared(self._service, self._guard).table(),
            )
        )

    async def _mirror(self, request: Request) -> Response:
        asked = await self._guard.asked(MirrorRequest, request)
        await self._packs.acquire()
        try:
            commit, pack = await self._guard.call(self._service.reads.mirror, asked)
        except BaseException:
            self._packs.release()
            raise
        return PackResponse(pack, {"X-Base-Commit": commit}, self._packs.release)

    async def _draw(self, request: Request) -> Response:
        asked = await self._guard.asked(DrawRequest, request)
        return answer(await self._guard.call(self._service.grants.draw, asked))

    async def _propose(self, request: Request) -> Response:
        async with self._gate:
            proposal, pack = await self._proposal(request)
            return answer(await self._guard.call(self._service.proposals.propose, proposal, pack))

    async def _explain(self, request: Request) -> Response:
        async with self._gate:
            proposal, pack = await self._proposal(request)
            return answer(await self._guard.call(self._service.proposals.explain, proposal, pack))

    async def _issue(self, request: Request) -> Response:
        asked = await self._guard.asked(IssueRequest, request)
        return answer(await self._guard.call(self._service.reads.issue, asked))

    async def _pull(self, request: Request) -> Response:
        asked = await self._guard.asked(Ask, request)
        return answer(await self._guard.call(self._service.reads.pull_state, asked))

    async def _comment(self, request: Request) -> Response:
        asked = await self._guard.asked(StatusNote, request)
        return answer(await self._guard.call(self._service.events.comment, asked))

    async def _events(self, request: Request) -> Response:
        after = max(0, min(int(request.query_params.get("after", "0")), _LAST))
        until = time.monotonic() + min(_LONGEST, max(0.0, float(request.query_params.get("wait", "0"))))
        while True:
            page = await self._guard.promptly(self._service.events.page, after)
            over = self._ending.is_set() or time.monotonic() >= until
            if page.events or page.last < after or over or await request.is_disconnected():
                return answer(page)
            await asyncio.sleep(_LOOK)

    async def _proposal(self, request: Request) -> tuple[Proposal, bytes]:
        return await self._guard.call(self._decoded, request, await self._large_body(request))

    def _decoded(self, request: Request, body: bytes) -> tuple[Proposal, bytes]:
        """In a thread: a large body holds up nobody else."""
        proposal, pack = decode_proposal(body)
        self._guard.look(request, "proposal", proposal.model_dump_json().encode())
        return proposal, pack

    async def _large_body(self, request: Request) -> bytes:
        try:
            return await self._guard.body(request, self._config.max_body_bytes)
        except HTTPException as error:
            if error.status_code == 413:
                await self._guard.promptly(self._guard.record, request, "too-large")
            raise
