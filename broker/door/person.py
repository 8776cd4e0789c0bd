"""A person's socket: grants, approvals, stops, the log, what is kept, pull requests; nothing of the coordinator's."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from broker.door.bodies import answer
from broker.door.guard import Guard, Role, uid_of
from broker.door.shared import Shared
from broker.person_wire import Approval, StopRequest
from broker.service.service import Service
from broker.wire import GrantRequest

_ROLE: tuple[Role, ...] = ("person",)


class PersonDoor:
    """Handlers of a person's verbs. The uid of whoever calls goes with every one that changes something."""

    def __init__(self, service: Service, guard: Guard) -> None:
        self._service = service
        self._guard = guard

    def app(self) -> Starlette:
        """The application."""
        return self._guard.app(
            (
                ("POST", "/v1/grant", _ROLE, self._grant),
                ("GET", "/v1/grants", _ROLE, self._grants),
                ("POST", "/v1/grants/{id}/revoke", _ROLE, self._revoke),
                ("GET", "/v1/stops", _ROLE, self._stops),
                ("POST", "/v1/stops", _ROLE, self._stop),
                ("GET", "/v1/log", _ROLE, self._log),
                ("GET", "/v1/log/head", _ROLE, self._log_head),
                ("GET", "/v1/outbox", _ROLE, self._outbox),
                ("GET", "/v1/outbox/{id}", _ROLE, self._kept),
                ("POST", "/v1/outbox/{id}/approve", _ROLE, self._approve),
                ("POST", "/v1/outbox/{id}/discard", _ROLE, self._discard),
                ("GET", "/v1/pulls/{repository}", _ROLE, self._pulls),
                ("GET", "/v1/pulls/{repository}/{number:int}", _ROLE, self._pull),
                ("GET", "/v1/pulls/{repository}/{number:int}/commit", _ROLE, self._commit),
                ("POST", "/v1/pulls/{repository}/{number:int}/merge", _ROLE, self._merge),
                *Shared(self._service, self._guard).table(),
            )
        )

    async def _grant(self, request: Request) -> Response:
        asked = await self._guard.asked(GrantRequest, request)
        return answer(await self._guard.call(self._service.grants.grant, asked, f"uid:{uid_of(request)}"))

    async def _grants(self, _request: Request) -> Response:
        return answer(await self._guard.promptly(self._service.grants.listing))

    async def _revoke(self, request: Request) -> Response:
        return answer(
            await self._guard.promptly(self._service.grants.revoke, request.path_params["id"], uid_of(request))
        )

    async def _stops(self, _request: Request) -> Response:
        return answer(await self._guard.promptly(self._service.stops.listing))

    async def _stop(self, request: Request) -> Response:
        asked = await self._guard.asked(StopRequest, request)
        stops = await self._guard.promptly(self._service.stops.set, asked, uid_of(request))
        if not asked.stopped:
            self._service.resumer.hint()  # what waited for this goes on now
        return answer(stops)

    async def _log(self, request: Request) -> Response:
        return answer(await self._guard.call(self._service.log, int(request.query_params.get("after", "0"))))

    async def _log_head(self, request: Request) -> Response:
        number = request.query_params.get("number")
        head = await self._guard.promptly(self._service.records.log_head, None if number is None else int(number))
        return Response(head, media_type="application/json")

    async def _outbox(self, _request: Request) -> Response:
        return answer(await self._guard.promptly(self._service.proposals.outbox))

    async def _kept(self, request: Request) -> Response:
        return answer(await self._guard.call(self._service.proposals.kept, request.path_params["id"]))

    async def _approve(self, request: Request) -> Response:
        asked = await self._guard.asked(Approval, request)
        proposal, by = request.path_params["id"], uid_of(request)
        return answer(await self._guard.call(self._service.proposals.approve, proposal, asked, by))

    async def _discard(self, request: Request) -> Response:
        return answer(
            await self._guard.call(self._service.proposals.discard, request.path_params["id"], uid_of(request))
        )

    async def _pulls(self, request: Request) -> Response:
        return answer(await self._guard.call(self._service.pulls.listing, request.path_params["repository"]))

    async def _pull(self, request: Request) -> Response:
        where = request.path_params
        return answer(await self._guard.call(self._service.pulls.show, where["repository"], where["number"]))

    async def _commit(self, request: Request) -> Response:
        where = request.path_params
        below = request.query_params.get("commit")
        raw = await self._guard.call(self._service.records.commit, where["repository"], where["number"], below)
        return Response(raw, media_type="application/x-git-commit")

    async def _merge(self, request: Request) -> Response:
        where, by = request.path_params, uid_of(request)
        return answer(await self._guard.call(self._service.pulls.merge, where["repository"], where["number"], by))
