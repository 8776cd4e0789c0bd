"""What was denied is written down once, cleaned, counted and bounded."""

from __future__ import annotations

import logging

import pytest

from sandbox.egress.denied import Attempted, Denied, DeniedLog, cleaned

TRY = Attempted(host="evil.example", port=443, method="CONNECT")


def test_the_same_again_is_counted_and_told_at_powers_of_ten(caplog: pytest.LogCaptureFixture) -> None:
    times = iter(float(n) for n in range(1000))
    told: list[Denied] = []
    log = DeniedLog(told.append, clock=lambda: next(times))
    with caplog.at_level(logging.WARNING, "sandbox.egress"):
        for n in range(150):
            log.note("packages", {"task": "T1"}, TRY.model_copy(update={"path": f"/{n}"}), "not listed")
    [record] = log.records
    assert (record.count, record.time, record.path) == (150, 149.0, "/149")
    assert [r.count for r in told] == [1, 10, 100]
    assert [line.rpartition("listed")[2] for line in caplog.messages] == ["", " (10 times)", " (100 times)"]


def test_a_line_tells_task_kind_way_what_and_why() -> None:
    record = DeniedLog().note("packages", {"task": "T1", "kind": "setup"}, TRY, "not listed")
    assert record.line == "denied task=T1 kind=setup exit=packages CONNECT evil.example:443 -: not listed"


def test_what_comes_from_inside_stays_on_its_line() -> None:
    hostile = Attempted(host="a\nb", method="GET\x1b[31m", path="/\u202e" + "x" * 500)
    record = DeniedLog().note("model", {"task": "t\r\ndenied task=other"}, hostile, "no\0\u2028way")
    assert record.line.isprintable()
    assert (record.host, record.method, len(record.path)) == ("a?b", "GET?[31m", 200)
    assert record.path.startswith("/?x")
    assert cleaned("x" * 9, 5) == "xxxx…"


def test_records_and_lines_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = DeniedLog(capacity=50, lines=20)
    with caplog.at_level(logging.WARNING, "sandbox.egress"):
        for n in range(300):
            log.note("packages", {"task": "loud"}, TRY.model_copy(update={"host": f"h{n}"}), "not listed")
        log.note("packages", {"task": "quiet"}, TRY, "not listed")
    assert len(log.records) == 50
    assert log.records[-1].task == "quiet"
    assert len(caplog.messages) == 22
    assert caplog.messages[-2] == "denied task=loud: further denials are kept, not told"


def test_a_tasks_denials_are_found_by_it_and_by_kind() -> None:
    log = DeniedLog()
    for labels in ({"task": "a", "kind": "work"}, {"task": "a", "kind": "setup"}, {"task": "b"}, {}):
        log.note("packages", labels, TRY, "not listed")
    assert [r.kind for r in log.of("a")] == ["work", "setup"]
    assert [r.kind for r in log.of("a", "setup")] == ["setup"]
    assert len(log.of("")) == 1
