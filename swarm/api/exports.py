"""An attempt as one file over HTTP, the same that `swarm export` writes; one at a time, since it is held in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from swarm.answers import EXPORTED, Exported
from swarm.api.desk import Desk
from swarm.api.failures import Answers, Turned
from swarm.api.tasks import TASK, TaskOf
from swarm.errors import ReplayError, TaskNotFoundError

KIND = "application/gzip"
PIECE = 256 * 1024  # bytes that are sent at once
_WHAT = "that cannot be exported"

AttemptOf = Annotated[
    str | None, Query(pattern=r"^[a-z0-9][a-z0-9-]{0,80}$", description="one of its attempts; default: the last")
]


def routes(desk: Desk) -> APIRouter:
    """The route over exports."""
    door = ExportDoor(desk)
    router = APIRouter(tags=["tasks"])
    header = {EXPORTED: {"description": "what is to be known of it, as JSON", "schema": {"type": "string"}}}
    whole = {"content": {KIND: {"schema": {"type": "string", "format": "binary"}}}, "headers": header}
    said: Answers = {200: whole | {"description": "a file for swarm replay"}}
    path = f"{TASK}/export"
    router.add_api_route(path, door.export_task, methods=["GET"], response_class=Response, responses=said)
    return router


class ExportDoor:
    """One method a route."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._busy = False

    async def export_task(self, task: TaskOf, attempt: AttemptOf = None) -> Response:
        """An attempt as one file, as `swarm export` writes it: its journal without secrets, the base's files, and what
        it came to. It holds the repository's files: give it to nobody who may not see those. One at a time is made."""
        view = await self._desk.store.view(task)
        if attempt is not None and attempt not in {each.id for each in view.attempts}:
            raise TaskNotFoundError(f"task {view.task.id} has no attempt {attempt}", "see them: swarm show TASK")
        if self._desk.export is None:
            raise Turned(409, _WHAT, "this daemon keeps no git folders", "ask the daemon that worked on it")
        if self._busy:
            why = "another export is under way, and it is held in memory"
            raise Turned(429, "that is too much at once", why, "come back a little later", retry_after=5)
        self._busy = True
        try:
            facts, content = await self._desk.export(attempt or view.task.id)
        except ReplayError as error:
            self.left()
            raise Turned(409, _WHAT, str(error), error.mend or "see it with: swarm show TASK") from error
        except BaseException:
            self.left()
            raise
        return _File(facts, content, self)

    def left(self) -> None:
        """The file is read, or nobody reads it any more."""
        self._busy = False


class _File(StreamingResponse):
    """A file in pieces."""

    def __init__(self, facts: Exported, content: bytes, door: ExportDoor) -> None:
        headers = {
            EXPORTED: json.dumps(facts.model_dump(mode="json")),
            "content-length": str(len(content)),
            "content-disposition": f'attachment; filename="{facts.attempt}.tar.gz"',
            "cache-control": "no-store",
        }
        super().__init__(_pieces(content), media_type=KIND, headers=headers)
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._door.left()


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), PIECE):
        yield content[start : start + PIECE]
