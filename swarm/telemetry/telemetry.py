"""All of it in one: hears each journal line once it is on disk, and passes it on to counters and collector."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from swarm.telemetry.metrics import Metrics
from swarm.telemetry.redaction import Redactor
from swarm.telemetry.settings import TelemetryConfig
from swarm.telemetry.spans import Tracker
from swarm.telemetry.traces import Exporter
from swarm.types import Step

log = logging.getLogger(__name__)


class Telemetry:
    """Counters always, spans where a collector is named. `heard` never raises: what tells of work must not end it."""

    def __init__(self, metrics: Metrics, tracker: Tracker, exporter: Exporter | None) -> None:
        self.metrics = metrics
        self._tracker = tracker
        self._exporter = exporter
        self._complained = False

    def heard(self, line: Step) -> None:
        """A line that was written."""
        try:
            self.metrics.heard(line)
            if self._exporter is not None:
                for span in self._tracker.heard(line):
                    self._exporter.send(span)
        except Exception:
            if not self._complained:
                self._complained = True
                log.exception("telemetry failed on a line of kind %s; further failures are not told", line.kind)


@contextmanager
def opened(
    config: TelemetryConfig, redactor: Redactor, environment: Mapping[str, str], *, host: str, version: str
) -> Iterator[Telemetry]:
    """Telemetry as configured, its last spans sent at the end. The collector's headers come from ``environment``."""
    metrics, tracker = Metrics(), Tracker(host)
    if config.otlp_endpoint is None:
        yield Telemetry(metrics, tracker, None)
        return
    facts = {"service.name": config.service_name, "service.version": version, "service.instance.id": host}
    with Exporter(config.otlp_endpoint, redactor, facts=facts, headers=config.headers(environment)) as exporter:
        yield Telemetry(metrics, tracker, exporter)
