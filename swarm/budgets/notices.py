"""When an agent is told what is left of its budget, and in which words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swarm.budgets.scopes import Gauge, amount
from swarm.types import Step

MARKS = (0.5, 0.8, 0.95)
"""Shares of whichever limit is nearest at which it is told, once each; with one turn left, the last is reached."""
_WORDS = {"steps": "turns"}
_NAMES = _WORDS | {"seconds": "time"}
_URGES = (
    "Plan what is left accordingly.",
    "Bring the work to an end: no new attempts, only what makes the present change right.",
    "Wrap up: call finish now, or the work ends unfinished.",
)


@dataclass(frozen=True, slots=True)
class Notice:
    """What is to be told. ``passed`` is how many marks were passed by then; it is kept with the line that tells it."""

    text: str
    passed: int
    share: float
    limit: str

    def facts(self) -> dict[str, object]:
        """As a line of the journal, of kind "budget"."""
        mark = MARKS[self.passed - 1]
        return {
            "text": self.text,
            "passed": self.passed,
            "mark": mark,
            "share": round(self.share, 4),
            "limit": self.limit,
        }


def nearest(gauges: Iterable[Gauge]) -> Gauge | None:
    """The limit that is nearest to its end."""
    return max(gauges, key=lambda gauge: gauge.share, default=None)


def notice(gauges: Sequence[Gauge], told: int) -> Notice | None:
    """What is newly to be told where ``told`` marks were told of before; None while no further one is passed."""
    last_turn = next((gauge for gauge in gauges if gauge.unit == "steps" and gauge.limit - gauge.used <= 1), None)
    first = last_turn or nearest(gauges)
    passed = sum(first.share >= mark for mark in MARKS) if first else 0
    if last_turn is not None:
        passed = len(MARKS)  # what is told later is not heard in time
    if first is None or passed <= told:
        return None
    own = gauges[0].name.partition(".")[0]
    left = ", ".join(_left(gauge) for gauge in gauges if gauge.name.startswith(f"{own}.") or gauge is first)
    of = f"your {_NAMES.get(first.unit, first.unit)}" + (f" ({first.whose})" if first.whose else "")
    text = f"[{min(first.share, 1.0):.0%} of {of} is spent; left: {left}. {_URGES[passed - 1]}]"
    return Notice(text, passed, first.share, first.name)


def left(gauges: Sequence[Gauge]) -> str:
    """What may still be spent, in words: of each unit what the limit leaves that is nearest to its end."""
    least: dict[str, Gauge] = {}
    for gauge in sorted(gauges, key=lambda each: each.limit - each.used):
        least.setdefault(gauge.unit, gauge)
    return ", ".join(_left(least[unit]) for unit in dict.fromkeys(gauge.unit for gauge in gauges))


def _left(gauge: Gauge) -> str:
    left = amount(max(0.0, gauge.limit - gauge.used), gauge.unit)
    words = _WORDS.get(gauge.unit, gauge.unit)
    return f"{left} {words.removesuffix('s') if left == '1' and words != 'money' else words}"


def told_before(past: Iterable[Step], attempt: str) -> int:
    """How many marks an agent was told of in these lines, as far as they are its own attempt's: a fork has a budget of
    its own."""
    return max((int(step.data.get("noticed", 0)) for step in past if step.attempt == attempt), default=0)
