"""Retries can never multiply the load by more than their share."""

from __future__ import annotations

from pool.retry import Budget


def test_quiet_pool_may_retry() -> None:
    assert Budget(0.0).take(0.0)


def test_lasting_failure_adds_no_more_than_share_and_floor() -> None:
    """openclaw#134281, Vibe-Trading#1208: stacked retries multiplied the load; Gateway API GEP-3388."""
    budget = Budget(0.0, share=0.2, floor=10, most=50)
    granted, now = 0, 0.0
    for _ in range(10_000):  # 1,000 requests a second for 10 s, each wants four retries
        now += 0.001
        budget.asked()
        granted += sum(budget.take(now) for _ in range(4))
    assert granted <= 50 + 0.2 * 10_000 + 10 * 10 + 1
    assert granted >= 0.2 * 10_000


def test_saved_retries_are_bounded() -> None:
    budget = Budget(0.0, share=1, floor=10, most=5)
    for _ in range(100):
        budget.asked()
    assert sum(budget.take(1000.0) for _ in range(100)) == 5
