"""Pretend parts for tests: a vLLM server over real HTTP that follows a script, and a pool that does.

The server keeps the facts that `tests/contract` also asks of a real vLLM and of the embedded llama.cpp server.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from pool.errors import PermanentError, PoolError
from pool.pretend.script import (
    BLOCK,
    JSON,
    Fault,
    Recorded,
    Script,
    Scripted,
    Slow,
    as_choice,
    bounded,
    call,
    chat_choice,
    common,
    cut,
    engine_dead,
    error,
    example,
    hang,
    metrics_page,
    overflow,
    overload,
    refusal,
    reset,
    schema_of,
    server_error,
    tokens,
)
from pool.types import CANARY_TOOL, ChatRequest, Choice, CompletionRequest, Reply, Usage

__all__ = [
    "Fault", "PretendServer", "Recorded", "Script", "Scripted", "ScriptedPool", "Slow", "call", "cut", "engine_dead",
    "error", "hang", "overflow", "overload", "pretend_vllm", "reset", "server_error",
]  # fmt: skip


@dataclass
class PretendServer:
    """A pretend vLLM server. ``requests`` holds what it was asked.

    The pool's canary for tool calls takes nothing from the script and is held apart, in ``probes``: ``tools`` says how
    it is answered (``refused``: as a vLLM without a tool parser), or ``canary`` does so outright. ``running``, ``peak``
    and ``dropped`` count requests inside, most at a time, and those whose client hung up; ``probed`` looks at health.
    """

    script: Script = None
    model: str = "pretend"
    window: int = 8192
    tools: Literal["native", "text", "refused"] = "native"
    canary: Scripted | None = None
    details: bool = True
    health: int = 200
    port: int = 0
    requests: list[Recorded] = field(default_factory=list)
    probes: list[Recorded] = field(default_factory=list)
    running: int = 0
    peak: int = 0
    dropped: int = 0
    probed: int = 0
    prompt_tokens: int = 0
    generated: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        self._queue: deque[Scripted] = deque()
        self._scripted = self.script is not None
        if self.script is not None and not callable(self.script):
            self._queue.extend(self.script)
        self._seen: deque[list[str]] = deque(maxlen=64)
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._transports: dict[tuple[str, int], asyncio.Transport] = {}

    @property
    def url(self) -> str:
        """Base address for an `EndpointConfig`."""
        return f"http://127.0.0.1:{self.port}"

    def queue(self, *replies: Scripted) -> None:
        """Append to the script."""
        self._scripted = True
        self._queue.extend(replies)

    def hold(self) -> None:
        """Answer nobody until `release`."""
        self._open.clear()

    def release(self) -> None:
        """Answer those who wait, and everybody from now on."""
        self._open.set()

    async def start(self) -> None:
        """Listen; after `stop` on the same port again."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=1024)
        self.port = listener.getsockname()[1]
        self._stopping = asyncio.Event()
        config = uvicorn.Config(
            self._app(),
            http=self._protocol(),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))
        await self._server.up.wait()

    async def stop(self) -> None:
        """Die: every connection is reset and nobody listens any more."""
        self._stopping.set()
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            self._reset_all()
            await self._task
            self._server = self._task = None
        self._reset_all()  # those who came in the meantime

    def _reset_all(self) -> None:
        for transport in tuple(self._transports.values()):
            transport.abort()

    def _protocol(self) -> type[H11Protocol]:
        transports = self._transports

        class Tracked(H11Protocol):
            """Remembers its transport, so that a fault can reset it."""

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                transports[transport.get_extra_info("peername")[:2]] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                transports.pop(self.transport.get_extra_info("peername")[:2], None)
                super().connection_lost(exc)

        return Tracked

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/version", self._version),
                Route("/metrics", self._metrics),
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._generate, methods=["POST"]),
                Route("/v1/completions", self._generate, methods=["POST"]),
            ]
        )

    async def _health(self, _: Request) -> Response:
        self.probed += 1
        return Response(status_code=self.health)

    async def _version(self, _: Request) -> Response:
        return JSONResponse({"version": "0.32.0+pretend"})

    async def _models(self, _: Request) -> Response:
        card = {"id": self.model, "object": "model", "owned_by": "vllm", "root": self.model, "parent": None}
        return JSONResponse({"object": "list", "data": [{**card, "max_model_len": self.window}]})

    async def _metrics(self, _: Request) -> Response:
        counts = {"prompt_tokens": self.prompt_tokens, "generation_tokens": self.generated, "steps": self.steps}
        return PlainTextResponse(metrics_page(self.model, self.running, counts))

    async def _generate(self, request: Request) -> Response:
        recorded = Recorded(request.url.path, await request.json(), dict(request.headers))
        probe = any(t["function"]["name"] == CANARY_TOOL for t in recorded.body.get("tools", ()))
        (self.probes if probe else self.requests).append(recorded)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            scripted = refusal(recorded, self.model, self.window, self.tools) or (
                self._canary(recorded) if probe else self._next(recorded)
            )
            return await self._play(scripted, recorded, request)
        finally:
            self.running -= 1

    def _next(self, recorded: Recorded) -> Scripted:
        if callable(self.script):
            told = self.script(recorded)
            return self._default(recorded) if told is None else told
        if self._queue:
            return self._queue.popleft()
        if self._scripted:
            return error(400, "the script of the pretend server is over")
        return self._default(recorded)

    def _default(self, recorded: Recorded) -> Scripted:
        body = recorded.body
        if body.get("tools") and self.tools == "native":
            function = body["tools"][0]["function"]
            return call(function["name"], **example(function["parameters"]))
        schema = schema_of(body)
        return "ok" if schema is None else json.dumps(example(schema), separators=(",", ":"))

    def _canary(self, recorded: Recorded) -> Scripted:
        if self.canary is not None:
            return self.canary
        return self._default(recorded) if self.tools == "native" else "I would call the tool."

    async def _play(self, scripted: Scripted, recorded: Recorded, request: Request) -> Response:
        seconds = 0.0
        while isinstance(scripted, Slow):
            seconds, scripted = seconds + scripted.seconds, scripted.then
        hangs = isinstance(scripted, Fault) and scripted.kind == "hang"
        if not await self._linger(self._stopping.wait() if hangs else self._pause(seconds), request):
            self.dropped += 1
            return Response(status_code=499)
        if isinstance(scripted, Fault):
            return self._fault(scripted, request)
        return self._answer(scripted, recorded)

    async def _pause(self, seconds: float) -> None:
        await self._open.wait()
        await asyncio.sleep(seconds)

    async def _linger(self, wait: Awaitable[object], request: Request) -> bool:
        """Wait; False when the client hung up or the server stopped before that was over."""
        waiting, gone, stopping = (
            asyncio.ensure_future(what) for what in (wait, _hung_up(request), self._stopping.wait())
        )
        await asyncio.wait({waiting, gone, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stayed = waiting.done() and not stopping.done()
        for task in (waiting, gone, stopping):
            task.cancel()
        await asyncio.gather(waiting, gone, stopping, return_exceptions=True)
        return stayed

    def _fault(self, fault: Fault, request: Request) -> Response:
        transport = self._transports.get((request.client.host, request.client.port)) if request.client else None
        if fault.kind == "reset" and transport is not None:
            transport.abort()
        if fault.kind == "cut":
            return _Cut(transport)
        return JSONResponse(fault.body, status_code=fault.status, headers=fault.headers)

    def _answer(self, scripted: str | JSON | Choice, recorded: Recorded) -> Response:
        choice = bounded(as_choice(scripted), recorded.body)
        count = recorded.body.get("n") or 1
        usage = self._usage(recorded, choice, count)
        head = {"id": "pretend", "created": 0, "model": self.model, "usage": usage}
        if recorded.path.endswith("/chat/completions"):
            choices = [chat_choice(choice, index) for index in range(count)]
            return JSONResponse({**head, "object": "chat.completion", "choices": choices})
        choices = [
            {"index": index, "text": choice.content, "finish_reason": choice.finish_reason, "logprobs": None}
            for index in range(count)
        ]
        return JSONResponse({**head, "object": "text_completion", "choices": choices})

    def _usage(self, recorded: Recorded, choice: Choice, count: int) -> JSON:
        prompt = tokens(recorded.prompt)
        cached = max((common(prompt, seen) for seen in self._seen), default=0) // BLOCK * BLOCK
        self._seen.append(prompt)
        generated = count * max(1, len(tokens(choice.content)))
        self.prompt_tokens += len(prompt)
        self.generated += generated
        self.steps += 1
        return {
            "prompt_tokens": len(prompt),
            "completion_tokens": generated,
            "total_tokens": len(prompt) + generated,
            "prompt_tokens_details": {"cached_tokens": cached} if self.details else None,
        }


class _Server(uvicorn.Server):
    """Leaves the signals to the program that it runs in, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Cut(Response):
    """Promises more bytes than it sends, then resets the connection."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        super().__init__(media_type="application/json")
        self.transport = transport

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002  ASGI's form
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"id": "pre', "more_body": True})
        await asyncio.sleep(0.02)
        if self.transport is not None:
            self.transport.abort()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def pretend_vllm(replies: Script = None, **settings: Any) -> AsyncIterator[PretendServer]:
    """A pretend vLLM server on a free loopback port.

    ``replies``: a list played in order (past its end the server refuses with 400), a function of the recorded request,
    or nothing: it says "ok", fits the schema or calls the first tool. ``settings`` are the fields of `PretendServer`.
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
    ) -> None:
        self.requests: list[ChatRequest | CompletionRequest] = []
        self._script = script if callable(script) else deque(script)
        self._native = native

    async def chat(self, request: ChatRequest) -> Reply:
        """The next scripted reply."""
        return self._play(request)

    async def complete(self, request: CompletionRequest) -> Reply:
        """The next scripted reply."""
        return self._play(request)

    async def native_tools(self, tier: str) -> bool:  # noqa: ARG002  the protocol names it
        """As told at the start."""
        return self._native

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
