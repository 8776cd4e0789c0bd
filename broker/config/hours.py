"""A schedule in words, such as "mon-fri 08:00-18:00", and a time zone by name. Pure."""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPAN = re.compile(r"(?:([a-z]{3}(?:[-,][a-z]{3})*) +)?([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2})")
_DAY = 24 * 60


@dataclass(frozen=True)
class Span:
    """Open from a minute of each of these days (0 is Monday); past midnight if it ends no later than it begins."""

    days: frozenset[int]
    begin: int
    end: int

    def on(self, day: dt.date, zone: dt.tzinfo) -> tuple[float, float] | None:
        """When it opens and closes on a day, in s since the epoch; the clock changes of the zone are respected."""
        if day.weekday() not in self.days:
            return None
        last = day + dt.timedelta(days=1) if self.end <= self.begin else day
        return _moment(day, self.begin, zone), _moment(last, self.end, zone)


def _moment(day: dt.date, minute: int, zone: dt.tzinfo) -> float:
    midnight = dt.datetime.combine(day + dt.timedelta(days=minute // _DAY), dt.time(), zone)
    return midnight.replace(hour=minute % _DAY // 60, minute=minute % 60).timestamp()


def parse_span(words: str) -> Span:
    """Reads "mon-fri 08:00-18:00", "sat,sun 10:00-12:00", "22:00-06:00", "00:00-24:00". Raises ValueError."""
    found = _SPAN.fullmatch(words.strip().casefold())
    if not found:
        raise ValueError(f'{words!r} is no time span; write it as "mon-fri 08:00-18:00"')
    days, *numbers = found.groups()
    h1, m1, h2, m2 = (int(number) for number in numbers)
    begin, end = h1 * 60 + m1, h2 * 60 + m2
    if m1 > 59 or m2 > 59 or begin >= _DAY or end > _DAY:
        raise ValueError(f"{words!r} names a time that no clock shows; 24:00 is the latest end")
    if begin == end:
        raise ValueError(f"{words!r} is empty; all day is 00:00-24:00")
    return Span(_days(days, words), begin, end)


def _days(text: str | None, words: str) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.split(","):
        names = part.split("-")
        if len(names) > 2 or any(name not in DAYS for name in names):
            raise ValueError(f"{words!r} names a day that is none of {', '.join(DAYS)}")
        first, last = DAYS.index(names[0]), DAYS.index(names[-1])
        found |= {(first + step) % 7 for step in range((last - first) % 7 + 1)}
    return frozenset(found)


def zone_of(name: str) -> dt.tzinfo:
    """The time zone of a name such as Europe/Berlin. Raises ValueError."""
    if name == "UTC":
        return dt.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        mend = "use a name such as Europe/Berlin; they come with the system's package tzdata"
        raise ValueError(f"there is no time zone {name!r} on this machine: {mend}") from None


def next_opening(spans: Sequence[Span], zone: dt.tzinfo, now: float) -> float:
    """When any of the spans, at least one, is open next, in s since the epoch: ``now`` itself if one is."""
    today = dt.datetime.fromtimestamp(now, zone).date()
    times_of = [span.on(today + dt.timedelta(days=day), zone) for span in spans for day in range(-1, 16)]
    times = [time for time in times_of if time is not None and time[0] < time[1]]
    if any(begin <= now < end for begin, end in times):
        return now
    return min(begin for begin, _end in times if begin > now)
