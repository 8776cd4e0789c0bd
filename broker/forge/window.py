"""What changed since the last look, though a look may fetch only so much: nothing is skipped, some may come again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from broker.forge.reading import at

_PAGES, _MOST_PAGES, _NARROWINGS = 10, 100, 12
_OVERLAP = 2.0  # seconds: what was written in the same second as the look comes again instead of never

Fetch = Callable[[float, float | None, int], tuple[list[dict[str, Any]], bool]]
"""Items changed from a time on, up to another if one is given, of so many pages; and whether there may be more."""


def changed(fetch: Fetch, since: float, now: float) -> tuple[list[dict[str, Any]], float]:
    """What changed since then by the forge's own clock, and the time that the next look goes on from.

    Where that is more than one look fetches, the span is narrowed until it fits, and the next look takes the rest.
    No look goes on from later than ``now``: one item with a time to come would hide all that are written till then.
    """
    since = min(since, now)
    found, more = fetch(since, None, _PAGES)
    if not more:
        return found, _newest(found, since, now)
    until = _newest(found, since, now) + _OVERLAP
    for _ in range(_NARROWINGS):
        until = since + max((until - since) // 2, 1.0)
        found, more = fetch(since, until, _PAGES)
        if not more or until - since <= 1.0:
            break
    # An item that changes while its list is being turned over leaves the span, and another slips past a page's end.
    again, _ = fetch(since, until, _MOST_PAGES)
    return found + again, until


def _newest(found: list[dict[str, Any]], since: float, now: float) -> float:
    return max([since, *(min(at(item.get("updated_at")), now) - _OVERLAP for item in found)])


def mark_of(headers_date: str | None, now: float) -> str:
    """Where the first look ends: the forge's clock as its answer tells it, else ours with room for its being wrong."""
    try:
        return f"{parsedate_to_datetime(headers_date or '').timestamp() - _OVERLAP:.0f}"
    except (ValueError, OverflowError):
        return f"{now - 300:.0f}"


def mark(value: str | None) -> float | None:
    """A mark that was kept; None if there is none, or it is damaged."""
    return float(value) if value and value.isascii() and value.isdecimal() and len(value) < 12 else None


def stamp(seconds: float) -> str:
    """A time as forges are asked with it."""
    return datetime.fromtimestamp(max(seconds, 0.0), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
