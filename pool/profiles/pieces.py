"""The parts that launch commands are put together from: flags and environment, each with its reason. Pure data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from pool.address import SOCKET_LIMIT
from pool.errors import PoolConfigError
from pool.profiles.gpus import Gpu
from pool.profiles.models import Model
from pool.profiles.versions import Kind
from pool.types import Frozen

SHUTDOWN = 30
KEEP_ALIVE = 30
SSE = 15


class Piece(Frozen):
    """One flag with its values, and why it is there. ``needs`` are further names that the release must know.

    One that ``must`` be there makes its profile; without it the release cannot serve the profile at all.
    """

    words: tuple[str, ...]
    why: str
    needs: tuple[tuple[Kind, str], ...] = ()
    must: bool = False


class Variable(Frozen):
    """One environment variable of the server, and why it is there."""

    name: str
    value: str
    why: str


class Wish(Frozen):
    """What a recipe is asked for. None is left to the recipe; ``path`` is what vLLM is told to load.

    ``host_memory`` is in GiB. ``run`` is a folder of ours for sockets of local servers. ``notes`` tell what of it was
    made otherwise than it was asked.
    """

    profile: str
    model: Model
    path: str
    name: str
    run: Path
    gpu: Gpu | None = None
    tensor_parallel: int = Field(default=1, ge=1)
    replicas: int = Field(default=1, ge=1)
    window: int | None = Field(default=None, gt=0)
    sessions: int | None = Field(default=None, gt=0)
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65534)
    kv_bits: Literal[8, 16] = 16
    connector: str | None = None
    host_memory: float | None = Field(default=None, gt=0)
    draft: str | None = None
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    chat_template: str | None = None
    libraries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def seats(self) -> int:
        """Sequences decoded together: twice the agents that fit at their full window, as most are far below it."""
        return min(256, max(8, 2 * (self.sessions or 16)))


def flag(name: str, *values: object, why: str, must: bool = False, needs: tuple[tuple[Kind, str], ...] = ()) -> Piece:
    """A flag; dicts become JSON."""
    words = (json.dumps(v, separators=(",", ":")) if isinstance(v, dict) else str(v) for v in values)
    return Piece(words=(name, *words), why=why, must=must, needs=needs)


def transfer(connector: str, role: str, why: str, **extra: Any) -> Piece:
    """The flag that puts a KV connector into the engine."""
    told: dict[str, Any] = {"kv_connector": connector, "kv_role": role}
    if extra:
        told["kv_connector_extra_config"] = extra
    return flag("--kv-transfer-config", told, why=why, must=True, needs=(("connector", connector),))


def window(wish: Wish) -> list[Piece]:
    """How much there is of everything."""
    found = []
    if wish.window:
        found.append(flag("--max-model-len", wish.window, why="the window that the memory was planned for"))
    if wish.tensor_parallel > 1:
        found.append(flag("--tensor-parallel-size", wish.tensor_parallel, why="the model is split over these GPUs"))
    if wish.kv_bits == 8:
        found.append(flag("--kv-cache-dtype", "fp8", why="half the bytes a token of KV, at some cost in accuracy"))
    found.append(flag("--max-num-seqs", wish.seats, why="sequences decoded together; more would only evict KV"))
    return found


def agents(wish: Wish) -> list[Piece]:
    """What every server of agents should have, whatever its profile."""
    events = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": socket(wish, "events"),
        "replay_endpoint": socket(wish, "replay"),
    }
    return [
        flag("--enable-prefix-caching", why="an agent's next turn begins with its last; on by default, said aloud"),
        *parsers(wish),
        flag("--enable-prompt-tokens-details", why="replies tell their cached tokens: placement learns what was warm"),
        flag("--enable-force-include-usage", why="streams tell their tokens without being asked"),
        flag("--enable-per-request-metrics", why="replies tell their queue and prefill time apart"),
        flag("--enable-server-load-tracking", why="/load tells the requests inside"),
        flag("--scheduling-policy", "priority", why="else vLLM ignores a request's priority without a word"),
        flag(
            "--max-num-queued-reqs",
            2 * wish.seats,
            why="a bound of the queue: counts all requests inside, so seats and as many waiting; beyond it 503",
        ),
        flag("--shutdown-timeout", SHUTDOWN, why="seconds in which SIGTERM lets requests end, rather than abort them"),
        flag("--kv-cache-metrics", why="how long blocks live and idle: shows a thrashing cache"),
        flag("--kv-events-config", events, why="what its cache gains and loses, as it happens, on a local socket"),
        flag("--sse-keep-alive-interval", SSE, why="a comment line in long silences, so that proxies do not hang up"),
    ]


def parsers(wish: Wish) -> list[Piece]:
    """The flags of tool calls and reasoning; as asked, else as the model's facts tell."""
    found = []
    tool = wish.tool_parser or wish.model.tool_parser
    if tool:
        why = "as asked" if wish.tool_parser else wish.model.parsers_from
        found.append(flag("--enable-auto-tool-choice", why="else a request with tools is refused"))
        found.append(flag("--tool-call-parser", tool, why=why, needs=(("tool_parser", tool),)))
    reasoning = wish.reasoning_parser or wish.model.reasoning_parser
    if reasoning:
        why = "as asked" if wish.reasoning_parser else wish.model.parsers_from
        found.append(flag("--reasoning-parser", reasoning, why=why, needs=(("reasoning_parser", reasoning),)))
    if wish.chat_template:
        found.append(flag("--chat-template", wish.chat_template, why="as asked"))
    return found


def socket(wish: Wish, what: str) -> str:
    """The address of a local socket of one server: in our own folder, so that other hosts and users see none.

    Raises PoolConfigError where the kernel would not bind it.
    """
    path = f"{wish.run}/{wish.port}-{what}.sock"
    if (length := len(os.fsencode(path))) > SOCKET_LIMIT:
        told_long = f"the local socket {path} has {length} bytes, the kernel takes {SOCKET_LIMIT}"
        raise PoolConfigError(f"{told_long}; set XDG_STATE_HOME to a shorter folder")
    return f"ipc://{path}"


def always() -> list[Variable]:
    """The environment of every server."""
    return [
        Variable(
            name="VLLM_HTTP_TIMEOUT_KEEP_ALIVE",
            value=str(KEEP_ALIVE),
            why="idle connections outlive those of any client here; vLLM's own 5 s race with them (reset, 502)",
        ),
        Variable(name="VLLM_NO_USAGE_STATS", value="1", why="it reports nothing to its makers"),
    ]
