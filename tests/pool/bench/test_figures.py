"""Percentiles count every arrival: what never came back is infinitely late, and is told."""

from __future__ import annotations

import pytest

from pool.bench.figures import Outcome, percentile, summary


def good(ttft: float, output: int = 10, **more: object) -> Outcome:
    return Outcome(began=0.0, fate="ok", first=ttft, ended=ttft + 1, output=output, **more)  # type: ignore[arg-type]


def test_the_nearest_rank_is_a_value_that_was_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, point) for point in (50, 90, 99, 100)] == [50, 90, 99, 100]
    assert percentile([7.0], 99) == 7.0
    assert percentile([], 50) is None


def test_a_lost_arrival_is_infinitely_late_not_left_out() -> None:
    lost = Outcome(began=0.0, fate="rejected", why="OverloadError: full")
    made = summary([good(0.1)] * 9 + [lost], seconds=2.0)
    assert made.ttft.p90 == pytest.approx(0.1)
    assert made.ttft.p95 is None  # never
    assert (made.ok, made.lost, made.arrivals) == (9, 1, 10)
    assert made.reasons == {"OverloadError: full": 1}


def test_half_lost_has_no_median_above_the_half() -> None:
    lost = Outcome(began=0.0, fate="failed", first=0.01, ended=0.02, output=99)
    made = summary([good(0.1)] * 2 + [lost] * 3, seconds=1.0)
    assert made.ttft.p50 is None  # a fast failure is not a fast answer
    assert made.tokens_per_second == 20  # and its tokens are nobody's


def test_rounds_that_were_never_sent_count_as_arrivals() -> None:
    made = summary([good(0.1), Outcome(began=0.0, why="its session had ended")], seconds=1.0)
    assert made.fates == {"ok": 1, "unsent": 1}
    assert made.lost == 1


def test_cached_tokens_that_nobody_told_are_unknown_not_zero() -> None:
    assert summary([good(0.1)], 1.0).cached_tokens is None
    assert summary([good(0.1, cached=0), good(0.1)], 1.0).cached_tokens == 0
