"""What findings lead to."""

from __future__ import annotations

import itertools

import pytest

from broker.delivery.verdict import left, never_passes, told, waits
from broker.outbox.rows import Approved
from broker.wire import Finding

SEVERITIES = ("fatal", "block", "ask", "warn")


def finding(severity, rule="r", path=None):
    return Finding(rule=rule, severity=severity, message="m", path=path)


def approved(*covers):
    return Approved("d", 7, 0.0, "", frozenset(covers))


@pytest.mark.parametrize(
    "severities", [c for n in range(4) for c in itertools.combinations_with_replacement(SEVERITIES, n)], ids="-".join
)
def test_only_warnings_pass_and_a_word_moves_all_but_what_is_fatal(severities):
    found = [finding(severity, rule=f"r{number}") for number, severity in enumerate(severities)]
    assert bool(left(found, None)) == bool(set(severities) - {"warn"})
    everything = approved(*((one.rule, one.path) for one in found))
    assert {one.severity for one in left(found, everything)} == set(severities) & {"fatal"}
    assert (never_passes(found) is not None) == ("fatal" in severities)
    assert waits(found) == (not set(severities) & {"fatal", "block"})
    assert {one.severity for one in told(found)} <= {"warn"}


def test_a_word_covers_a_rule_at_the_path_that_was_shown_alone():
    found = [finding("block", "secret", "a.py"), finding("block", "secret", "b.py")]
    assert [one.path for one in left(found, approved(("secret", "a.py")))] == ["b.py"]
