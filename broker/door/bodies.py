"""What comes in and goes out: bounded bodies, JSON answers, and an error's status and words."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import IO

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from broker.errors import (
    AbsentError,
    BrokerError,
    BudgetError,
    BusyError,
    CapabilityError,
    ConflictError,
    FencedError,
    ForgeError,
    NeverError,
    OutboxFullError,
    RightsError,
    StoppedError,
)
from broker.wire import Problem

SMALL_BODY = 64 * 1024
_BODY_SECONDS = 120.0
_CHUNK = 256 * 1024
_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (RightsError, 403, "rights"),
    (CapabilityError, 403, "capability"),
    (AbsentError, 404, "absent"),
    (NeverError, 409, "never"),
    (ConflictError, 409, "conflict"),
    (StoppedError, 423, "stopped"),
    (BudgetError, 429, "budget"),
    (OutboxFullError, 507, "outbox-full"),
    (BusyError, 503, "busy"),
    (FencedError, 503, "fenced"),
    (ForgeError, 502, "forge"),
    (ValidationError, 400, "malformed"),
    (ValueError, 400, "malformed"),
    (OverflowError, 400, "malformed"),
    (BrokerError, 500, "internal"),
    (OSError, 500, "internal"),
)
_MENDS = {
    404: "each of the broker's two sockets has verbs of its own: is this the right one?",
    405: "docs/broker.md lists the verbs",
    411: "send its length in Content-Length, and the body as it is",
    413: "propose a smaller change, or the operator raises max_body_bytes in broker.toml",
}


async def read_body(request: Request, limit: int) -> bytes:
    """The body. Raises HTTPException 413 above ``limit`` bytes and 408 when it takes too long to come.

    And 411 for one in chunks: taking a million of one byte each apart would hold up every other caller.
    """
    if "transfer-encoding" in request.headers:
        raise _leaving(411, "the body comes in chunks")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > limit:
        raise _leaving(413, f"the body has {declared[:20]} bytes, {limit} are read")
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                parts.append(chunk)
                size += len(chunk)
                if size > limit:
                    raise _leaving(413, f"the body has more than {limit} bytes")
    except ClientDisconnect:
        raise HTTPException(400, "the body ended before it was whole") from None
    except TimeoutError:
        raise _leaving(408, f"the body did not arrive within {_BODY_SECONDS:g} s") from None
    return b"".join(parts)


def _leaving(status: int, message: str) -> HTTPException:
    """A refusal after which the rest of the body is not read either."""
    return HTTPException(status, message, {"connection": "close"})


class PackResponse(StreamingResponse):
    """A file in pieces. However the answer ends, the file is closed at once and ``done`` is called."""

    def __init__(self, pack: IO[bytes], headers: Mapping[str, str], done: Callable[[], None]) -> None:
        size = str(os.fstat(pack.fileno()).st_size)
        media = "application/x-git-packed-objects"
        super().__init__(_chunks(pack), headers={**headers, "Content-Length": size}, media_type=media)
        self._pack = pack
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pack.close()
            self._done()


def _chunks(pack: IO[bytes]) -> Iterator[bytes]:
    while chunk := pack.read(_CHUNK):
        yield chunk


def answer(model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A message as JSON."""
    return Response(model.model_dump_json(), status, headers, media_type="application/json")


def problem_of(error: Exception) -> tuple[Problem, int]:
    """An error that was foreseen, in words, and its status."""
    status, code = next(
        ((status, code) for kind, status, code in _STATUS if isinstance(error, kind)), (500, "internal")
    )
    return Problem(code=code, message=_plain(error), mend=getattr(error, "mend", "")), status


def wait_of(error: Exception, now: float) -> dict[str, str]:
    """The header that says in how many seconds it is worth asking again, where that is known."""
    opens = error.opens if isinstance(error, BudgetError) else error.when if isinstance(error, ForgeError) else None
    return {} if opens is None else {"retry-after": str(max(1, math.ceil(opens - now)))}


def _plain(error: Exception) -> str:
    if isinstance(error, ValidationError):
        details = error.errors(include_url=False, include_input=False, include_context=False)
        return "; ".join(f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in details)[:2000]
    return str(error)


async def http_problem(_request: Request, error: Exception) -> Response:
    """What Starlette itself turns down: unknown paths, wrong methods, bodies too large."""
    status, message = getattr(error, "status_code", 500), getattr(error, "detail", "")
    problem = Problem(code=str(status), message=message, mend=_MENDS.get(status, ""))
    return answer(problem, status, getattr(error, "headers", None))


async def malformed(_request: Request, error: Exception) -> Response:
    """A path whose number cannot be one."""
    problem, status = problem_of(error)
    return answer(problem, status)


async def unexpected(_request: Request, error: Exception) -> Response:
    """The class alone: the text of an error that nobody foresaw could hold anything."""
    problem = Problem(code="internal", message=f"the broker failed ({type(error).__name__})", mend="see its own output")
    return answer(problem, 500)
