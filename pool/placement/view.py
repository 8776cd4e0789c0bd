"""What placement is told and what it says: the ask, one endpoint as seen at one moment, the decision. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field

from pool.types import LifeState, RequestClass


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as placement sees it: how long, and the keys of its whole KV blocks.

    ``chain`` has one key for each whole block from the first on; a key stands for its block and all before it, so two
    prompts that share key i share the first i+1 blocks. ``tokens`` is an estimate until a server has told.
    """

    tokens: int
    chain: tuple[int, ...] = ()
    block_tokens: int = 16


@dataclass(frozen=True, slots=True)
class Ask:
    """One request that looks for a place. Times are seconds of the pool's clock.

    ``session`` is one growing context, ``program`` the task tree that it belongs to, ``turn`` counts the session's
    requests from 0. ``output_tokens`` is a forecast. ``needs`` are capabilities (see `pool.types.Capability`).
    """

    request: str
    tier: str
    session: str
    prompt: Prompt
    arrived: float
    deadline: float
    program: str = ""
    request_class: RequestClass = "default"
    turn: int = 0
    output_tokens: int = 256
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Site:
    """What the roster knows of one endpoint, the same for every ask. None means unknown, never zero and never full.

    ``room`` are further requests that we may send; ``cooling`` are seconds for which it asked to be left alone;
    ``age`` is that of the scrape, in seconds; ``warmth`` from 0 to 1 is below 1 during the slow start after a return.
    ``group`` names endpoints that share KV blocks (a prefix on one is warm for all, at a transfer cost); ``role`` is
    its part in a prefill/decode pair.
    """

    name: str
    tier: str
    state: LifeState
    room: int = 1
    cooling: float = 0.0
    window: int | None = None
    capabilities: frozenset[str] = frozenset()
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    kv_tokens: int | None = None
    block_tokens: int = 16
    age: float | None = None
    warmth: float = 1.0
    group: str | None = None
    role: str = "both"
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """How one endpoint looked to one ask: why it was left out, or what it would cost in seconds.

    ``seconds`` are by part: queue, prefill, transfer, decode, future (what a move costs the next turns).
    """

    endpoint: str
    left_out: str = ""
    hit_tokens: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """The price of this endpoint in seconds."""
        return sum(self.seconds.values())


@dataclass(frozen=True, slots=True)
class Decision:
    """Where an ask goes and why. ``endpoint`` is None while nobody may take it; ``reason`` says what is awaited."""

    request: str
    session: str
    endpoint: str | None
    reason: str
    rows: tuple[Row, ...] = ()
    expected_ttft: float | None = None
    expected_hit: int = 0
    at: float = 0.0
    moved_from: str | None = None
