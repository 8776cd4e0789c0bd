"""What the steps of a transcript sum up to, as its end tells it. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from swarm.transcripts.shape import End, Step

_TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens")


def summed(steps: Iterable[Step]) -> dict[str, Any]:
    """The totals of an end; those that no step tells of are left out."""
    steps = tuple(steps)
    told = [step.metrics for step in steps if step.metrics is not None]
    sums: dict[str, Any] = {}
    for name in _TOKENS:
        known = [value for each in told if (value := getattr(each, name)) is not None]
        sums |= {f"total_{name}": sum(known)} if known else {}
    costs = [each.cost_usd for each in told if each.cost_usd is not None]
    return sums | ({"total_cost_usd": math.fsum(costs)} if costs else {}) | {"total_steps": len(steps)}


def ended(steps: Iterable[Step], **facts: Any) -> End:
    """An end with the sums of all steps; ``facts`` go before them."""
    return End.model_validate(summed(steps) | {name: value for name, value in facts.items() if value not in (None, "")})


def most_used(steps: Iterable[Step]) -> str:
    """The model that answered most often; empty where none is told."""
    counted = Counter(step.model_name for step in steps if step.model_name)
    return str(counted.most_common(1)[0][0]) if counted else ""


def stamp(seconds: float | None) -> str:
    """Seconds since 1970 as ISO 8601 in UTC, to the millisecond; empty for none."""
    if seconds is None or not math.isfinite(seconds) or not 0 <= seconds < 4e10:
        return ""
    told = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")


def is_stamp(text: Any) -> bool:
    """Whether a value is a time in ISO 8601."""
    if not isinstance(text, str) or len(text) > 64:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
