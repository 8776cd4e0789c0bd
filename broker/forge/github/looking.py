"""What is new on a repository since the last look: two lists, conditional requests, marks that never run ahead."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from broker.forge.base import Seen
from broker.forge.github.place import Place
from broker.forge.github.reading import issue_number, note_of, thread_of
from broker.forge.reading import at, number
from broker.forge.rest.door import Query, Visit

_PAGES, _MOST_PAGES = 5, 100  # of one look; the most only while all that is read is of one second
_LAST = 253_402_214_400  # a day before the year 10000, which no time of Python's can show
_OVERLAP = 60.0  # seconds: what shows up late, with a time before the newest that was seen


@dataclass(frozen=True)
class Found:
    """Of one list: what is new, from when on to look next, and the tag of an answer that stays the same till then."""

    items: tuple[dict[str, Any], ...]
    since: str
    etag: str


def first_marks(visit: Visit, place: Place) -> dict[str, str]:
    """From now on, by the forge's own clock."""
    reply = visit.get(place.repo("issues"), {"per_page": 1, "state": "all"}, doing="the issues")
    try:
        now = parsedate_to_datetime(reply.headers.get("date", "")).timestamp()
    except (ValueError, OverflowError):
        now = time.time()
    return {"issues": _written(now), "comments": _written(now)}


def look(visit: Visit, place: Place, marks: Mapping[str, str]) -> Seen:
    """Issues with pull requests, and comments on both, since the marks. Raises ForgeError."""
    issues = _since(visit, place.repo("issues"), marks, "issues", {"state": "all"})
    comments = _since(visit, place.repo("issues", "comments"), marks, "comments", {})
    notes = (note_of(item, "comment", issue_number(item)) for item in comments.items)
    return Seen(
        threads=tuple(thread_of(item, place) for item in issues.items if number(item.get("number"))),
        notes=tuple(note for note in notes if note.number),
        marks={
            "issues": issues.since,
            "issues-etag": issues.etag,
            "comments": comments.since,
            "comments-etag": comments.etag,
        },
    )


def _since(visit: Visit, path: str, marks: Mapping[str, str], name: str, query: dict[str, str]) -> Found:
    """Page by page, each asked for from the last item's time on, so that nothing slips past a page's end.

    An item that changes meanwhile leaves its page and moves all behind it up by one; numbered pages would skip one.
    They are turned where all has the same time, as after an import, to the end of it: the next look begins there anew.
    """
    since, etag = _past(marks.get(name, "")), marks.get(f"{name}-etag", "")
    items: dict[int, dict[str, Any]] = {}
    first, cursor, page, more = "", since, 1, True
    for turn in range(_MOST_PAGES):
        if turn >= _PAGES and page == 1:
            break
        asked: Query = {**query, "since": cursor, "sort": "updated", "direction": "asc", "per_page": 100, "page": page}
        told = visit.page(path, asked, doing=f"new {name}", etag=etag if turn == 0 else "")
        if told.unchanged:
            return Found((), since, etag)
        first, fresh = first or told.etag, told.items
        items |= {number(item.get("id")): item for item in fresh}
        more = bool(fresh) and told.onward is not None
        if not more:
            break
        last = _written(at(fresh[-1].get("updated_at")))
        page, cursor = (1, last) if last > cursor else (page + 1, cursor)
    onward = _onward(list(items.values()), since, more=more)
    if more and page > 1:  # no second of people's is that full
        onward = max(onward, _written(at(cursor) + 1))
    return Found(tuple(items.values()), onward, first if onward == since else "")


def _onward(items: list[dict[str, Any]], since: str, *, more: bool) -> str:
    """The newest time seen, less the overlap; never back. Where more is left, exactly the last that was read."""
    newest = max((min(at(item.get("updated_at")), time.time()) for item in items), default=0.0)
    return _written(max(newest - (0.0 if more else _OVERLAP), at(since)))


def _past(mark: str) -> str:
    """No look begins later than now: one item with a time to come would hide all that are written till then."""
    return min(mark, _written(time.time())) if mark else mark


def _written(at: float) -> str:
    return datetime.fromtimestamp(min(int(at), _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
