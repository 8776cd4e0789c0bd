"""An attempt is only stuck where its journal and everything under way agree."""

from __future__ import annotations

from contextlib import suppress

from swarm.pulse import SLACK, Pulse


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nothing_said_and_nothing_under_way_is_stuck() -> None:
    clock = Clock()
    pulse = Pulse(100.0, clock=clock)
    clock.now = 99.0
    assert pulse.stuck() is None
    clock.now = 100.0
    fault = pulse.stuck()
    assert fault is not None
    assert fault.kind == "passing"
    assert "nothing" in fault.text


def test_a_word_of_the_journal_begins_the_wait_anew() -> None:
    clock = Clock()
    pulse = Pulse(100.0, clock=clock)
    clock.now = 99.0
    pulse.said()
    clock.now = 198.0
    assert pulse.stuck() is None


def test_what_is_under_way_is_a_sign_of_life_until_its_own_limit() -> None:
    clock = Clock()
    pulse = Pulse(100.0, clock=clock)
    with pulse.under_way("a command", 500.0):
        clock.now = 499.0
        assert pulse.stuck() is None
        clock.now = 501.0 + SLACK
        fault = pulse.stuck()
        assert fault is not None
        assert "a command" in fault.text
    assert pulse.stuck() is None


def test_one_thing_under_way_is_enough() -> None:
    clock = Clock()
    pulse = Pulse(10.0, clock=clock)
    with pulse.under_way("a model call", 1.0), pulse.under_way("a command", 1000.0):
        clock.now = 500.0
        assert pulse.stuck() is None


def test_without_a_limit_nobody_watches() -> None:
    clock = Clock()
    pulse = Pulse(clock=clock)
    clock.now = 1e9
    assert pulse.stuck() is None


def test_what_was_broken_off_is_known_until_the_journal_has_a_line() -> None:
    clock = Clock()
    pulse = Pulse(clock=clock)
    with pulse.under_way("a command", 10.0):
        clock.now = 1.0
    assert pulse.broken_off == {}
    for seconds in (3.0, 2.0):
        with suppress(TimeoutError), pulse.under_way("a model call", 10.0):
            clock.now += seconds
            raise TimeoutError
    assert pulse.broken_off == {"a model call": 3.0}
    pulse.wrote()
    assert pulse.broken_off == {}
