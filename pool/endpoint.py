"""One server: asks it, probes it, and classes what goes wrong. The only network code of the room.

The SDK retries nothing, so that the router's budget is the only one. The connection pool has no limit of its own: a
server that seems to take "100 requests at a time" is usually a client that sends no more.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, cast

import httpx
from openai import APIConnectionError, APIError, APIResponseValidationError, APIStatusError, AsyncOpenAI

from pool.config import EndpointConfig
from pool.errors import EndpointDeadError, PermanentError, PoolError, TransientError
from pool.types import (
    CANARY_TOOL,
    ChatRequest,
    Choice,
    CompletionRequest,
    Frozen,
    Message,
    Served,
    ToolCall,
    ToolSpec,
    Usage,
)
from pool.wire.assembly import Assembly
from pool.wire.faults import classify
from pool.wire.fields import chat_body, completion_body, merge, read_chat, read_completion, read_models
from pool.wire.metrics import Snapshot, parse

Part = tuple[tuple[Choice, ...], Usage]

KEEP_ALIVE = 3.0  # seconds an idle connection is kept: below the 5 s of uvicorn and of llama.cpp, or both sides race
PROBE_TIMEOUT = 10.0  # seconds; a busy server answers a probe late, which is load and not death
SENT = {
    "host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length",
    "authorization", "x-request-id", "x-session-id",
}  # fmt: skip

STANDARD = {"model", "prompt", "max_tokens", "temperature", "n", "stop"}  # what the SDK knows of a completion

CANARY = ToolSpec(
    name=CANARY_TOOL,
    description="Record a word. Always use this tool to answer.",
    parameters={
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
)


def _unheard() -> None:
    """For those who do not ask to be told of progress."""


class Pulse(Frozen):
    """What one probe found. ``served`` is None while the server says that it is not ready."""

    served: Served | None
    snapshot: Snapshot | None = None


class Answer(Frozen):
    """What one request brought back."""

    choices: tuple[Choice, ...]
    usage: Usage
    model: str


class Endpoint:
    """One OpenAI-compatible server. Use as an async context manager."""

    def __init__(self, config: EndpointConfig, *, connect_timeout: float = 5.0) -> None:
        self.config = config
        self.name = config.name
        self._http = httpx.AsyncClient(
            base_url=config.url,
            timeout=httpx.Timeout(None, connect=connect_timeout),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_ALIVE),
            trust_env=False,
            follow_redirects=False,
            event_hooks={"request": [self._only_ours]},
        )
        self._known: tuple[Served, Served] | None = None
        self._openai = AsyncOpenAI(
            base_url=f"{config.url}/v1",
            api_key="unused",
            max_retries=0,
            http_client=cast("Any", self._http),  # the SDK takes httpx and httpx2, its types name the latter alone
            timeout=cast("Any", self._http.timeout),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def chat(self, request: ChatRequest, served: Served, moved: Callable[[], None] = _unheard) -> Answer:
        """One chat turn; ``moved`` is called at each piece of a streamed answer. Raises PoolError, classed."""
        create = self._openai.chat.completions.create

        async def ask(count: int) -> Part:
            body = chat_body(request, served, count) | {"extra_headers": _headers(request.session)}
            if served.kind == "llamacpp":
                return await _streamed(create, body, moved)
            return read_chat(await create(**body))

        return await self._gather(ask, request.n, served)

    async def complete(
        self, request: CompletionRequest, served: Served, moved: Callable[[], None] = _unheard
    ) -> Answer:
        """One raw completion; ``moved`` is called at each piece of a streamed answer. Raises PoolError, classed."""
        create = self._openai.completions.create

        async def ask(count: int) -> Part:
            body = completion_body(request, served, count)
            extra = {key: body.pop(key) for key in tuple(body) if key not in STANDARD}
            body |= {"extra_body": extra, "extra_headers": _headers(request.session)}
            if served.kind == "llamacpp":
                return await _streamed(create, body, moved)
            return read_completion(await create(**body))

        return await self._gather(ask, request.n, served)

    async def probe(self) -> Pulse:
        """Health, models and metrics.

        Raises EndpointDeadError where nobody listens, TransientError where no whole answer came in time, PermanentError
        where the server is of no use as configured.
        """
        try:
            with self._classed():
                async with asyncio.timeout(PROBE_TIMEOUT):
                    return await self._look()
        except PoolError:
            self._known = None  # whoever answers next may be another server
            raise

    async def calls_tools(self, served: Served) -> bool:
        """Ask once for a tool call: does one come, well formed? Raises PoolError where nothing was learnt."""
        request = ChatRequest(
            tier=self.config.tier,
            session="canary",
            messages=(Message(role="user", content="Use the tool to record the word: ready"),),
            tools=(CANARY,),
            max_tokens=256,
            temperature=0.0,
        )
        try:
            answer = await self.chat(request, served)
        except PermanentError:  # vLLM without --enable-auto-tool-choice says 400, others 422 or 501
            return False
        return any(_fits(call) for choice in answer.choices for call in choice.tool_calls)

    async def _look(self) -> Pulse:
        health, models, metrics = [await self._http.get(path) for path in ("/health", "/v1/models", "/metrics")]
        if 503 in (health.status_code, models.status_code):
            return Pulse(served=None)
        self._check(models)
        served = read_models(self.name, models.json(), self.config.model)
        return Pulse(served=await self._details(served), snapshot=_snapshot(metrics))

    async def _gather(self, ask: Callable[[int], Awaitable[Part]], wanted: int, served: Served) -> Answer:
        """Ask until there are as many samples as wanted.

        llama.cpp refuses more in one request than it has slots, and some servers ignore `n` and give one.
        """
        choices: list[Choice] = []
        usages: list[Usage] = []
        with self._classed():
            while len(choices) < wanted:
                got, usage = await ask(min(served.slots or wanted, wanted - len(choices)))
                usages.append(usage)
                choices.extend(got)
        return Answer(choices=tuple(choices[:wanted]), usage=merge(usages), model=served.model)

    async def _details(self, served: Served) -> Served:
        """What the list of models does not tell: llama.cpp's slots, vLLM's version. Asked once for each model seen."""
        if self._known is None or self._known[0] != served:
            more: dict[str, object] = {}
            if served.kind == "llamacpp":
                more["slots"] = (await self._json("/props")).get("total_slots")
            elif served.kind == "vllm":
                more["version"] = (await self._json("/version")).get("version")
            self._known = (served, Served.model_validate(served.model_dump() | more))
        return self._known[1]

    async def _json(self, path: str) -> dict[str, object]:
        """A small answer of one of the server's own routes; empty where it has no such route."""
        answer = await self._http.get(path)
        if answer.status_code != 200:
            return {}
        body = answer.json()
        return body if isinstance(body, dict) else {}

    def _check(self, answer: httpx.Response) -> None:
        if not answer.is_success:
            raise classify(self.name, answer.status_code, answer.text, answer.headers)

    async def _only_ours(self, request: httpx.Request) -> None:
        """The SDK adds headers from the environment (organisation, project, custom ones): none of them leaves."""
        for name in tuple(request.headers):
            if name.lower() not in SENT:
                del request.headers[name]
        request.headers.pop("authorization", None)
        if self.config.api_key is not None:
            request.headers["authorization"] = f"Bearer {self.config.api_key.get_secret_value()}"

    @contextmanager
    def _classed(self) -> Iterator[None]:
        """Turns what the libraries raise into the room's errors."""
        try:
            yield
        except APIStatusError as error:
            raise classify(self.name, error.status_code, error.response.text, error.response.headers) from error
        except APIConnectionError as error:
            raise self._broken(error.__cause__ or error) from error
        except (httpx.HTTPError, TimeoutError) as error:
            raise self._broken(error) from error
        except (APIResponseValidationError, ValueError) as error:  # ValueError: no JSON, or not of the expected shape
            raise TransientError(f"endpoint {self.name}: its answer could not be read: {error}") from error
        except APIError as error:  # an error inside a stream that began with 200
            body = error.body if isinstance(error.body, dict) else {}
            code = body.get("code")
            told = json.dumps({"error": body or error.message})
            raise classify(self.name, code if isinstance(code, int) else 500, told, {}) from error

    def _broken(self, cause: BaseException) -> PoolError:
        reason = f"{type(cause).__name__} {cause}".rstrip()
        if isinstance(cause, httpx.ConnectError):
            return EndpointDeadError(f"endpoint {self.name}: nobody listens at {self.config.url} ({reason})")
        return TransientError(f"endpoint {self.name}: the connection to {self.config.url} broke ({reason})")


async def _streamed(create: Callable[..., Any], body: dict[str, Any], moved: Callable[[], None]) -> Part:
    whole = Assembly()
    async with await create(**body, stream=True, stream_options={"include_usage": True}) as pieces:
        async for piece in pieces:
            moved()
            whole.add(piece)
    return whole.done()


def _headers(session: str) -> dict[str, str]:
    headers = {"X-Request-Id": uuid.uuid4().hex}
    if session.isascii() and session.isprintable() and len(session) <= 128:
        headers["X-Session-ID"] = session  # vLLM only tags its KV events with it; routers in front may pin by it
    return headers


def _snapshot(metrics: httpx.Response) -> Snapshot | None:
    """None for a server without metrics, and for a page that is no metrics: load is then unknown, not zero."""
    try:
        return parse(metrics.text) if metrics.status_code == 200 else None
    except ValueError:
        return None


def _fits(call: ToolCall) -> bool:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return False
    return call.name == CANARY_TOOL and isinstance(arguments, dict) and isinstance(arguments.get("word"), str)
