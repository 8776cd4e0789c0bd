"""Everything that goes wrong as an answer: a status, and a Failure that says what, why and mend."""

from __future__ import annotations

import http
import logging
import math
import re
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from swarm.errors import (
    BrokerUnreachableError,
    ForeignTaskError,
    IllegalMoveError,
    KeyReusedError,
    StoreError,
    SwarmError,
    TaskError,
    TaskNotFoundError,
)
from swarm.types import Failure

_NOT_ACCEPTED = "the task is not accepted"
_HANDED_IN = re.compile(r"POST /v1/(tasks|tasks/[^/]+/fork|schedules)")
# The first that fits names the answer: status, and what could not be done.
_ANSWERS: tuple[tuple[type[SwarmError], int, str], ...] = (
    (TaskNotFoundError, 404, "no such task"),
    (ForeignTaskError, 403, "that is not allowed"),
    (KeyReusedError, 422, "the idempotency key is used already"),
    (IllegalMoveError, 409, "that cannot be done now"),
    (TaskError, 422, _NOT_ACCEPTED),
    (StoreError, 500, "the daemon's memory fails"),
    (BrokerUnreachableError, 503, "the broker does not answer"),
    (SwarmError, 502, "the daemon cannot do that"),
)
Answers = dict[int | str, dict[str, Any]]
SAID: Answers = {
    code: {"model": Failure, "description": f"{http.HTTPStatus(code).phrase}: what, why and mend"}
    for code in (400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 429, 431, 500, 502, 503)
}
"""What any route may answer besides its own, for its description."""

log = logging.getLogger(__name__)


class Turned(Exception):  # noqa: N818  no error of ours: the answer to one of the caller's
    """A request that is not let through, and the answer to it."""

    def __init__(self, status: int, what: str, why: str, mend: str, *, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.failure = Failure(what=what, why=why, mend=mend)
        self.retry_after = retry_after


def answer(turned: Turned) -> Response:
    """The answer to a request that is not let through."""
    headers = {"www-authenticate": "Bearer"} if turned.status == 401 else {}
    if turned.status in {400, 408, 413, 431}:
        headers["connection"] = "close"  # the rest of such a request is waited for by nobody
    if turned.retry_after is not None:
        headers["retry-after"] = str(math.ceil(turned.retry_after))
    return _failure(turned.status, turned.failure, headers)


async def turned_down(_: Request, error: Exception) -> Response:
    """A refusal that a route raised by itself."""
    if not isinstance(error, Turned):
        raise error
    return answer(error)


async def refused(request: Request, error: Exception) -> Response:
    """An error of the hall."""
    status, what = next((status, what) for kind, status, what in _ANSWERS if isinstance(error, kind))
    if what == _NOT_ACCEPTED and not _HANDED_IN.fullmatch(f"{request.method} {request.url.path}"):
        what = "the request is not understood" if request.method == "GET" else "that is not accepted"
    mend = error.mend if isinstance(error, SwarmError) else ""
    return _failure(status, Failure(what=what, why=str(error), mend=mend))


async def misunderstood(_: Request, error: Exception) -> Response:
    """A body or a parameter that does not fit its description."""
    found = error.errors() if isinstance(error, RequestValidationError) else ()
    why = "; ".join(f"{_place(each['loc'])}: {each['msg']}" for each in found[:5]) or "it cannot be read"
    mend = "see the fields in GET /v1/openapi.json or docs/api.md; JSON needs content-type: application/json"
    return _failure(422, Failure(what="the request is not understood", why=why[:2000], mend=mend))


async def no_route(request: Request, error: Exception) -> Response:
    """A path or a method that there is not, and what the framework itself turns down."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status in {404, 405}:
        why = f"{request.method} {request.url.path[:200]} is no route of it"
        failure = Failure(
            what="the daemon does not know that call",
            why=why,
            mend="see GET /v1/openapi.json; use one version of swarm",
        )
    else:
        why = str(error.detail) if isinstance(error, HTTPException) else type(error).__name__
        failure = Failure(what="the request is not understood", why=why[:500], mend="see docs/api.md")
    headers = error.headers if isinstance(error, HTTPException) and error.headers else {}
    return _failure(status, failure, {name: value for name, value in headers.items() if name.lower() == "allow"})


async def broken(_: Request, error: Exception) -> Response:
    """A fault of the daemon's own."""
    log.error("a request broke", exc_info=error)
    why = f"{type(error).__name__}"
    return _failure(500, Failure(what="the daemon has a fault", why=why, mend="look into the daemon's log"))


def _place(where: tuple[int | str, ...]) -> str:
    return ".".join(map(str, where))[:200] or "body"


def _failure(status: int, failure: Failure, headers: dict[str, str] | None = None) -> Response:
    return Response(failure.model_dump_json(), status, headers, media_type="application/json")
