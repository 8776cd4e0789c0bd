"""The step model finds its own speeds again, and runs in virtual time."""

from __future__ import annotations

import time

import pytest

from pool.pretend.engine import EngineSettings
from pool.pretend.fit import Arrival, Decode, Prefill, fitted, predicted

TRUE = EngineSettings(
    step_base=0.05, step_per_sequence=0.004, prefill_per_token=0.003, prefill_quadratic=1e-6, max_num_batched_tokens=512
)
SIZE = EngineSettings(max_num_batched_tokens=512)


def measured(noise: float = 0.0) -> EngineSettings:
    sizes = (100, 400, 900, 1800)
    alone = [predicted(TRUE, [Arrival(0.0, tokens)])[0] for tokens in sizes]
    shaken = [seconds * (1 + noise * (-1) ** i) for i, seconds in enumerate(alone)]
    steps = [Decode(k, 0.05 + 0.004 * k) for k in (1, 4, 8)]
    return fitted(SIZE, [Prefill(n, s) for n, s in zip(sizes, shaken, strict=True)], steps)


def test_speeds_are_found_again() -> None:
    found = measured()
    assert found.step_base == pytest.approx(0.05)
    assert found.step_per_sequence == pytest.approx(0.004)
    assert found.prefill_per_token == pytest.approx(0.003, rel=0.02)
    assert found.prefill_quadratic == pytest.approx(1e-6, rel=0.1)


def test_noisy_measurements_still_tell_how_long_another_prompt_takes() -> None:
    wanted = predicted(TRUE, [Arrival(0.0, 1300)])[0]
    assert predicted(measured(noise=0.1), [Arrival(0.0, 1300)])[0] == pytest.approx(wanted, rel=0.1)


def test_no_speed_is_below_zero() -> None:
    found = fitted(SIZE, [Prefill(100, 1.0), Prefill(1000, 5.0)], [Decode(1, 0.2), Decode(8, 0.1)])
    assert min(found.step_base, found.step_per_sequence, found.prefill_per_token, found.prefill_quadratic) >= 0


def test_one_size_is_too_few() -> None:
    with pytest.raises(ValueError, match="two sizes"):
        fitted(SIZE, [Prefill(100, 1.0)], [Decode(1, 0.1), Decode(2, 0.1)])


def test_second_prompt_waits_for_the_first_in_virtual_time() -> None:
    started = time.thread_time()
    first, second = predicted(TRUE, [Arrival(0.0, 1000), Arrival(0.1, 1000)])
    assert second > first > 3.0
    assert time.thread_time() - started < 1.0


def test_an_hour_of_arrivals_passes_in_a_moment() -> None:
    started = time.thread_time()
    waits = predicted(TRUE, [Arrival(10.0 * i, 500, 20) for i in range(360)])
    assert len(waits) == 360
    assert max(waits) - min(waits) < 1e-6
    assert time.thread_time() - started < 5.0
