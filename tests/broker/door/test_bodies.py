"""Errors at the door: their status, and when it is worth asking again."""

from __future__ import annotations

import pytest

from broker.door.bodies import problem_of, wait_of
from broker.errors import BudgetError, CapabilityError, ForgeError, StoppedError


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoppedError("m", "n"), 423, "stopped"),
        (BudgetError("m", "n", 100.0), 429, "budget"),
        (CapabilityError("m", "n"), 403, "capability"),
        (ForgeError("m", "n", when=100.0), 502, "forge"),
    ],
)
def test_each_error_has_its_status_and_keeps_its_words(error, status, code):
    problem, found = problem_of(error)
    assert (problem.code, problem.message, problem.mend, found) == (code, "m", "n", status)


@pytest.mark.parametrize(
    ("error", "now", "wait"),
    [
        (BudgetError("m", opens=100.0), 40.5, {"retry-after": "60"}),
        (BudgetError("m", opens=100.0), 100.0, {"retry-after": "1"}),
        (BudgetError("m", opens=100.0), 999.0, {"retry-after": "1"}),
        (BudgetError("m"), 0.0, {}),
        (ForgeError("m", when=100.0), 40.0, {"retry-after": "60"}),
        (ForgeError("m"), 0.0, {}),
        (StoppedError("m"), 0.0, {}),
    ],
)
def test_when_to_ask_again_is_told_where_it_is_known(error, now, wait):
    assert wait_of(error, now) == wait
