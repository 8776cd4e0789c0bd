"""Test reports as a model reads them: names, reasons, and what changed."""

from __future__ import annotations

from swarm.evidence import Results
from swarm.tools import reports
from swarm.tools.reports import Report

JUNIT = b"""<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.test_a" file="tests/test_a.py" name="test_ok"/>
<testcase classname="tests.test_a" file="tests/test_a.py" name="test_bad">
<failure message="assert 1 == 2">def test_bad():
&gt;       assert 1 == 2
E       assert 1 == 2

tests/test_a.py:4: AssertionError</failure></testcase>
<testcase classname="tests.test_a" file="tests/test_a.py" name="test_off"><skipped/></testcase>
</testsuite></testsuites>"""

UNITTEST = """\
test_add (tests.test_m.T.test_add) ... FAIL
test_sub (tests.test_m.T.test_sub) ... ok

======================================================================
FAIL: test_add (tests.test_m.T.test_add)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "tests/test_m.py", line 6, in test_add
    self.assertEqual(1, 2)
AssertionError: 1 != 2

----------------------------------------------------------------------
Ran 2 tests in 0.001s
"""


def report(passed: str = "", failed: str = "") -> Report:
    return Report(Results(tuple(passed.split()), tuple(failed.split())))


def test_a_junit_report_gives_names_and_reasons() -> None:
    found = reports.read_junit(JUNIT)
    assert found is not None
    assert reports.counts(found) == "1 failed, 1 passed, 1 skipped"
    told, whole = reports.failures(found)
    assert told.startswith("FAILED tests/test_a.py::test_bad\n")
    assert "  E       assert 1 == 2" in told
    assert told.endswith("tests/test_a.py:4: AssertionError")
    assert whole


def test_a_unittest_report_gives_names_and_reasons() -> None:
    found = reports.read_unittest(UNITTEST)
    assert found is not None
    told, whole = reports.failures(found)
    assert told.startswith("FAILED tests.test_m.T.test_add\n")
    assert told.endswith("AssertionError: 1 != 2")
    assert whole


def test_what_is_no_report_is_none() -> None:
    assert reports.read_junit(b"<a") is None
    assert reports.read_junit(b'<!DOCTYPE x [<!ENTITY a "b">]><testsuites>&a;</testsuites>') is None
    assert reports.read_unittest("OK") is None


def test_changes_since_the_last_run_are_told() -> None:
    assert reports.change(None, report("a", "b")) == ""
    assert reports.change(("b",), report("a", "b")) == "since the last run: no test changed"
    assert reports.change(("b", "c"), report("a b c")) == "since the last run: 2 that failed now pass: b, c"
    told = reports.change(("b", "gone"), report("b", "a"))
    assert "1 that failed now passes: b" in told
    assert "1 fails that did not before: a" in told
    assert "1 that failed did not run: gone" in told


def test_many_failures_are_counted_and_long_reasons_end_with_their_end() -> None:
    many = tuple(f"t{n:03}" for n in range(60))
    told, whole = reports.failures(Report(Results((), many), dict.fromkeys(many, "x\n" * 5000 + "the end")))
    assert told.endswith("[35 more fail]")
    assert not whole
    assert told.count("the end") == 5
    assert len(told) < 10_000
