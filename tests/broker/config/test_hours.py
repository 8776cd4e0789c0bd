"""Schedules in words, over midnight, over the week's end and over changes of the clock."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.hours import next_opening, parse_span, zone_of

BERLIN = zone_of("Europe/Berlin")


def at(text: str, zone: dt.tzinfo = dt.UTC) -> float:
    return dt.datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def opens(spans: list[str], now: str, zone: dt.tzinfo = dt.UTC) -> str:
    moment = next_opening([parse_span(words) for words in spans], zone, at(now, zone))
    return dt.datetime.fromtimestamp(moment, zone).strftime("%a %H:%M")


@pytest.mark.parametrize(
    ("spans", "now", "expected"),
    [
        (["mon-fri 08:00-18:00"], "2026-11-30 07:59", "Mon 08:00"),
        (["mon-fri 08:00-18:00"], "2026-11-30 08:00", "Mon 08:00"),
        (["mon-fri 08:00-18:00"], "2026-11-30 17:59", "Mon 17:59"),
        (["mon-fri 08:00-18:00"], "2026-11-30 18:00", "Tue 08:00"),
        (["mon-fri 08:00-18:00"], "2026-12-04 18:00", "Mon 08:00"),
        (["22:00-06:00"], "2026-11-30 05:00", "Mon 05:00"),
        (["22:00-06:00"], "2026-11-30 06:00", "Mon 22:00"),
        (["fri 22:00-06:00"], "2026-12-05 05:59", "Sat 05:59"),
        (["fri 22:00-06:00"], "2026-12-04 05:59", "Fri 22:00"),
        (["sat-mon 10:00-11:00"], "2026-12-01 10:30", "Sat 10:00"),
        (["sun,wed 00:00-24:00"], "2026-11-30 12:00", "Wed 00:00"),
        (["sun 00:00-24:00"], "2026-12-06 23:59", "Sun 23:59"),
        (["mon 08:00-09:00", "mon 12:00-13:00"], "2026-11-30 10:00", "Mon 12:00"),
    ],
)
def test_the_next_opening(spans, now, expected):
    assert opens(spans, now) == expected


def test_a_schedule_keeps_to_the_wall_clock_when_the_clock_changes():
    # 2026-03-29: 02:00 becomes 03:00; 2026-10-25: 03:00 becomes 02:00.
    assert opens(["08:00-18:00"], "2026-03-29 01:00", BERLIN) == "Sun 08:00"
    assert opens(["08:00-18:00"], "2026-10-25 01:00", BERLIN) == "Sun 08:00"
    assert opens(["sun 02:45-03:15"], "2026-03-29 12:00", BERLIN) == "Sun 02:45"


def test_the_zone_counts():
    assert opens(["08:00-18:00"], "2026-11-30 07:30", BERLIN) == "Mon 08:00"
    monday = at("2026-11-30 07:30")
    assert next_opening([parse_span("08:00-18:00")], BERLIN, monday) == monday


@pytest.mark.parametrize(
    "words",
    [
        "", "always", "8-18", "8:00-18:00", "08:00-18:60", "08:00-25:00", "24:00-06:00", "08:00-08:00", "mon-fri",
        "monday 08:00-18:00", "mon-fri-sun 08:00-18:00", "mon 08:00-18:00 UTC", "mon; 08:00-18:00", "08:00\u201318:00",
        "\u0660\u0668:00-18:00",
    ],
)  # fmt: skip
def test_what_is_no_span_is_refused(words):
    with pytest.raises(ValueError, match=r"time span|no clock shows|is empty|none of mon"):
        parse_span(words)


@pytest.mark.parametrize("name", ["", "Mars", "../../etc/passwd", "/etc/localtime", "Europe/Berlin\x00", "a" * 64])
def test_what_is_no_zone_is_refused(name):
    with pytest.raises(ValueError, match="no time zone"):
        zone_of(name)


minutes = st.integers(min_value=0, max_value=1439)


@given(
    minutes,
    minutes,
    st.integers(min_value=0, max_value=6),
    st.integers(min_value=1_770_000_000, max_value=1_860_000_000),
)
def test_there_is_always_a_next_opening_within_a_fortnight_and_then_it_is_open(begin, end, day, now):
    if begin == end:
        return
    name = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[day]
    span = parse_span(f"{name} {begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}")
    opening = next_opening([span], BERLIN, now)
    assert now <= opening <= now + 15 * 86_400
    assert next_opening([span], BERLIN, opening) == opening
