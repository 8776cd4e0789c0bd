"""The choice itself: filter, score in seconds, pick. Pure; what it is told is a snapshot of one moment.

A first turn goes by new tokens times batch (LMetric, arXiv 2603.15202), priced in seconds. A later one stays where its
prefix lives unless that costs more seconds, and moves one request at a time: an unbalanced fleet is no reason to take
the affinity of the others away (vllm-project/router#238). Without a match the load decides (sgl-project/sglang#14305).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from pool.placement.settings import Settings
from pool.placement.view import Ask, Row, Site

Allow = Callable[[str], str]
"""Admission's word on an endpoint, by its name: why it is closed to this ask, empty where it is open."""
GUESS = 0.75  # a prompt's tokens are an estimate; this share of them is certain enough to refuse a window by
COLD_LEAST = 0.1  # the slowest that a slow start makes an endpoint look


@dataclass(slots=True)
class Stand:
    """How one endpoint stands to one ask. ``hit`` and ``near`` are tokens of the prompt that it holds, itself and
    through its sharing group; ``batch`` are requests in it, ``pending`` prefill tokens ahead in it, ``waiting`` other
    people's requests in its queue. The rest are its prices in seconds and its KV cache in tokens."""

    site: Site
    hit: int = 0
    near: int = 0
    batch: float = 0.0
    crowd: float = 0.0
    pending: float = 0.0
    waiting: float = 0.0
    stay: float = 5.0
    base: float = 0.03
    token: float = 1.25e-4
    pair: float = 1e-9
    step: float = 0.02
    seat: float = 3.5e-4
    kv_tokens: int | None = None
    kv_in_flight: float = 0.0
    kv_live: float = 0.0
    at_home: bool = False


@dataclass(slots=True)
class Score:
    """The prices of one endpoint. ``queue`` to ``cold`` are seconds; ``ttft`` is the foreseen wait."""

    stand: Stand
    queue: float
    prefill: float
    transfer: float
    decode: float
    future: float
    late: float
    doubt: float
    cold: float
    ttft: float
    total: float

    def row(self) -> Row:
        """The same for people."""
        parts = ("queue", "prefill", "transfer", "decode", "future", "late", "doubt", "cold")
        seconds = {part: value for part in parts if (value := getattr(self, part))}
        return Row(
            self.stand.site.name, hit_tokens=max(self.stand.hit, self.stand.near), seconds=seconds, ttft=self.ttft
        )


@dataclass(frozen=True, slots=True)
class Picked:
    """What was picked and why. ``again``: seconds after which to ask again, where waiting is the cheapest."""

    score: Score | None
    reason: str
    again: float | None = None
    moved_from: str | None = None


def barred(ask: Ask, site: Site, tried: Collection[str], *, at_leisure: bool = False) -> str:
    """Why this endpoint may not take the ask now; empty when it may. Metrics alone never bar anybody.

    ``at_leisure`` asks whether it could take it later: what passes by itself then counts for nothing.
    """
    reason = _unfit(ask, site)
    if reason or at_leisure:
        return reason
    if site.name in tried:
        return "tried already"
    if site.cooling > 0:
        return f"cooling for {site.cooling:.1f} s"
    return "" if site.room > 0 else "no room"


def _unfit(ask: Ask, site: Site) -> str:
    if site.state not in ("up", "suspect"):
        return "down" if site.state == "down" else "not looked at yet"
    if site.role == "prefill":
        return "prefill part of a pair"
    if site.draining:
        return "draining"
    if not ask.needs <= site.capabilities:
        return "lacks " + ", ".join(sorted(ask.needs - site.capabilities))
    if site.window is not None and ask.prompt.tokens + ask.output_tokens > site.window:
        return f"window of {site.window} tokens is too small"
    return ""


def may_fit(ask: Ask, site: Site, tried: Collection[str]) -> bool:
    """Whether an endpoint is barred only by a guess: the estimate of a prompt's length is too long for its window."""
    if site.window is None or GUESS * ask.prompt.tokens >= site.window:
        return False
    return not barred(ask, replace(site, window=None), tried)


def score(ask: Ask, stand: Stand, settings: Settings, now: float, *, first: bool) -> Score:
    """The price of one endpoint in seconds."""
    site = stand.site
    known = max(stand.hit, stand.near)
    tokens = ask.prompt.tokens
    new = tokens - known if known < tokens else 1
    base, token, pair = stand.base, stand.token, stand.pair
    prefill = base + token * new + pair * new * (known + new / 2)
    transfer = (stand.near - stand.hit) / site.transfer_rate if known > stand.hit and site.transfer_rate else 0.0
    queue = token * stand.pending + stand.waiting * base
    future = 0.0
    if stand.kv_tokens:
        needed = new + ask.output_tokens
        over = stand.kv_in_flight + needed - stand.kv_tokens
        if over > 0 and stand.batch > 0:  # somebody has to leave first
            queue += stand.stay * min(1.0, over / needed)
        live = stand.kv_live + (0 if stand.at_home else tokens + ask.output_tokens)
        pressed = 1.0 - settings.pressed_from * stand.kv_tokens / live if live > 0 else 0.0
        if pressed > 0:  # as many of the next turns find their prefix evicted
            future = pressed * (base + token * tokens + pair * tokens * tokens / 2)
    ttft = queue + prefill + transfer
    decode = ask.output_tokens * (stand.step + stand.seat * (stand.batch + 1))
    over = now + ttft + decode - ask.deadline
    late = settings.late_price * over if over > 0 else 0.0
    if first:  # a request is in the way of all that decode there, and they of it
        queue *= 1 + stand.crowd
        prefill *= 1 + stand.crowd
    doubt = settings.doubt if site.state == "suspect" else 0.0
    cold = 0.0
    if site.warmth < 1.0:
        cold = (1 / max(COLD_LEAST, site.warmth) - 1) * (queue + prefill + transfer + decode)
    total = queue + prefill + transfer + decode + future + late + doubt + cold
    return Score(stand, queue, prefill, transfer, decode, future, late, doubt, cold, ttft, total)


def pick(scores: Sequence[Score], home: Score | None, settings: Settings) -> Picked:
    """The cheapest, unless the session's home is about as cheap. ``home`` is the home's price, if it may be asked."""
    best = min(scores, key=lambda s: (s.total, s.stand.kv_live, s.stand.site.name), default=None)
    if best is None:
        return Picked(None, "nobody may take it")
    if home is None:
        return Picked(best, "first turn: new tokens times batch")
    if best is home:
        return Picked(home, "stays: its prefix lives here")
    gain = home.total - best.total
    if gain < max(settings.least_gain, settings.least_share * home.total) and not (home.late and not best.late):
        return Picked(home, f"stays: moving would gain {gain:.2f} s only")
    return Picked(best, f"moves: saves {gain:.2f} s", moved_from=home.stand.site.name)


def patience(ask: Ask, best: Score, home: Score, free_in: float, now: float) -> float | None:
    """Seconds to wait for a home that may not be asked this moment; None when moving is cheaper.

    Waits no longer in all than the move would cost, so that the sum is at most twice the better of the two.
    """
    left = best.total - home.total - (now - ask.arrived)
    if free_in >= left or now + free_in + home.ttft >= ask.deadline:
        return None
    return max(0.01, min(left, max(free_in, 0.05)))
