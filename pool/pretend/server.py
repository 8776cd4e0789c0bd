"""The pretend vLLM server: real HTTP on loopback, a script for what it says, and an engine for how long it takes.

Its doings are in the files beside it; this one keeps the state of one server and its routes. It is longer than most
because the switches that a test may turn are told in one place.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pool.pretend.delivery import Delivery
from pool.pretend.door import Door
from pool.pretend.engine import EngineSettings
from pool.pretend.minds import EngineMind, Mind, ScriptMind, Turn
from pool.pretend.page import Latency, Numbers, page
from pool.pretend.publisher import KvEvents
from pool.pretend.reply import Reply
from pool.pretend.script import (
    Fault,
    Recorded,
    Script,
    Scripted,
    Slow,
    Twist,
    as_choice,
    bounded,
    call,
    error,
    example,
    queue_full,
    refusal,
    schema_of,
)
from pool.pretend.speech import Spoken, Voice
from pool.pretend.tokens import encoded_prompt, ids
from pool.types import CANARY_TOOL, Choice


@dataclass
class PretendServer:
    """A pretend vLLM server. ``requests`` holds what it was asked.

    The pool's canaries take nothing from the script, count nowhere and are held apart, in ``probes``: ``tools`` says
    how the one for tool calls is answered (``refused``: as a vLLM without a tool parser), or ``canary`` does so
    outright. ``running``, ``peak`` and ``dropped`` count requests inside, most at a time, and those whose client hung
    up; ``probed`` looks at health.

    With ``engine`` each request takes its time in a model of vLLM's scheduler and cache, and the metrics are that
    engine's; the length of an output that no script tells is `max_tokens`, or `vllm_xargs.output_tokens`. Its KV events
    are published where ``kv_events`` says so. ``details`` False leaves cached tokens untold. ``stream_interval`` and
    ``keep_alive`` (seconds) are vLLM's flags. While it has work, a probe is answered after ``probe_delay`` seconds.
    ``schemas`` False takes a JSON schema and answers as if there were none.
    ``dev_mode`` opens the routes of vLLM's VLLM_SERVER_DEV_MODE: /is_sleeping and /reset_prefix_cache.
    """

    script: Script = None
    model: str = "pretend"
    window: int = 8192
    tools: Literal["native", "text", "refused"] = "native"
    canary: Scripted | None = None
    schemas: bool = True
    details: bool = True
    health: int = 200
    port: int = 0
    engine: EngineSettings | None = None
    kv_events: KvEvents | None = None
    version: str = "0.32.0+pretend"
    stream_interval: int = 1
    keep_alive: float | None = None
    probe_delay: float = 0.0
    dev_mode: bool = False
    record: bool = True
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
        self._door = Door(self.port)
        if self.engine is not None:
            self.window = min(self.window, self.engine.kv_tokens)
        self._stopping = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._moving = asyncio.Event()
        self._moving.set()
        self._served = 0
        self._forget()

    @property
    def url(self) -> str:
        """Base address for an `EndpointConfig`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def mind(self) -> Mind:
        """What decides how long a request takes: the engine, or a script that takes no time."""
        return self._mind

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

    def wedge(self) -> None:
        """Stand still like a server whose engine hangs: healthy by its word, no step, every stream silent."""
        self._moving.clear()
        self._mind.wedge()

    def unwedge(self) -> None:
        """Move on."""
        self._moving.set()
        self._mind.unwedge()

    async def start(self) -> None:
        """Listen; after `stop` on the same port again."""
        self._stopping = asyncio.Event()
        await self._mind.start()
        await self._door.open(self._app())
        self.port = self._door.port

    async def stop(self) -> None:
        """Die: every connection is reset and nobody listens any more."""
        self._stopping.set()
        await self._door.close()
        await self._mind.stop()

    async def restart_cold(self) -> None:
        """Die and come back as a new process would: nothing cached, every counter at zero."""
        await self.stop()
        self.kv_events = self._mind.events
        self.prompt_tokens = self.generated = self.steps = 0
        self._forget()
        await self.start()

    def _forget(self) -> None:
        self._rejected = self._cached = 0
        self._started = time.time()
        self._finished: dict[str, int] = {}
        self._ttft = Latency()
        self._mind = ScriptMind() if self.engine is None else EngineMind(self.engine, self.kv_events)

    def _app(self) -> Starlette:
        dev = [
            Route("/is_sleeping", self._is_sleeping),
            Route("/reset_prefix_cache", self._reset_prefix_cache, methods=["POST"]),
        ]
        return Starlette(
            routes=[
                *(dev if self.dev_mode else ()),
                Route("/health", self._health),
                Route("/version", self._version),
                Route("/metrics", self._metrics),
                Route("/load", self._load),
                Route("/kv_event_sources", self._kv_event_sources),
                Route("/tokenize", self._tokenize, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", _Endpoint(self._generate), methods=["POST"]),
                Route("/v1/completions", _Endpoint(self._generate), methods=["POST"]),
            ]
        )

    async def _health(self, _: Request) -> Response:
        self.probed += 1
        await self._busy()
        return Response(status_code=self.health)

    async def _version(self, _: Request) -> Response:
        return JSONResponse({"version": self.version})

    async def _models(self, _: Request) -> Response:
        await self._busy()
        card = {"id": self.model, "object": "model", "owned_by": "vllm", "root": self.model, "parent": None}
        return JSONResponse({"object": "list", "data": [{**card, "max_model_len": self.window}]})

    async def _load(self, _: Request) -> Response:
        return JSONResponse({"server_load": self.running})

    async def _kv_event_sources(self, _: Request) -> Response:
        return JSONResponse(self._mind.event_sources())

    async def _is_sleeping(self, _: Request) -> Response:
        return JSONResponse({"is_sleeping": False})

    async def _reset_prefix_cache(self, _: Request) -> Response:
        self._mind.forget()
        return Response(status_code=200)

    async def _tokenize(self, request: Request) -> Response:
        found = ids(encoded_prompt(await request.json(), self._mind.tokenizer))
        return JSONResponse({"count": len(found), "max_model_len": self.window, "tokens": found, "token_strs": None})

    async def _metrics(self, _: Request) -> Response:
        await self._busy()
        return PlainTextResponse(page(self.model, self.numbers()))

    async def _busy(self) -> None:
        if self.running and self.probe_delay:
            await asyncio.sleep(self.probe_delay)

    def numbers(self) -> Numbers:
        """What the metrics page tells."""
        numbers = Numbers(
            running=self.running,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self._cached,
            queries=self.prompt_tokens,
            hits=self._cached,
            generated=self.generated,
            steps=self.steps,
            finished=self._finished,
            rejected=self._rejected,
            ttft=self._ttft,
            started=self._started,
        )
        self._mind.tell(numbers)
        return numbers

    async def _generate(self, request: Request, send: Callable[[Any], Awaitable[None]]) -> None:
        body = await request.json()
        recorded = Recorded(request.url.path, body, dict(request.headers))
        probe = _is_canary(recorded)
        if self.record:
            (self.probes if probe else self.requests).append(recorded)
        client = (request.client.host, request.client.port) if request.client else None
        delivery = Delivery(send, lambda: self._door.reset(client))
        self.running += not probe
        self.peak = max(self.peak, self.running)
        try:
            if not await self._unless_gone(self._play(recorded, delivery, probe=probe), request):
                self.dropped += not probe
                if not delivery.started:
                    await delivery.json({}, 499)
        finally:
            self.running -= not probe

    async def _unless_gone(self, work: Awaitable[None], request: Request) -> bool:
        """Do it; False when the client hung up or the server stopped before it was done."""
        doing, gone, stopping = (
            asyncio.ensure_future(what) for what in (work, _hung_up(request), self._stopping.wait())
        )
        try:
            await asyncio.wait({doing, gone, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stayed = doing.done()
            if stayed:
                doing.result()
            return stayed
        finally:
            for task in (doing, gone, stopping):
                task.cancel()
            await asyncio.gather(doing, gone, stopping, return_exceptions=True)

    async def _play(self, recorded: Recorded, delivery: Delivery, *, probe: bool) -> None:
        turn = self._mind.turn(recorded, probe=probe)
        scripted = refusal(recorded, self.model, self.window, self.tools, turn.prompt_tokens) or (
            self._canary(recorded) if probe else self._next(recorded)
        )
        seconds, twist = 0.0, Twist()
        while isinstance(scripted, Slow | Twist):
            if isinstance(scripted, Slow):
                seconds, scripted = seconds + scripted.seconds, scripted.then
            else:
                twist, scripted = scripted, scripted.then
        if isinstance(scripted, Fault):
            await self._pause(seconds)
            await self._fault(scripted, recorded, delivery)
        elif not self._mind.takes(recorded.body.get("n") or 1):
            self._rejected += 1
            await self._fault(queue_full(), recorded, delivery)
        else:
            await self._answer(turn, as_choice(scripted), delivery, twist, seconds)

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
        if body.get("tools") and self.tools == "native" and body.get("tool_choice", "auto") != "none":
            function = body["tools"][0]["function"]
            return call(function["name"], **example(function["parameters"]))
        schema = schema_of(body)
        if schema is not None and self.schemas:
            return json.dumps(example(schema), separators=(",", ":"))
        return self._mind.small_talk(body)

    def _canary(self, recorded: Recorded) -> Scripted:
        if not recorded.body.get("tools"):
            return self._default(recorded)
        if self.canary is not None:
            return self.canary
        return self._default(recorded) if self.tools == "native" else "I would call the tool."

    async def _pause(self, seconds: float) -> None:
        await self._open.wait()
        await asyncio.sleep(seconds)

    async def _fault(self, fault: Fault, recorded: Recorded, delivery: Delivery) -> None:
        if fault.kind == "hang":
            await self._stopping.wait()
        elif fault.kind == "cut":
            await delivery.cut(stream=bool(recorded.body.get("stream")))
        else:
            if fault.kind == "reset":
                delivery.reset()
            await delivery.json(fault.body, fault.status, fault.headers)

    async def _answer(self, turn: Turn, choice: Choice, delivery: Delivery, twist: Twist, seconds: float) -> None:
        body = turn.recorded.body
        reply = self._reply(turn, choice, seconds)
        answer = reply.answer(body.get("stream_interval") or self.stream_interval, self.keep_alive)
        done = False
        try:
            if body.get("stream"):
                await delivery.stream(answer, twist)
            else:
                await delivery.whole(answer, twist, lambda: self._load_header(turn.recorded))
            done = True
        finally:
            turn.close()
            if not _is_canary(turn.recorded):
                self._count(reply, done=done)

    def _reply(self, turn: Turn, choice: Choice, seconds: float) -> Reply:
        recorded, body, tokenizer = turn.recorded, turn.recorded.body, self._mind.tokenizer
        spoken = Spoken(bounded(choice, body, tokenizer, self.window - turn.prompt_tokens), tokenizer)
        chat = recorded.path.endswith("/chat/completions")
        self._served += 1
        name = recorded.headers.get("x-request-id") or f"pretend-{self._served}"
        voice = Voice(f"{'chatcmpl' if chat else 'cmpl'}-{name}", self.model, chat, body)
        counted = bool(body.get("stream")) and not _is_canary(recorded)

        def stepped() -> None:
            self.steps += counted

        samples = [spoken] * (body.get("n") or 1)
        return Reply(turn, voice, samples, lambda: self._pause(seconds), self._moving, stepped, self.details)

    def _count(self, reply: Reply, *, done: bool) -> None:
        reason = reply.finish if done else "abort"
        self._finished[reason] = self._finished.get(reason, 0) + len(reply.samples)
        if reply.ttft is not None:
            self._ttft.take(reply.ttft)
        if done:
            self.steps += not reply.voice.body.get("stream")
            self.prompt_tokens += reply.turn.prompt_tokens
            self._cached += reply.turn.cached
            self.generated += reply.generated

    def _load_header(self, recorded: Recorded) -> dict[str, str]:
        wanted = recorded.headers.get("endpoint-load-metrics-format", "").upper()
        numbers = asdict(self.numbers())
        told = {"kv_cache_usage_perc": float(numbers["kv_usage"]), "num_requests_waiting": float(numbers["waiting"])}
        if wanted == "JSON":
            return {"endpoint-load-metrics": f"JSON {json.dumps({'named_metrics': told})}"}
        if wanted == "TEXT":
            words = ", ".join(f"named_metrics.{name}={value}" for name, value in told.items())
            return {"endpoint-load-metrics": f"TEXT {words}"}
        return {}


def _is_canary(recorded: Recorded) -> bool:
    """Whether the pool asks this to learn what the server can do."""
    told = recorded.headers.get("x-session-id"), recorded.body.get("user")
    named = [tool["function"]["name"] for tool in recorded.body.get("tools") or ()]
    return CANARY_TOOL in (*told, *named)


class _Endpoint:
    """An ASGI application of one route, which answers in its own time and in pieces."""

    def __init__(self, serve: Callable[[Request, Callable[[Any], Awaitable[None]]], Awaitable[None]]) -> None:
        self._serve = serve

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._serve(Request(scope, receive), send)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
