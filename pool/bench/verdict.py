"""Says why a sweep went flat: whether the client or the server did, and on what evidence. Pure.

A sweep is flat where twice the concurrency brought less than a tenth more tokens a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pool.bench.figures import Summary
from pool.bench.meters import Strain
from pool.types import Frozen

GAIN = 0.10
LATE = 0.05  # seconds that our own loop may be late (p99), or half a gap between tokens, before it shows
BUSY = 0.85  # share of a core at which this one process is at its end
FULL = 0.95  # share of the KV cache
QUEUE = 0.5  # requests that wait on average

Side = Literal["client", "server", "pool", "not flat", "unknown"]


class Level(Frozen):
    """One concurrency of a sweep."""

    concurrency: int
    summary: Summary
    strain: Strain


class Verdict(Frozen):
    """Who is flat, from which concurrency on, and why."""

    flat: Side
    since: int | None
    because: str


def flat_because(levels: Sequence[Level]) -> Verdict:
    """The verdict on a sweep, its levels in rising order."""
    if levels and not any(level.summary.tokens_per_second for level in levels):
        return Verdict(flat="unknown", since=None, because="no request was answered, so there is nothing to judge")
    if len(levels) < 2:
        return Verdict(flat="unknown", since=None, because="one level alone shows no trend")
    since = next((place for place in range(1, len(levels)) if _flat(levels[place - 1], levels[place])), None)
    if since is None:
        top = levels[-1]
        rate = top.summary.tokens_per_second
        told = f"throughput still grows at {top.concurrency} ({rate:.1f} tokens/s): go higher to find the limit"
        return Verdict(flat="not flat", since=None, because=told)
    side, why = _cause(levels[since - 1], levels[since])
    return Verdict(flat=side, since=levels[since].concurrency, because=why)


def _flat(before: Level, after: Level) -> bool:
    """Whether the step brought less than a tenth for each doubling."""
    grown = after.concurrency / before.concurrency - 1
    return after.summary.tokens_per_second < before.summary.tokens_per_second * (1 + GAIN * grown)


def _cause(before: Level, after: Level) -> tuple[Side, str]:
    return (
        _client(after)
        or _pool(after)
        or _refusals(after)
        or _queue(after)
        or _slower(before, after)
        or ("unknown", "neither side shows why: no queue, no lag, no error, and steps that take no longer")
    )


def _client(level: Level) -> tuple[Side, str] | None:
    strain = level.strain
    if strain.processor > BUSY:
        return "client", f"this process uses {strain.processor:.0%} of a core: start several, or ask for longer answers"
    if strain.lag > max(LATE, (level.summary.itl.p50 or 0) / 2):
        late = f"this process's own loop was {strain.lag * 1000:.0f} ms late (p99)"
        whose = f"it uses {strain.processor:.0%} of a core, so its machine is busy with other things"
        return "client", f"{late}: {whose if strain.processor < BUSY / 2 else 'it measures itself'}"
    return None


def _pool(level: Level) -> tuple[Side, str] | None:
    queued, first = level.summary.queued.p50, level.summary.ttft.p50
    if queued and first and queued > first / 2:
        return "pool", f"requests wait {queued:.2f} s (p50) in our own queue: max_in_flight or admission holds them"
    return None


def _refusals(level: Level) -> tuple[Side, str] | None:
    lost = level.summary.lost
    if lost * 4 < level.summary.arrivals:
        return None
    reason = next(iter(level.summary.reasons), "unknown")
    return "server", f"{lost} of {level.summary.arrivals} requests were lost, mostly: {reason}"


def _queue(level: Level) -> tuple[Side, str] | None:
    strain = level.strain
    if strain.preemptions:
        return "server", f"its KV cache is full: {strain.preemptions} preemptions, {_share(strain.kv_usage)} used"
    if strain.waiting is None or strain.waiting <= QUEUE:
        return None
    queue = f"{strain.waiting:.1f} requests wait in it on average, at most {strain.most_running} run"
    if strain.kv_usage is not None and strain.kv_usage >= FULL:
        return "server", f"its KV cache is full ({_share(strain.kv_usage)}): {queue}"
    return "server", f"its seats are taken (--max-num-seqs, or llama.cpp's slots): {queue}"


def _slower(before: Level, after: Level) -> tuple[Side, str] | None:
    was, now = before.summary.itl.p50, after.summary.itl.p50
    if was and now and now > was * 1.25:
        many = f"{after.strain.running:.1f} run at once, none waits: " if after.strain.running is not None else ""
        return "server", f"its steps take longer: {many}{was * 1000:.0f} -> {now * 1000:.0f} ms between tokens (p50)"
    was, now = before.summary.ttft.p50, after.summary.ttft.p50
    if was and now and now > was * 1.25:
        return "server", f"its prefill is the limit: first tokens after {was:.2f} -> {now:.2f} s (p50)"
    return None


def _share(usage: float | None) -> str:
    return "?" if usage is None else f"{usage:.0%}"
