"""What a reviewer is told of weakened and flaky tests."""

from __future__ import annotations

from swarm.truth.telling import MOST, for_review
from swarm.types import CheckReport, Weakened


def report(weakened: int, flaky: int = 0) -> CheckReport:
    found = tuple(
        Weakened(kind="skipped", path=f"t{n}.py", test="test_a", text="it is\nskipped") for n in range(weakened)
    )
    return CheckReport(base=None, proposal=None, verdict="passed", weakened=found, flaky=("u.py::b`x",) * flaky)


def test_nothing_is_said_where_nothing_was_found() -> None:
    assert for_review(None) == for_review(report(0)) == ""


def test_findings_come_first_one_a_line_and_bounded() -> None:
    told = for_review(report(MOST + 5))
    assert "- `t0.py: test_a`: skipped: it is skipped\n" in told
    assert "- and 5 more" in told
    assert told.endswith("\n\n")


def test_flaky_tests_are_named_without_breaking_out_of_their_quotes() -> None:
    assert "`u.py::b'x`" in for_review(report(0, 1))
