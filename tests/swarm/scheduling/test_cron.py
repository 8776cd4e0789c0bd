"""When a schedule runs: at changes of the clock as well, and once for what was missed."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.errors import TaskError
from swarm.scheduling.cron import GRACE, due, upcoming

BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(BERLIN)).timestamp()


def following(cron: str, start: str, count: int) -> list[str]:
    found, now = [], at(start)
    for _ in range(count):
        now = upcoming(cron, BERLIN, now) or 0.0
        found.append(datetime.fromtimestamp(now, ZoneInfo(BERLIN)).isoformat())
    return found


def test_in_the_hour_that_is_left_out_it_runs_once_after_it() -> None:
    assert following("30 2 * * *", "2026-03-28T12:00", 2) == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]


def test_in_the_hour_that_comes_twice_it_runs_once() -> None:
    assert following("30 2 * * *", "2026-10-24T12:00", 2) == ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]


def test_what_runs_all_day_runs_in_both_of_them() -> None:
    found = following("0 * * * *", "2026-10-25T01:30", 3)
    assert found == ["2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"]


@pytest.mark.parametrize(
    "cron", ["", "* * * *", "* * * * * *", "61 * * * *", "a b c d e", "@reboot", "0 0 30 2 *", "* * * * * rm"]
)
def test_what_is_no_expression_is_refused_in_words(cron: str) -> None:
    with pytest.raises(TaskError, match="is no cron expression"):
        upcoming(cron, "UTC", 0.0)


@pytest.mark.parametrize("zone", ["Nowhere/Atlantis", "../etc/passwd", "", "/etc/localtime", "\0"])
def test_what_is_no_timezone_is_refused(zone: str) -> None:
    with pytest.raises(TaskError, match="there is no timezone"):
        upcoming("0 0 * * *", zone, 0.0)


@settings(max_examples=50)
@given(st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 1 * *", "0 12 * * 1-5"]), st.floats(1e9, 2e9))
def test_the_next_run_is_always_later(cron: str, now: float) -> None:
    found = upcoming(cron, BERLIN, now)
    assert found is not None
    assert found > now


def test_a_run_that_is_late_is_made_and_one_that_was_missed_only_where_wanted() -> None:
    assert due(100.0, 100.0 + GRACE, "skip")
    assert not due(100.0, 101.0 + GRACE, "skip")
    assert due(100.0, 1e6, "once")
