"""An endpoint seen to thrash gets fewer live sessions, and more again once it recovered."""

from __future__ import annotations

from pool.admission.guard import COOL, LEAST, Guard


def test_preemptions_narrow_the_bound_and_quiet_widens_it_again() -> None:
    guard = Guard()
    guard.preempted(3, 0, 0.0)  # a counter seen for the first time says nothing
    assert guard.bound(1000, 0.0) == 1000
    guard.preempted(5, 900, 10.0)
    assert guard.bound(1000, 10.0) == 800
    guard.preempted(5, 900, 20.0)
    assert 800 < (guard.bound(1000, 20.0) or 0) < 1000
    assert guard.bound(1000, 40.0) == 1000


def test_counter_that_went_back_is_a_restart_and_no_sign() -> None:
    guard = Guard()
    guard.preempted(50, 900, 0.0)
    guard.preempted(0, 900, 10.0)
    assert guard.bound(1000, 10.0) == 1000
    guard.preempted(None, 900, 20.0)
    guard.preempted(9, 900, 30.0)
    assert guard.bound(1000, 30.0) == 1000


def test_falling_hit_rate_narrows_it_to_a_floor() -> None:
    """The spiral of prime-rl#3255: what was promised is not in the cache any more."""
    guard = Guard()
    for i in range(200):
        guard.answered(promised=8_000, cached=400, live=900, now=i * COOL / 10)
        assert (guard.bound(1000, i * COOL / 10) or 0) >= 1000 * LEAST
    assert (guard.bound(1000, 20 * COOL) or 0) <= 1000 * LEAST * 1.3


def test_one_broken_prefix_among_many_is_no_thrash() -> None:
    guard = Guard()
    for i in range(20):
        guard.answered(8_000, 0 if i == 10 else 8_000, 900, i * 10.0)
    assert guard.bound(1000, 200.0) == 1000


def test_untold_cached_tokens_are_not_zero_and_small_promises_say_nothing() -> None:
    """vllm-project/vllm#16162: without the flag the server tells null."""
    guard = Guard()
    for i in range(50):
        guard.answered(8_000, None, 900, i * 10.0)
        guard.answered(100, 0, 900, i * 10.0)
    assert guard.bound(1000, 500.0) == 1000


def test_signs_in_quick_succession_are_one_step() -> None:
    guard = Guard()
    guard.preempted(0, 900, 0.0)
    for i in range(1, 11):
        guard.preempted(i, 900, i * COOL / 20)
    assert guard.bound(1000, COOL / 20) == 800


def test_unknown_cache_is_bounded_only_after_it_was_seen_to_thrash_and_not_for_ever() -> None:
    guard = Guard()
    assert guard.bound(None, 0.0) is None
    guard.preempted(0, 900, 0.0)
    guard.preempted(1, 900, 10.0)
    assert guard.bound(None, 10.0) == 720
    assert (guard.bound(None, 60.0) or 0) > 720
    assert guard.bound(None, 1_000.0) is None
