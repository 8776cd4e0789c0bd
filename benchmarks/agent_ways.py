"""The ways from an agent to an engine that `pool_agents` compares: ours, two plain ones, and routers of others."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import IO, Any, Protocol

import aiohttp

from benchmarks.pool_overhead import free_port, installed, running
from pool.config import EndpointConfig, PoolConfig
from pool.errors import PoolError
from pool.router import Need, Pool

MODEL = "pretend"
TIER = "bench"
PATH = "/v1/chat/completions"
VLLM_ROUTER, SGLANG_ROUTER = "vllm-router==0.1.17", "sglang-router==0.3.2"
STARTING = 30.0
JSON = dict[str, Any]


@dataclass(frozen=True)
class Engines:
    """Where the engines are, and under what name they serve their model."""

    urls: tuple[str, ...]
    model: str = MODEL


@dataclass(slots=True)
class Outcome:
    """One call: seconds to the first token (None: none came) and the server's own count; ``error`` is empty if well."""

    sent: float
    ttft: float | None = None
    ended: float | None = None
    prompt: int = 0
    cached: int = 0
    output: int = 0
    error: str = ""

    def read(self, event: bytes) -> None:
        """Take the usage out of the last events of a stream."""
        at = event.rfind(b'"usage"')
        if at < 0:
            return
        usage = json.JSONDecoder().raw_decode(event[event.index(b"{", at) :].decode())[0]
        self.prompt, self.output = usage["prompt_tokens"], usage["completion_tokens"]
        self.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0

    def end(self, now: float) -> None:
        """It is over; without usage it was torn."""
        self.ended = now
        if not self.output and not self.error:
            self.error = "torn"


class Way(Protocol):
    """A way to the engines."""

    async def call(self, session: str, body: JSON, outcome: Outcome) -> None:
        """One call; fills the outcome as it goes, so that one that is cut short counts as well."""
        ...

    def acting(self, session: str, tool: str, usual: float) -> None:
        """The session runs a tool, which usually takes so many seconds."""
        ...

    def ended(self, session: str) -> None:
        """The session has had its last turn."""
        ...


Choose = Callable[[str], int]


class Direct:
    """HTTP to one of several addresses: all of the engines, or the one of a router."""

    def __init__(
        self, http: aiohttp.ClientSession, urls: tuple[str, ...], choose: Choose, leave: Callable[[int], None]
    ) -> None:
        self._http, self._urls, self._choose, self._leave = http, urls, choose, leave

    async def call(self, session: str, body: JSON, outcome: Outcome) -> None:
        """One call."""
        chosen = self._choose(session)
        headers = {"X-Session-ID": session, "X-SMG-Routing-Key": session, "X-Request-Id": uuid.uuid4().hex}
        try:
            async with self._http.post(self._urls[chosen] + PATH, json=body, headers=headers) as answer:
                if answer.status != 200:
                    outcome.error = str(answer.status)
                    return
                last = b""
                async for data in answer.content.iter_any():
                    if outcome.ttft is None:
                        outcome.ttft = time.monotonic() - outcome.sent
                    last = (last + data)[-2000:]
                outcome.read(last)
        except aiohttp.ClientError as error:
            outcome.error = type(error).__name__
        finally:
            self._leave(chosen)

    def acting(self, session: str, tool: str, usual: float) -> None:
        """Nobody to tell."""

    def ended(self, session: str) -> None:
        """Nobody to tell."""


class Ours:
    """Our pool in the agents' own process, told what its orchestrator knows."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def call(self, session: str, body: JSON, outcome: Outcome) -> None:
        """One call."""
        need = Need(
            tier=TIER,
            session=session,
            program=session,
            prompt=self._pool.keys.body(TIER, session, body),
            ceiling=body["max_tokens"],
        )
        try:
            async with self._pool.relay(need, PATH, body, {}) as answer:
                last = b""
                async for event in answer:
                    if outcome.ttft is None:
                        outcome.ttft = time.monotonic() - outcome.sent
                    last = (last + event)[-2000:]
                outcome.read(last)
        except PoolError as error:
            outcome.error = type(error).__name__

    def acting(self, session: str, tool: str, usual: float) -> None:
        """Tell the pool."""
        self._pool.acting(session, tool, usual)

    def ended(self, session: str) -> None:
        """Tell the pool."""
        self._pool.end_session(session)


def _stay(_: int) -> None:
    """For ways that count nothing."""


@asynccontextmanager
async def _client() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        yield http


@asynccontextmanager
async def round_robin(engines: Engines, log: IO[bytes]) -> AsyncIterator[Way]:  # noqa: ARG001  all have one form
    """Each call to the next engine."""
    turns = count()
    async with _client() as http:
        yield Direct(http, engines.urls, lambda _: next(turns) % len(engines.urls), _stay)


@asynccontextmanager
async def sticky(engines: Engines, log: IO[bytes]) -> AsyncIterator[Way]:  # noqa: ARG001
    """A session's first call to the engine with the fewest of our calls inside, all others to the same one."""
    inside, homes = [0] * len(engines.urls), dict[str, int]()

    def choose(session: str) -> int:
        if session not in homes:
            homes[session] = min(range(len(inside)), key=lambda i: (inside[i], sum(h == i for h in homes.values())))
        inside[homes[session]] += 1
        return homes[session]

    def leave(chosen: int) -> None:
        inside[chosen] -= 1

    async with _client() as http:
        yield Direct(http, engines.urls, choose, leave)


@asynccontextmanager
async def pool(engines: Engines, log: IO[bytes]) -> AsyncIterator[Way]:  # noqa: ARG001
    """Our pool, in process."""
    endpoints = tuple(EndpointConfig(name=f"e{i}", url=url, tier=TIER) for i, url in enumerate(engines.urls))
    config = PoolConfig(endpoints=endpoints, probe_interval=1.0)
    async with Pool(config) as made:
        await made.ready(TIER, STARTING)
        yield Ours(made)


@contextmanager
def _gateway(engines: Engines, log: IO[bytes]) -> Iterator[str]:
    told = [part for url in engines.urls for part in ("--endpoint", url)]
    command = [sys.executable, "-m", "swarm", "pool", "serve", *told, "--port", "0", "--json"]
    with running(command, log, stdout=subprocess.PIPE) as child:
        yield json.loads(child.stdout.readline())["url"].removesuffix("/v1")


@asynccontextmanager
async def gateway(engines: Engines, log: IO[bytes]) -> AsyncIterator[Way]:
    """Our pool behind its gateway, which is told nothing but a session's name."""
    with _gateway(engines, log) as url:
        async with _through(url, engines.model) as way:
            yield way


@asynccontextmanager
async def _through(url: str, model: str) -> AsyncIterator[Way]:
    async with _client() as http:
        await _answers(http, url, model)
        yield Direct(http, (url,), lambda _: 0, _stay)


async def _answers(http: aiohttp.ClientSession, url: str, model: str) -> None:
    """Wait until a router answers a chat."""
    body = {"model": model, "messages": [{"role": "user", "content": "Are you there?"}], "max_tokens": 1}
    async with asyncio.timeout(STARTING):
        while True:
            try:
                async with http.post(url + PATH, json=body, timeout=aiohttp.ClientTimeout(total=5)) as answer:
                    if answer.status == 200:
                        return
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.1)


Open = Callable[[Engines, IO[bytes]], Any]


def _peer(requirement: str, name: str, launch: list[str], flags: list[str]) -> Open:
    @asynccontextmanager
    async def opened(engines: Engines, log: IO[bytes]) -> AsyncIterator[Way]:
        folder = installed(requirement)
        if folder is None:
            raise FileNotFoundError(requirement)
        port, meter = free_port(), free_port()
        command = [
            str(folder / name),
            *launch,
            "--worker-urls",
            *engines.urls,
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        command += ["--prometheus-port", str(meter), "--log-level", "error", *flags]
        with running(command, log, stdout=log):
            async with _through(f"http://127.0.0.1:{port}", engines.model) as way:
                yield way

    return opened


def _vllm(*flags: str) -> Open:
    return _peer(VLLM_ROUTER, "vllm-router", [], list(flags))


def _sglang(*flags: str) -> Open:
    return _peer(SGLANG_ROUTER, "sglang-router", ["launch"], list(flags))


OURS = ("ours", "ours-gateway")
WAYS: dict[str, Open] = {
    "ours": pool,
    "ours-gateway": gateway,
    "round-robin": round_robin,
    "sticky": sticky,
    "vllm-router/cache_aware": _vllm("--policy", "cache_aware"),
    "vllm-router/consistent_hash": _vllm("--policy", "consistent_hash"),
    "vllm-router/sticky": _vllm("--policy", "sticky_least_loaded"),
    "vllm-router/program": _vllm("--policy", "cache_aware", "--enable-program-scheduling"),
    "sglang-router/cache_aware": _sglang("--policy", "cache_aware"),
    "sglang-router/manual": _sglang("--policy", "manual", "--assignment-mode", "min_load"),
}
"""All contenders by name; each opens a fresh one over the given engines."""
