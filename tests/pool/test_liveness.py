"""Evidence makes life and death: one failed probe never does."""

from __future__ import annotations

from functools import reduce
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.liveness import Event, Liveness, judge

UP = Liveness(state="up")
EVENTS = st.sampled_from(get_args(Event))


def after(*events: Event, start: Liveness = UP) -> str:
    return reduce(judge, events, start).state


@pytest.mark.parametrize("event", ["probe_silent", "probe_refused", "probe_stalled", "request_failed", "request_dead"])
def test_one_source_makes_a_suspect_only(event: Event) -> None:
    assert after(event) == "suspect"


def test_busy_server_that_never_answers_probes_is_not_declared_dead_by_them() -> None:
    assert after(*["probe_silent"] * 100) == "suspect"


def test_storm_of_failed_requests_is_still_one_source() -> None:
    assert after(*["request_failed"] * 100) == "suspect"


@pytest.mark.parametrize("probe", ["probe_silent", "probe_refused", "probe_stalled"])
@pytest.mark.parametrize("request_", ["request_failed", "request_dead"])
def test_probe_and_request_together_are_proof_in_either_order(probe: Event, request_: Event) -> None:
    assert after(probe, request_) == after(request_, probe) == "down"


def test_two_refused_connections_are_proof() -> None:
    assert after("probe_refused", "probe_refused") == after("request_dead", "probe_refused") == "down"


def test_own_word_is_believed_at_once() -> None:
    assert after("probe_unready") == "down"


@pytest.mark.parametrize("good", ["probe_ok", "request_ok"])
def test_good_news_wipes_the_slate(good: Event) -> None:
    assert after("request_failed", good, "probe_silent") == "suspect"
    assert after("probe_refused", "probe_refused", good) == "up"


@given(st.lists(EVENTS, max_size=30))
def test_server_never_seen_alive_has_no_credit(events: list[Event]) -> None:
    state = after(*events, start=Liveness())
    good = any(event in ("probe_ok", "request_ok") for event in events)
    assert good or state == ("down" if events else "unknown")


@given(st.lists(EVENTS, max_size=30), EVENTS)
def test_last_word_decides_what_it_can(events: list[Event], last: Event) -> None:
    state = after(*events, last)
    assert (state == "up") == (last in ("probe_ok", "request_ok"))
