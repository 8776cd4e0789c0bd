"""What closes a repository for now, and when it opens again."""

from __future__ import annotations

import datetime as dt

import pytest

from broker.config.policy import Policy
from broker.judge.budgets import DAY, HOUR, Usage, closed

MONDAY_NOON = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC).timestamp()


def test_nothing_used_is_open():
    assert closed(Policy(), Usage(), MONDAY_NOON) is None


def test_the_hourly_budget_opens_when_the_oldest_leaves_the_hour():
    policy = Policy(max_per_hour=2)
    times = [MONDAY_NOON - 100, MONDAY_NOON - 3000, MONDAY_NOON - 4000]
    stop = closed(policy, Usage(delivered=times), MONDAY_NOON)
    assert stop is not None
    assert (stop.rule, stop.opens) == ("too-many-per-hour", MONDAY_NOON - 3000 + HOUR)
    assert closed(policy, Usage(delivered=times), MONDAY_NOON - 3000 + HOUR) is None
    assert closed(policy, Usage(delivered=times[:1]), MONDAY_NOON) is None


def test_more_than_the_limit_in_the_window_waits_for_as_many_to_leave():
    policy = Policy(max_per_hour=1)
    stop = closed(policy, Usage(delivered=[MONDAY_NOON - 10, MONDAY_NOON - 20, MONDAY_NOON - 30]), MONDAY_NOON)
    assert stop is not None
    assert stop.opens == MONDAY_NOON - 10 + HOUR


def test_the_stop_that_lasts_longest_is_told():
    policy = Policy(max_per_hour=1, max_per_day=1, hours=("mon 08:00-18:00",))
    stop = closed(policy, Usage(delivered=[MONDAY_NOON - 60]), MONDAY_NOON)
    assert stop is not None
    assert (stop.rule, stop.opens) == ("too-many-per-day", MONDAY_NOON - 60 + DAY)


def test_open_pull_requests_wait_for_people():
    assert closed(Policy(max_open_pulls=2), Usage(open_pulls=1), MONDAY_NOON) is None
    stop = closed(Policy(max_open_pulls=2, max_per_hour=1), Usage(2, [MONDAY_NOON]), MONDAY_NOON)
    assert stop is not None
    assert (stop.rule, stop.opens) == ("too-many-open", None)
    assert "merge or close" in stop.error().mend


@pytest.mark.parametrize(("hour", "is_open"), [(7, False), (8, True), (17, True), (18, False)])
def test_the_schedule_is_read_in_its_zone(hour, is_open):
    policy = Policy(hours=("mon-fri 08:00-18:00",), timezone="Europe/Berlin")
    now = dt.datetime(2026, 11, 30, hour - 1, tzinfo=dt.UTC).timestamp()
    stop = closed(policy, Usage(), now)
    assert (stop is None) is is_open
    if stop is not None:
        assert "CET" in stop.mend
        assert stop.error().opens == stop.opens


def test_a_delivery_that_a_wrong_clock_put_into_the_future_counts():
    stop = closed(Policy(max_per_hour=1), Usage(delivered=[MONDAY_NOON + 999_999]), MONDAY_NOON)
    assert stop is not None
