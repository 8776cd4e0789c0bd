"""The daemon and all its tasks together over HTTP: health, status, hosts, and every move as it happens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from swarm.answers import ChangesQuery
from swarm.api.desk import CallerOf, Desk
from swarm.api.failures import Answers
from swarm.api.streams import Streams
from swarm.api.tasks import EVENTS, Seen
from swarm.shown import DaemonHealth, DaemonStatus, HostView
from swarm.telemetry.metrics import CONTENT_TYPE


def routes(desk: Desk, streams: Streams) -> APIRouter:
    """The routes over the whole."""
    door = FleetDoor(desk, streams)
    router = APIRouter(tags=["fleet"])
    add = router.add_api_route
    add("/v1/health", door.show_health, methods=["GET"])
    add("/v1/status", door.show_status, methods=["GET"])
    add("/v1/hosts", door.list_hosts, methods=["GET"])
    page: Answers = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    add("/metrics", door.scrape, methods=["GET"], response_class=Response, responses=page)
    events: Answers = {200: EVENTS}
    add("/v1/events", door.follow_all, methods=["GET"], response_class=StreamingResponse, responses=events)
    return router


class FleetDoor:
    """One method a route."""

    def __init__(self, desk: Desk, streams: Streams) -> None:
        self._desk = desk
        self._streams = streams

    async def show_health(self) -> DaemonHealth:
        """The daemon lives, and as whom."""
        return self._desk.health()

    async def show_status(self) -> DaemonStatus:
        """The daemon, its hosts and queue, and what it stands on."""
        return await self._desk.status()

    async def list_hosts(self) -> tuple[HostView, ...]:
        """Every host that works from this database, and whether it beats."""
        return await self._desk.store.hosts.all()

    async def scrape(self) -> Response:
        """Counters and the fleet as it is now, in Prometheus's text format (see docs/telemetry.md)."""
        page = await self._desk.metrics() if self._desk.metrics else b""
        return Response(page, media_type=CONTENT_TYPE)

    async def follow_all(
        self,
        wanted: Annotated[ChangesQuery, Query()],
        caller: CallerOf,
        last_event_id: Seen = None,
    ) -> StreamingResponse:
        """Moves of tasks as they happen: one event `begin` with the position, then events `change`, each with a Change
        as data and its position as id. Last-Event-ID takes it up; `state` is the state that a task came to."""
        return self._streams.changes(caller, wanted, wanted.after if last_event_id is None else last_event_id)
