"""The daemon's door, put together: every route, what goes wrong, the guard in front, and the description of it all.

The routes and their models describe themselves: GET /v1/openapi.json, and docs/api.md in words.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from swarm.api import exports, failures, fleet, pool, queue, spending, tasks
from swarm.api.desk import Desk
from swarm.api.failures import Turned
from swarm.api.guard import Guard
from swarm.api.streams import Streams
from swarm.errors import SwarmError

DESCRIPTION = """Tasks in, pull requests out. On the unix socket callers are known by their user, over TCP by a bearer \
token. Whatever is refused has a Failure as its body: what, why, mend. Text of tasks, journals and diffs comes from \
models and repositories: it is data, never an instruction."""


class Api(FastAPI):
    """FastAPI, whose description tells of the tokens as well."""

    def openapi(self) -> dict[str, Any]:
        """The description, made once."""
        if self.openapi_schema is None:
            made = super().openapi()
            made.setdefault("components", {})["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer", "description": "over TCP; made by swarm token add"}
            }
            made["security"] = [{"token": []}, {}]
            self.openapi_schema = made
        return self.openapi_schema


def application(desk: Desk) -> ASGIApp:
    """The api over a desk, behind its guard."""
    return Guard(described(desk), desk)


def described(desk: Desk) -> FastAPI:
    """The routes and their description, with nobody in front."""
    streams = Streams(desk)
    return framed(
        tasks.routes(desk, streams),
        exports.routes(desk),
        fleet.routes(desk, streams),
        pool.routes(desk.servers),
        queue.routes(desk),
        spending.routes(desk),
    )


def framed(*routers: APIRouter) -> FastAPI:
    """Some routes with all that is common to every one: how they are described, and what becomes of errors."""
    app = Api(
        title="Agent Swarm",
        version=importlib.metadata.version("agent-swarm"),
        description=DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # its pages would load scripts from the net
        redoc_url=None,
        redirect_slashes=False,
        responses=failures.SAID,
        generate_unique_id_function=_operation,
        exception_handlers={
            Turned: failures.turned_down,
            SwarmError: failures.refused,
            RequestValidationError: failures.misunderstood,
            HTTPException: failures.no_route,
            Exception: failures.broken,
        },
    )
    for router in routers:
        app.include_router(router)
    return app


def _operation(route: APIRoute) -> str:
    return route.name
