"""What a tool usually takes is its middle run, and what has run long goes on for long."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pool.admission.durations import FEWEST, KEPT, Durations


def test_one_run_of_ten_minutes_does_not_change_what_is_usual() -> None:
    durations = Durations()
    for seconds in (0.2, 0.3, 0.3, 0.4, 600.0):
        durations.learn("view", seconds)
    assert durations.left("view") == 0.3


def test_run_that_outlasted_the_usual_is_expected_among_the_long_ones() -> None:
    durations = Durations()
    for seconds in (0.2, 0.3, 0.3, 0.4, 90.0, 120.0, 300.0):
        durations.learn("shell", seconds)
    assert durations.left("shell", elapsed=1.0) == 119.0
    assert durations.left("shell", elapsed=400.0) == 400.0


def test_little_or_nothing_seen_is_unknown_not_zero() -> None:
    durations = Durations()
    assert durations.left("shell") is None
    for _ in range(FEWEST - 1):
        durations.learn("shell", 5.0)
    assert durations.left("shell") is None


def test_tools_are_bounded() -> None:
    durations = Durations(cap=10)
    for i in range(1_000):
        durations.learn(f"shell {i}", 1.0)
    assert len(durations) == 10


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1e4), min_size=FEWEST, max_size=100), st.floats(0, 1e4))
def test_only_the_last_runs_count_and_the_rest_is_never_negative(runs: list[float], elapsed: float) -> None:
    durations = Durations()
    for seconds in runs:
        durations.learn("t", seconds)
    usual, left = durations.left("t"), durations.left("t", elapsed)
    kept = runs[-KEPT:]
    assert usual in kept
    assert left is not None
    assert left >= 0
