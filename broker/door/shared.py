"""The routes that both sockets know: what was decided, what there is, and as whom one is seen."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from broker.door.bodies import answer
from broker.door.guard import EITHER, Guard, Row, uid_of
from broker.service.service import Service
from broker.wire import Health


class Shared:
    """Handlers for either role."""

    def __init__(self, service: Service, guard: Guard) -> None:
        self._service = service
        self._guard = guard

    def table(self) -> tuple[Row, ...]:
        """The routes. Health is for everybody who can connect: it tells why the rest is refused."""
        return (
            ("GET", "/v1/health", (), self._health),
            ("GET", "/v1/repositories", EITHER, self._repositories),
            ("GET", "/v1/proposals/{id}", EITHER, self._status),
            ("GET", "/v1/provenance/{repository}/{number:int}", EITHER, self._provenance),
            ("GET", "/v1/key", EITHER, self._key),
        )

    async def _health(self, request: Request) -> Response:
        uid = uid_of(request)
        return answer(Health(uid=uid, role=self._guard.roles_of(uid)))

    async def _repositories(self, _request: Request) -> Response:
        return answer(await self._guard.promptly(self._service.reads.repositories))

    async def _provenance(self, request: Request) -> Response:
        where, commit = request.path_params, request.query_params.get("commit")
        found = await self._guard.call(self._service.records.provenance, where["repository"], where["number"], commit)
        return Response(found, media_type="application/json")

    async def _key(self, _request: Request) -> Response:
        return answer(await self._guard.promptly(self._service.records.key))

    async def _status(self, request: Request) -> Response:
        return answer(await self._guard.promptly(self._service.proposals.status, request.path_params["id"]))
