"""Nobody fills the log, and nobody's lines keep another's out."""

from __future__ import annotations

import contextlib

from broker.audit import Audit
from broker.rationing import PER_HOUR, Rationing


def test_an_hour_has_its_ration_for_each_event_of_each(tmp_path):
    now = [1000.0]
    with contextlib.closing(Audit(tmp_path / "audit.log", clock=lambda: now[0])) as audit:
        rationing = Rationing(audit, clock=lambda: now[0])
        for _ in range(PER_HOUR + 50):
            rationing.append("g1", "mirror", grant="g1")
        assert audit.last == PER_HOUR + 1
        assert "left out for an hour" in audit.page(PER_HOUR)[0].fields["reason"]
        rationing.append("g1", "read-pull", grant="g1")
        rationing.append("g2", "mirror", grant="g2")
        now[0] += 3600
        rationing.append("g1", "mirror", grant="g1")
        assert [entry.fields for entry in audit.page(PER_HOUR + 1)] == [
            {"grant": "g1"},
            {"grant": "g2"},
            {"grant": "g1"},
        ]


def test_a_clock_that_was_put_back_ends_the_hour(tmp_path):
    now = [1e9]
    with contextlib.closing(Audit(tmp_path / "audit.log")) as audit:
        rationing = Rationing(audit, clock=lambda: now[0])
        for _ in range(PER_HOUR + 1):
            rationing.append("g1", "mirror")
        now[0] = 0.0
        rationing.append("g1", "mirror")
        assert audit.last == PER_HOUR + 2
