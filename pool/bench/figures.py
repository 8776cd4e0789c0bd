"""What a run measured, in figures: percentiles over all arrivals, those that never came back included. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pool.types import Frozen

Fate = Literal["ok", "rejected", "failed", "unsent"]
POINTS = (50, 90, 95, 99)


@dataclass(slots=True)
class Outcome:
    """One arrival. Times are seconds on the run's clock; ``first`` is of the first token, ``gaps`` lie between pieces.

    ``waited`` is the time in our own pool's queue. An arrival that was ``unsent`` had its session end before it.
    """

    began: float
    fate: Fate = "unsent"
    first: float | None = None
    ended: float | None = None
    gaps: list[float] = field(default_factory=list)
    prompt: int = 0
    output: int = 0
    cached: int | None = None
    waited: float = 0.0
    text: str = ""
    why: str = ""

    @property
    def ttft(self) -> float:
        """Seconds to the first token; infinite where none of use came."""
        return self.first - self.began if self.fate == "ok" and self.first is not None else math.inf

    @property
    def e2e(self) -> float:
        """Seconds to the end; infinite where there was no good one."""
        return self.ended - self.began if self.fate == "ok" and self.ended is not None else math.inf


class Spread(Frozen):
    """Percentiles by nearest rank. None stands for infinitely late: so many never came back."""

    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


class Summary(Frozen):
    """All arrivals of one run. Rates are per second of ``seconds``; ``lost`` counts what is infinitely late."""

    arrivals: int
    seconds: float
    ok: int
    lost: int
    fates: dict[str, int]
    reasons: dict[str, int]
    ttft: Spread
    itl: Spread
    e2e: Spread
    queued: Spread
    tokens_per_second: float
    requests_per_second: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    """None where no server told, which is not zero."""


def percentile(values: Sequence[float], point: float) -> float | None:
    """The value at a percentile by nearest rank; None for infinity and for no values."""
    if not values:
        return None
    ordered = sorted(values)
    found = ordered[max(0, math.ceil(point / 100 * len(ordered)) - 1)]
    return None if math.isinf(found) else found


def spread(values: Sequence[float]) -> Spread:
    """The percentiles of some values, infinite ones included."""
    return Spread(**{f"p{point}": percentile(values, point) for point in POINTS})


def summary(outcomes: Sequence[Outcome], seconds: float) -> Summary:
    """The figures of a run. Every arrival counts in the percentiles of TTFT and end; gaps are those of good ones."""
    good = [one for one in outcomes if one.fate == "ok"]
    told = [one.cached for one in good if one.cached is not None]
    output = sum(one.output for one in good)
    reasons = Counter(one.why for one in outcomes if one.why)
    return Summary(
        arrivals=len(outcomes),
        seconds=seconds,
        ok=len(good),
        lost=len(outcomes) - len(good),
        fates=dict(Counter(one.fate for one in outcomes)),
        reasons=dict(reasons.most_common(5)),
        ttft=spread([one.ttft for one in outcomes]),
        itl=spread([gap for one in good for gap in one.gaps]),
        e2e=spread([one.e2e for one in outcomes]),
        queued=spread([one.waited for one in good]),
        tokens_per_second=output / seconds if seconds > 0 else 0.0,
        requests_per_second=len(good) / seconds if seconds > 0 else 0.0,
        prompt_tokens=sum(one.prompt for one in good),
        output_tokens=output,
        cached_tokens=sum(told) if told else None,
    )
