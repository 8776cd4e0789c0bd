"""Pretend parts for tests: a vLLM server over real HTTP that follows a script or an engine model, and a scripted pool.

The server keeps the facts that `tests/contract` also asks of a real vLLM and of the embedded llama.cpp server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from pool.errors import PermanentError, PoolError
from pool.pretend.engine import EngineSettings
from pool.pretend.publisher import KvEvents
from pool.pretend.script import (
    Fault,
    Recorded,
    Script,
    Scripted,
    Slow,
    Twist,
    as_choice,
    call,
    closed_early,
    commented,
    cut,
    engine_dead,
    error,
    error_midway,
    hang,
    overflow,
    overload,
    paced,
    queue_full,
    reset,
    reset_midway,
    server_error,
    split,
    stalled,
    torn_call,
    unfinished,
    without_details,
    without_done,
    without_role,
    without_usage,
)
from pool.pretend.server import PretendServer
from pool.types import ChatRequest, Choice, CompletionRequest, Reply, Traits, Usage

__all__ = [
    "EngineSettings", "Fault", "KvEvents", "PretendServer", "Recorded", "Script", "Scripted", "ScriptedPool", "Slow",
    "Twist", "call", "closed_early", "commented", "cut", "engine_dead", "error", "error_midway", "hang", "overflow",
    "overload", "paced", "pretend_vllm", "queue_full", "reset", "reset_midway", "server_error", "split", "stalled",
    "torn_call", "unfinished", "without_details", "without_done", "without_role", "without_usage",
]  # fmt: skip


@asynccontextmanager
async def pretend_vllm(replies: Script = None, **settings: Any) -> AsyncIterator[PretendServer]:
    """A pretend vLLM server on a free loopback port.

    ``replies``: a list played in order (past its end the server refuses with 400), a function of the recorded request,
    or nothing: it says "ok", fits the schema or calls the first tool. ``settings`` are the fields of `PretendServer`:
    with ``engine=EngineSettings(...)`` requests take their time in a model of vLLM's scheduler.
    """
    server = PretendServer(script=replies, **settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


PoolScripted = Reply | Choice | str | PoolError | Callable[[ChatRequest | CompletionRequest], "PoolScripted"]


class ScriptedPool:
    """A pool that answers from a script, for tests of what stands above it. Keeps the protocol of `swarm.work.Chat`.

    ``script`` is a list played in order, or one function of the request. An error in it is raised; past its end the
    pool raises PermanentError. Text and choices are repeated ``n`` times, as asked.
    """

    def __init__(
        self,
        script: Iterable[PoolScripted] | Callable[[ChatRequest | CompletionRequest], PoolScripted],
        *,
        native: bool = True,
        traits: Traits | None = None,
    ) -> None:
        self.requests: list[ChatRequest | CompletionRequest] = []
        self.acted: list[tuple[str, str, float | None]] = []
        self.ended: list[str] = []
        self._script = script if callable(script) else deque(script)
        self._traits = traits or Traits(model="scripted", native=native)

    async def chat(self, request: ChatRequest) -> Reply:
        """The next scripted reply."""
        return self._play(request)

    async def complete(self, request: CompletionRequest) -> Reply:
        """The next scripted reply."""
        return self._play(request)

    async def native_tools(self, tier: str) -> bool:  # noqa: ARG002  the protocol names it
        """As told at the start."""
        return self._traits.native

    async def traits(self, tier: str) -> Traits:  # noqa: ARG002  the protocol names it
        """As told at the start."""
        return self._traits

    def acting(self, session: str, tool: str, expected: float | None = None) -> None:
        """Remember what a session does between its turns."""
        self.acted.append((session, tool, expected))

    def end_session(self, session: str) -> None:
        """Remember that it is over."""
        self.ended.append(session)

    def _play(self, request: ChatRequest | CompletionRequest) -> Reply:
        self.requests.append(request)
        scripted: PoolScripted = self._script if callable(self._script) else self._pop()
        while callable(scripted):
            scripted = scripted(request)
        if isinstance(scripted, PoolError):
            raise scripted
        if isinstance(scripted, Reply):
            return scripted
        choice = as_choice(scripted)
        usage = Usage(
            prompt_tokens=len(request.model_dump_json()) // 4,
            completion_tokens=request.n * (1 + len(choice.content) // 4),
        )
        return Reply(choices=(choice,) * request.n, usage=usage, endpoint="scripted", model="scripted", seconds=0.0)

    def _pop(self) -> PoolScripted:
        if not self._script:
            raise PermanentError("the script of the pretend pool is over")
        return self._script.popleft()  # type: ignore[union-attr]
