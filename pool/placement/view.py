"""What placement is told and what it says: the ask, one endpoint as seen at one moment, the decision. Data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pool.types import LifeState, RequestClass


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as placement sees it: how long, and the keys of its whole KV blocks.

    ``chain`` has one key for each whole block from the first on; a key stands for its block and all before it, so two
    prompts that share key i share the first i+1 blocks. ``tokens`` is an estimate until a server has told, and
    ``block_tokens`` are the tokens that one key stands for, a fraction where blocks are counted in bytes.
    ``token_ids`` are given where a server told them; only with them can its published KV events be matched, from
    ``token_root`` on, which parts what may not be shared.
    """

    tokens: int
    chain: Sequence[int] = ()
    block_tokens: float = 16
    token_ids: Sequence[int] = ()
    token_root: int = 0


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
    ``group`` names endpoints that share KV blocks (a prefix on one is warm for all, at ``transfer_rate`` tokens a
    second); ``role`` is its part in a prefill/decode pair.
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
    transfer_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """How one endpoint looked to one ask: why it was left out, or what it would cost in seconds.

    ``seconds`` are by part: queue, prefill, transfer, decode, future (what it costs the next turns), late (past the
    deadline), doubt (a suspect may be dead), cold (slow start after a return). ``ttft`` is the wait for the first
    token that these parts foresee.
    """

    endpoint: str
    left_out: str = ""
    hit_tokens: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    ttft: float = 0.0

    @property
    def total(self) -> float:
        """The price of this endpoint in seconds."""
        return sum(self.seconds.values())


@dataclass(frozen=True, slots=True)
class Decision:
    """Where an ask goes and why. ``endpoint`` is None while nobody may take it; ``reason`` says what is awaited.

    ``again`` are seconds after which to ask again at the latest; None where only a change can help. What is named
    actual, and ``regret`` (seconds lost against the best foreseen elsewhere), is known once the answer was seen.
    """

    request: str
    session: str
    endpoint: str | None
    reason: str
    rows: Sequence[Row] = ()
    expected_ttft: float | None = None
    expected_hit: int = 0
    at: float = 0.0
    moved_from: str | None = None
    again: float | None = None
    actual_ttft: float | None = None
    actual_hit: int | None = None
    regret: float | None = None
