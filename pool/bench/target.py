"""Whom a bench asks: one server straight, or a tier through the pool. A turn gives an Outcome, whatever happens."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple, Protocol

from pool.bench.figures import Outcome
from pool.config import EndpointConfig, PoolConfig
from pool.endpoint import Endpoint
from pool.errors import OverloadError, PoolConfigError, PoolError, TransientError
from pool.router import Pool
from pool.trip import Need
from pool.types import Served, ServerKind
from pool.wire.metrics import Snapshot

JSON = dict[str, Any]
PATH = "/v1/chat/completions"
TOOL = "shell"
FIELDS = ("ignore_eos", "min_tokens")  # what makes an answer go on to the wanted length
JOINING = 30.0  # seconds for a server to be found


class Turn(NamedTuple):
    """One request: whose session it is ("" for one that is nobody's), its messages, and how many tokens it wants."""

    session: str
    messages: list[JSON]
    output: int
    deadline: float


class Gauges(NamedTuple):
    """What the servers say of themselves, summed; None where none tells."""

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    preemptions: int | None = None


class Target(Protocol):
    """Whoever can be asked."""

    name: str
    exact: tuple[str, ...]
    note: str

    async def ask(self, turn: Turn) -> Outcome:
        """One turn; whatever goes wrong is in the outcome."""
        ...

    async def gauges(self) -> Gauges:
        """How the servers stand now."""
        ...

    def acting(self, session: str) -> None:
        """The session's tool runs now."""

    def over(self, session: str) -> None:
        """The session asks no more."""


class Exactness(NamedTuple):
    """Whether servers are asked to go on to exactly the wanted length; None asks those that are known to do so."""

    on: bool | None = None

    def names(self, kinds: Collection[ServerKind | None]) -> tuple[str, ...]:
        """The fields that say so to servers of these kinds: vLLM knows both, llama.cpp the first, which does there."""
        if self.on is False:
            return ()
        if kinds and set(kinds) <= {"vllm", "llamacpp"}:
            return FIELDS if set(kinds) == {"vllm"} else FIELDS[:1]
        return FIELDS if self.on else ()

    def note(self, kinds: Collection[ServerKind | None]) -> str:
        """What a person should know of that; empty where it goes without saying."""
        if self.on is False or (kinds and set(kinds) <= {"vllm", "llamacpp"}):
            return ""
        if self.on:
            return f"a server that is neither vLLM nor llama.cpp may refuse {' and '.join(FIELDS)}: then --no-exact"
        return "not every server is vLLM or llama.cpp: answers may end before the wanted length (--exact asks for it)"


class Straight:
    """One server, with nothing between."""

    def __init__(self, endpoint: Endpoint, served: Served, exact: Exactness) -> None:
        self.name = endpoint.config.url
        self.exact, self.note = exact.names([served.kind]), exact.note([served.kind])
        self._endpoint = endpoint
        self._model = endpoint.config.model or served.model

    async def ask(self, turn: Turn) -> Outcome:
        """One turn, judged as the pool judges it: good only with a finish reason and the terminator."""
        outcome = Outcome(began=time.perf_counter())
        try:
            body = _body(turn, self._model, self.exact)
            headers = {"X-Session-ID": turn.session} if turn.session else {}
            relay = await self._endpoint.relay(PATH, body, headers)
            try:
                pieces = relay.pieces()
                async with aclosing(pieces):  # type: ignore[type-var]  # an async generator by its nature
                    async for _, piece in pieces:
                        if piece:
                            _note(outcome, piece)
            finally:
                await relay.aclose()
        except PoolError as error:
            return _lost(outcome, error)
        return _ended(outcome)

    async def gauges(self) -> Gauges:
        """What /metrics says now; nothing where it does not answer."""
        try:
            return _gauges([(await self._endpoint.probe()).snapshot])
        except PoolError:
            return Gauges()

    def acting(self, session: str) -> None:
        """A server alone is not told."""

    def over(self, session: str) -> None:
        """A server alone is not told."""


class Through:
    """A tier of a pool."""

    def __init__(self, pool: Pool, tier: str, exact: Exactness) -> None:
        self.name = f"tier {tier}"
        kinds = [one.kind for one in pool.status() if one.tier == tier and one.state == "up"]
        self.exact, self.note = exact.names(kinds), exact.note(kinds)
        self._pool = pool
        self._tier = tier

    async def ask(self, turn: Turn) -> Outcome:
        """One turn through placement, admission and failover."""
        outcome = Outcome(began=time.perf_counter())
        body = _body(turn, self._tier, self.exact)
        prompt = self._pool.keys.body(self._tier, turn.session, body)
        need = Need(
            tier=self._tier,
            session=turn.session,
            prompt=prompt,
            deadline=turn.deadline,
            output_tokens=turn.output,
            ceiling=turn.output,
        )
        try:
            async with self._pool.relay(need, PATH, body, {}) as relayed:
                outcome.waited = relayed.waited
                async for data in relayed:
                    if piece := _piece(data):
                        _note(outcome, piece)
        except PoolError as error:
            return _lost(outcome, error)
        return _ended(outcome)

    async def gauges(self) -> Gauges:
        """What the pool knows of the tier's servers."""
        members = [one for one in self._pool.status() if one.tier == self._tier]
        return Gauges(
            running=_sum([one.running for one in members]),
            waiting=_sum([one.waiting for one in members]),
            kv_usage=max((one.kv_usage for one in members if one.kv_usage is not None), default=None),
        )

    def acting(self, session: str) -> None:
        """As the project's own agents say it; how long the tool takes is for the pool to find out."""
        self._pool.acting(session, TOOL)

    def over(self, session: str) -> None:
        """Its live place is free from now on."""
        self._pool.end_session(session)


@asynccontextmanager
async def straight(config: EndpointConfig, exact: Exactness) -> AsyncIterator[Straight]:
    """A server to ask, once it was found. Raises PoolConfigError where it does not serve."""
    async with Endpoint(config) as endpoint:
        try:
            pulse = await endpoint.probe()
        except PoolError as error:
            why = str(error).removeprefix(f"endpoint {config.name}: ")
            raise PoolConfigError(f"the server at {config.url} cannot be benched: {why}") from None
        if pulse.served is None:
            raise PoolConfigError(f"the server at {config.url} says that it is not ready")
        yield Straight(endpoint, pulse.served, exact)


@asynccontextmanager
async def through(config: PoolConfig, tier: str, exact: Exactness) -> AsyncIterator[Through]:
    """A tier to ask, once one of its servers lives. Raises PoolConfigError and NoEndpointError where none does."""
    async with Pool(config) as pool:
        await pool.ready(tier, timeout=JOINING)
        yield Through(pool, tier, exact)


def run_id() -> str:
    """Something that no earlier run had, so that no prefix cache knows this one's texts."""
    return uuid.uuid4().hex[:8]


def _body(turn: Turn, model: str, exact: tuple[str, ...]) -> JSON:
    wanted = {"ignore_eos": True, "min_tokens": turn.output}
    return {
        "model": model,
        "messages": turn.messages,
        "max_tokens": turn.output,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **{name: wanted[name] for name in exact},
    }


def _piece(data: bytes) -> JSON | None:
    """The object in an event's bytes; None for comments and the terminator."""
    value_part = data.partition(b"data:")[2].strip()
    if not value_part or value_part == b"[DONE]":
        return None
    value: JSON = json.loads(value_part)
    if value.get("error") and not value.get("choices"):
        raise TransientError(f"the stream holds an error: {str(value['error'])[:200]}")
    return value


def _note(outcome: Outcome, piece: JSON) -> None:
    """Take down what one piece of a stream says, and when."""
    now = time.perf_counter()
    for choice in piece.get("choices") or ():
        delta = choice.get("delta") or {}
        said = delta.get("content") or delta.get("reasoning") or delta.get("reasoning_content")
        if said or delta.get("tool_calls"):
            if outcome.first is None:
                outcome.first = now
            elif outcome.ended is not None:
                outcome.gaps.append(now - outcome.ended)
            outcome.ended = now
            outcome.output += 1
            outcome.text += said or ""
    if usage := piece.get("usage"):
        outcome.prompt = int(usage.get("prompt_tokens") or 0)
        outcome.output = int(usage.get("completion_tokens") or outcome.output)
        details = usage.get("prompt_tokens_details") or {}
        outcome.cached = details.get("cached_tokens", outcome.cached)


def _ended(outcome: Outcome) -> Outcome:
    if outcome.first is None:
        outcome.fate, outcome.why = "failed", "an answer without a word"
        return outcome
    outcome.fate, outcome.ended = "ok", time.perf_counter()
    return outcome


def _lost(outcome: Outcome, error: PoolError) -> Outcome:
    outcome.fate = "rejected" if isinstance(error, OverloadError) else "failed"
    outcome.why = str(error)[:200]
    outcome.ended = time.perf_counter()
    return outcome


def _gauges(snapshots: list[Snapshot | None]) -> Gauges:
    known = [one for one in snapshots if one is not None]
    return Gauges(
        running=_sum([one.running for one in known]),
        waiting=_sum([one.waiting for one in known]),
        kv_usage=max((one.kv_usage for one in known if one.kv_usage is not None), default=None),
        preemptions=_sum([one.preemptions for one in known]),
    )


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
