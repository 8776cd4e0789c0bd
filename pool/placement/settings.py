"""The numbers that placement works by: prices, patience and caps. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults that hold from a laptop's CPU server to a rack; what can be measured is measured, not set.

    A session moves only for a gain of ``least_gain`` seconds and of ``least_share`` of what staying costs. While an
    endpoint warms up after a return, at most ``rehomed_share`` of the live sessions, though at least ``rehomed_least``,
    may move to it within ``rehomed_window`` seconds. A session counts as live for ``idle_after`` seconds after its last
    turn: in agent traffic 94 % of the reuse comes within five minutes (uw-syfi/TraceLab).
    """

    least_gain: float = 0.25
    least_share: float = 0.2
    alike: float = 0.05
    alike_seconds: float = 0.02
    """First turns' prices this near to the lowest, in share and in seconds, count as equal: fewer live tokens win."""
    idle_after: float = 300.0
    rehomed_share: float = 0.05
    rehomed_least: int = 2
    rehomed_window: float = 10.0
    fresh_for: float = 5.0
    """Seconds for which a scrape is taken as the truth; from there on its weight halves as fast."""
    doubt: float = 2.0
    """Seconds that a suspect must be better by."""
    late_price: float = 4.0
    """What a second past the deadline costs, in seconds."""
    pressed_from: float = 0.8
    """Share of the KV cache that live sessions may fill before evictions are reckoned with."""
    next_turns: float = 3.0
    """How many turns to come count in the price of a cache that is too full for all who live on it."""
    first_turns: float = 8.0
    """How many turns a new session will share with the others there (uw-syfi/TraceLab: about 8 a request)."""
    default_kv_tokens: int = 500_000
    """Cap of the residency kept for an endpoint that does not tell its KV size."""
    most_sessions: int = 100_000
    most_decisions: int = 2_000
