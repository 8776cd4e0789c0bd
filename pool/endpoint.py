"""One server: asks it, probes it, and classes what goes wrong. With `channel` the network code of the request path.

Nothing is retried here but a kept connection that had gone stale, so that the router's budget is the only one. Every
server is asked to stream: time to the first token, life of the engine and the end of a dropped request are seen only
so. Probes have connections of their own, and no full server makes them wait behind requests.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from pool.asking import Asking, Raw
from pool.channel import Channel, UnreadError
from pool.config import EndpointConfig
from pool.errors import ContextOverflowError, PermanentError, PoolError, TransientError
from pool.relay import Relay
from pool.resume import continued, spliced
from pool.types import (
    ChatRequest,
    Choice,
    CompletionRequest,
    Frozen,
    Served,
    Usage,
)
from pool.wire.arguments import judged
from pool.wire.assembly import Part, whole
from pool.wire.faults import classify
from pool.wire.fields import JSON, Seen, chat_body, completion_body, merge, read_models
from pool.wire.metrics import Snapshot, parse

PROBE_TIMEOUT = 10.0  # seconds; a busy server answers a probe late, which is load and not death
CHARACTERS = 4  # of a text that are taken for one token where nobody counted
UNREADABLE = (ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RecursionError)
STREAMED: JSON = {"stream": True, "stream_options": {"include_usage": True}}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

Heard = Callable[[int], None]
"""Told of each piece of a streamed answer, with the number of tokens that it stands for (0: none that anybody sees)."""


def _unheard(_: int) -> None:
    """For those who do not ask to be told of progress."""


@dataclass(frozen=True, slots=True)
class Call:
    """How one try is made: the id that the server is told, who hears its pieces, and what another endpoint had said
    before it broke off, from which the answer goes on."""

    id: str = ""
    heard: Heard = _unheard
    partial: str = ""


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
        self._channel = Channel(config, connect_timeout)
        self._asking = Asking(config, connect_timeout)
        self._known: tuple[Served, Served] | None = None
        self._streams = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.aclose()
        await self._asking.aclose()

    async def chat(self, request: ChatRequest, seen: Seen, call: Call | None = None) -> Answer:
        """One chat turn. Raises PoolError, classed."""
        call = call or Call()

        async def ask(count: int) -> Part:
            body = chat_body(request, seen, count)
            choices, usage = await self._ask(CHAT, body, request.session, seen, call)
            return tuple(judged(choice, request.tools) for choice in choices), usage

        return await self._gather(ask, request.n, seen)

    async def complete(self, request: CompletionRequest, seen: Seen, call: Call | None = None) -> Answer:
        """One raw completion. Raises as `chat` does."""
        call = call or Call()

        async def ask(count: int) -> Part:
            body = completion_body(request, seen, count)
            return await self._ask(COMPLETIONS, body, request.session, seen, call)

        return await self._gather(ask, request.n, seen)

    async def relay(self, path: str, body: JSON, headers: Mapping[str, str]) -> Relay:
        """Send a body as it is; back once a 2xx answer begins. Raises PoolError, classed, for everything else.

        A ceiling above the room that the prompt leaves is lowered once, where the server tells what there is
        (vllm-project/vllm#42474). The caller closes the answer.
        """
        try:
            return Relay(self.name, await self._channel.post(path, body, headers))
        except ContextOverflowError as error:
            if (lower := _lowered(body, error)) is None:
                raise
            return Relay(self.name, await self._channel.post(path, lower, headers))

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

    async def get(self, path: str) -> Raw:
        """Ask one of the server's own routes. Raises PoolError, classed, where no answer came in time."""
        with self._classed():
            async with asyncio.timeout(PROBE_TIMEOUT):
                return await self._asking.get(path)

    async def post(self, path: str, body: JSON, session: str = "") -> Raw:
        """Put a question of our own to the server. Raises PoolError, classed, where no answer came."""
        headers = {"X-Request-Id": uuid.uuid4().hex} | ({"X-Session-ID": session} if session else {})
        with self._classed():
            return await self._asking.post(path, body, headers)

    async def question(self, path: str, body: JSON) -> Raw:
        """As `post`; what is no 2xx is raised, classed."""
        with self._classed():
            answer = await self._asking.post(path, body, {"X-Request-Id": uuid.uuid4().hex})
            self._check(answer)
            return answer

    async def _ask(self, path: str, body: JSON, session: str, seen: Seen, call: Call) -> Part:
        partial = call.partial
        further = continued(body, partial, len(partial) // CHARACTERS) if partial else None
        relay = await self._open(path, further or body, _headers(session, call.id), seen)
        async with aclosing(relay):
            if relay.streamed:
                part = await self._listen(relay, call.heard)
            else:
                part = whole(await relay.json())
                call.heard(max(1, part[1].completion_tokens))
        return _spliced(part, partial) if further else part

    async def _open(self, path: str, body: JSON, headers: Mapping[str, str], seen: Seen) -> Relay:
        """Send a question, streaming where that tells all; a server of another kind that cannot is remembered."""
        if not self._streams and seen.kind == "other":
            return await self.relay(path, body, headers)
        try:
            return await self.relay(path, body | STREAMED, headers)
        except PermanentError as error:
            if seen.kind != "other" or "stream" not in str(error):
                raise
            self._streams = False
            return await self.relay(path, body, headers)

    async def _listen(self, relay: Relay, heard: Heard) -> Part:
        pieces = relay.pieces()
        async with aclosing(pieces):  # type: ignore[type-var]  # an async generator by its nature
            async for _, piece in pieces:
                if piece is not None:
                    heard(1 if relay.said else 0)
        part = relay.assembly.done()
        if relay.assembly.usage is None:
            self._streams = False  # some servers count tokens only in answers that come whole
        return part

    async def _look(self) -> Pulse:
        health, models = [await self._asking.get(path) for path in ("/health", "/v1/models")]
        metrics = await self._page()
        if 503 in (health.status, models.status):
            return Pulse(served=None)
        self._check(models)
        served = read_models(self.name, json.loads(models.body), self.config.model)
        return Pulse(served=await self._details(served), snapshot=_snapshot(metrics))

    async def _page(self) -> Raw:
        """The page of metrics; one that is beyond all bounds is none, and the server may serve well all the same."""
        try:
            return await self._asking.get("/metrics")
        except UnreadError:
            return Raw(status=406, body=b"", headers={})

    async def _gather(self, ask: Callable[[int], Any], wanted: int, seen: Seen) -> Answer:
        """Ask until there are as many samples as wanted.

        llama.cpp refuses more in one request than it has slots, and some servers ignore `n` and give one.
        """
        choices: list[Choice] = []
        usages: list[Usage] = []
        while len(choices) < wanted:
            got, usage = await ask(min(seen.slots or wanted, wanted - len(choices)))
            usages.append(usage)
            choices.extend(got)
        return Answer(choices=tuple(choices[:wanted]), usage=merge(usages), model=seen.model)

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
        answer = await self._asking.get(path)
        if answer.status != 200:
            return {}
        body = json.loads(answer.body)
        return body if isinstance(body, dict) else {}

    def _check(self, answer: Raw) -> None:
        if not 200 <= answer.status < 300:
            raise classify(self.name, answer.status, self._channel.hidden(answer.text), answer.headers)

    @contextmanager
    def _classed(self) -> Iterator[None]:
        """Turns what a probe raises into the room's errors."""
        if self._channel.closed:
            raise TransientError(f"endpoint {self.name}: it has just left the pool")
        try:
            yield
        except TimeoutError as error:
            told = f"no whole answer from {self.config.url} within {PROBE_TIMEOUT:g} s"
            raise TransientError(f"endpoint {self.name}: {told}") from error
        except UNREADABLE as error:  # no JSON, or not of the expected shape: a probe loop must outlive it
            raise TransientError(f"endpoint {self.name}: its answer could not be read: {error}") from error


def _headers(session: str, request: str = "") -> dict[str, str]:
    headers = {"X-Request-Id": request or uuid.uuid4().hex}
    if session and session.isascii() and session.isprintable() and len(session) <= 128:
        headers["X-Session-ID"] = session  # vLLM only tags its KV events with it; routers in front may pin by it
    return headers


def _snapshot(metrics: Raw) -> Snapshot | None:
    """None for a server without metrics, and for a page that is no metrics: load is then unknown, not zero."""
    try:
        return parse(metrics.text) if metrics.status == 200 else None
    except UNREADABLE:
        return None


def _lowered(body: JSON, error: ContextOverflowError) -> JSON | None:
    """The body with a ceiling that fits, where the server told the window and the prompt leaves room in it."""
    name = next((name for name in ("max_tokens", "max_completion_tokens") if body.get(name)), None)
    if name is None or error.window is None or not isinstance(body[name], int):
        return None
    most = error.window - (error.prompt or 0)
    return {**body, name: most} if 0 < most < body[name] else None


def _spliced(part: Part, partial: str) -> Part:
    """What went on, behind what had been said."""
    choices, usage = part
    text = spliced(partial, choices[0].content)
    return (choices[0].model_copy(update={"content": text}), *choices[1:]), usage
