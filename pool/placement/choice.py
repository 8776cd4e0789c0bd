"""The choice itself: filter, score in seconds, pick. It reads one moment's numbers and changes none of them.

A first turn goes by new tokens times batch (LMetric, arXiv 2603.15202), priced in seconds. A later one stays where its
prefix lives unless that costs more seconds, and moves one request at a time: an unbalanced fleet is no reason to take
the affinity of the others away (vllm-project/router#238). Without a match the load decides (sgl-project/sglang#14305).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pool.placement.load import Lane
from pool.placement.settings import Settings
from pool.placement.view import Ask, Row, Site

Allow = Callable[[str], str]
"""Admission's word on an endpoint, by its name: why it is closed to this ask, empty where it is open."""

GUESS = 0.75  # a prompt's tokens are an estimate; this share of them is certain enough to refuse a window by
COLD_LEAST = 0.1  # the slowest that a slow start makes an endpoint look
LIVING = ("up", "suspect")
PARTS = ("queue", "prefill", "transfer", "decode", "future", "late", "doubt", "cold")


@dataclass(slots=True)
class Scene:
    """What all candidates of one choice have in common.

    ``depths`` and ``groups`` say how many of the chain's keys an endpoint and a sharing group hold, ``exact`` has the
    tokens that endpoints themselves told to hold; ``foreign`` and ``foreign_waiting`` are usual where an endpoint's are
    unknown, ``duty`` is the busy share of the live sessions, ``first`` whether there is no place to stay at.
    """

    ask: Ask
    now: float
    settings: Settings
    home: str | None
    depths: dict[str, int]
    groups: dict[str, int]
    exact: dict[str, int]
    foreign: float = 0.0
    foreign_waiting: float = 0.0
    duty: float = 1.0
    first: bool = True


class Score(NamedTuple):
    """The price of one endpoint: its parts in seconds, their sum first, and the wait for the first token that they
    foresee. ``live`` tokens and the name settle ties."""

    total: float
    live: int
    name: str
    ttft: float
    hit: int
    queue: float
    prefill: float
    transfer: float
    decode: float
    future: float
    late: float
    doubt: float
    cold: float

    def row(self) -> Row:
        """The same for people."""
        seconds = {part: value for part in PARTS if (value := getattr(self, part))}
        return Row(self.name, hit_tokens=self.hit, seconds=seconds, ttft=self.ttft)


@dataclass(frozen=True, slots=True)
class Picked:
    """What was picked and why. ``again``: seconds after which to ask again, where waiting is the cheapest."""

    score: Score | None
    reason: str
    again: float | None = None


def barred(ask: Ask, site: Site, tried: Collection[str], *, at_leisure: bool = False) -> str:
    """Why this endpoint may not take the ask now; empty when it may. Metrics alone never bar anybody.

    ``at_leisure`` asks whether it could take it later: what passes by itself then counts for nothing.
    """
    if site.state != "up" or site.draining or site.window is not None or ask.needs or site.role == "prefill":
        reason = _unfit(ask, site)
        if reason:
            return reason
    if at_leisure:
        return ""
    if site.name in tried:
        return "tried already"
    if site.cooling > 0:
        return f"cooling for {site.cooling:.1f} s"
    return "" if site.room > 0 else "no room"


def _unfit(ask: Ask, site: Site) -> str:
    if site.state not in LIVING:
        return "down" if site.state == "down" else "not looked at yet"
    if site.role == "prefill":
        return "prefill part of a pair"
    if site.draining:
        return "draining"
    if ask.needs and not ask.needs <= site.capabilities:
        return "lacks " + ", ".join(sorted(ask.needs - site.capabilities))
    if site.window is not None and ask.prompt.tokens + ask.output_tokens > site.window:
        return f"window of {site.window} tokens is too small"
    return ""


def may_fit(ask: Ask, site: Site, tried: Collection[str]) -> bool:
    """Whether an endpoint is barred only by a guess: the estimate of a prompt's length is too long for its window."""
    if site.window is None or GUESS * ask.prompt.tokens >= site.window:
        return False
    return not barred(ask, replace(site, window=None), tried)


def held_tokens(scene: Scene, site: Site) -> float:
    """Tokens of the prompt that the endpoint or its sharing group holds, before they are counted in whole blocks."""
    if site.name in scene.exact:
        return scene.exact[site.name]
    keys = scene.depths.get(site.name, 0)
    if site.group is not None and site.transfer_rate:
        keys = max(keys, scene.groups.get(site.group, 0))
    return keys * scene.ask.prompt.block_tokens


def hits(ask: Ask, site: Site, lane: Lane, scene: Scene) -> tuple[int, int]:
    """Tokens of the prompt that the endpoint would find in its own cache, and through its sharing group.

    Whole blocks of its own size, and never the whole prompt: the last token is always computed.
    """
    hit = _whole(ask, site, scene.depths.get(site.name, 0) * lane.trust)
    if (exact := scene.exact.get(site.name)) is not None:
        hit = min(exact, ask.prompt.tokens - 1)
    if site.group is None or not site.transfer_rate:
        return hit, hit
    return hit, max(hit, _whole(ask, site, scene.groups.get(site.group, 0)))


def _whole(ask: Ask, site: Site, keys: float) -> int:
    held = min(int(keys * ask.prompt.block_tokens + 1e-6), ask.prompt.tokens - 1)
    return held // site.block_tokens * site.block_tokens


def score(site: Site, lane: Lane, scene: Scene) -> Score:
    """The price of one endpoint in seconds. One long function: it runs for every endpoint of every request."""
    ask, settings = scene.ask, scene.settings
    tokens, output = ask.prompt.tokens, ask.output_tokens
    hit, near = hits(ask, site, lane, scene) if scene.depths or scene.exact else (0, 0)
    new = tokens - near
    base, token, pair = lane.base, lane.token, lane.pair
    prefill = base + token * new + pair * new * (near + new / 2)
    transfer = (near - hit) / site.transfer_rate if near > hit and site.transfer_rate else 0.0
    if lane.scraped_at is None:
        foreign, waiting = scene.foreign, scene.foreign_waiting
    else:
        believed = lane.believed(scene.now, settings.fresh_for)
        foreign, waiting = lane.foreign * believed, lane.foreign_waiting * believed
    batch = lane.in_flight + foreign
    queue = token * lane.pending + base * waiting
    future = 0.0
    if site.kv_tokens:
        crowded = lane.context + new + output - site.kv_tokens
        if crowded > 0 and batch > 0:  # somebody has to leave first
            queue += lane.stay * min(1.0, crowded / (new + output))
        live = lane.live_tokens + (0 if site.name == scene.home else tokens + output)
        pressed = 1.0 - settings.pressed_from * site.kv_tokens / live if live else 0.0
        if pressed > 0:  # as large a share of the next turns will find its prefix evicted
            future = settings.next_turns * pressed * (base + token * tokens + pair * tokens * tokens / 2)
        evicted = new + output - lane.kv_free
        if evicted > 0:  # others will miss them, the more surely the shorter ago they used them
            missed = 1.0 - (scene.now - lane.kv_oldest) / settings.idle_after
            future = max(future, missed * evicted * (token + pair * tokens / 2))
    decode = output * (lane.step + lane.seat * (batch + 1))
    ttft = queue + prefill + transfer
    over = scene.now + ttft + decode - ask.deadline
    late = settings.late_price * over if over > 0 else 0.0
    if scene.first:  # a prefill is in the way of all that decode there; where it stays for long, usual company counts
        usual = (batch + foreign + scene.duty * lane.live_sessions) / 2
        queue *= 1 + usual
        prefill *= 1 + usual
        future += settings.first_turns * output * lane.seat * usual
    doubt = 0.0 if site.state == "up" else settings.doubt
    cold = 0.0
    if site.warmth < 1.0:
        cold = (1 / max(COLD_LEAST, site.warmth) - 1) * (queue + prefill + transfer + decode)
    total = queue + prefill + transfer + decode + future + late + doubt + cold
    parts = (queue, prefill, transfer, decode, future, late, doubt, cold)
    return tuple.__new__(Score, (total, lane.live_tokens, site.name, ttft, near, *parts))  # half the time of Score()


def floor(scene: Scene, least: Lane, held: float, emptiest: float) -> float:
    """Seconds below which nobody can come that holds no more than the first ``held`` keys of the prompt.

    ``least`` has the lowest prices of all, ``emptiest`` is the lowest share to which live sessions fill a KV cache.
    """
    ask, tokens = scene.ask, scene.ask.prompt.tokens
    new = max(1.0, tokens - held * ask.prompt.block_tokens)
    prefill = least.base + least.token * new + least.pair * new * (tokens - new / 2)
    whole = least.base + least.token * tokens + least.pair * tokens * tokens / 2
    pressed = 1 - scene.settings.pressed_from / emptiest if emptiest else 0.0
    return (
        prefill + ask.output_tokens * (least.step + least.seat) + scene.settings.next_turns * max(0.0, pressed) * whole
    )


def enough(home: Score, settings: Settings) -> float:
    """Seconds by which another endpoint must be cheaper than a session's home."""
    return max(settings.least_gain, settings.least_share * home.total)


def pick(scores: Sequence[Score], home: Score | None, settings: Settings) -> Picked:
    """The cheapest, unless the session's home is about as cheap. ``home`` is the home's price, if it may be asked."""
    best = min(scores, default=None)
    if best is None:
        return Picked(None, "nobody may take it")
    if home is None:
        about = best.total * (1 + settings.alike) + settings.alike_seconds
        best = min((s for s in scores if s.total <= about), key=lambda s: s[1:3])
        return Picked(best, "no prefix to stay at: new tokens times batch")
    if best is home:
        return Picked(home, "stays: its prefix lives here")
    gain = home.total - best.total
    if gain < enough(home, settings) and not (home.late and not best.late):
        return Picked(home, f"stays: moving would gain {gain:.2f} s only")
    return Picked(best, f"moves: saves {gain:.2f} s")


def patience(ask: Ask, best: Score, home: Score, free_in: float, now: float) -> float | None:
    """Seconds to wait for a home that may not be asked this moment; None when moving is cheaper.

    Waits no longer in all than the move would cost, so that the sum is at most twice the better of the two.
    """
    left = best.total - home.total - (now - ask.arrived)
    if free_in >= left or now + free_in + home.ttft >= ask.deadline:
        return None
    return min(left, max(free_in, 0.05))
