"""What Prometheus scrapes: counted from journal lines as they are written, and facts of the fleet looked up when asked.

Labels take few values: states, kinds, tiers, phases and the names in the settings; never a task, never a user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from swarm.types import Step, TaskState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CALLS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
_TASKS = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 86400)
_TOKENS = {"prompt_tokens": "prompt", "completion_tokens": "completion", "cached_tokens": "cached"}
_OPEN = 10_000  # tasks whose beginnings are remembered


@dataclass(frozen=True)
class Fleet:
    """What is true of the fleet at the moment of a scrape. Times are ages in seconds; None where there is nothing."""

    version: str = ""
    tasks: Mapping[TaskState, int] = field(default_factory=dict)
    oldest_queued: float | None = None
    slots: int = 0
    running: int = 0
    hosts: Mapping[str, int] = field(default_factory=dict)
    endpoints: Sequence[tuple[str, str, bool]] = ()
    broker_up: bool = False
    draining: bool = False
    breakers_open: int = 0
    disk_free: int | None = None


class Metrics:
    """The daemon's counters, in a registry of their own, under ``swarm_*``."""

    def __init__(self) -> None:
        to = self.registry = CollectorRegistry()
        self._ended = Counter("swarm_tasks_ended", "Tasks that came to an end, by which.", ("state",), registry=to)
        self._submitted = Counter("swarm_tasks_submitted", "Tasks accepted.", registry=to)
        self._attempts = Counter("swarm_attempts", "Attempts begun, by tier.", ("tier",), registry=to)
        self._steps = Counter("swarm_steps", "Journal lines, by kind.", ("kind",), registry=to)
        self._faults = Counter("swarm_faults", "Faults of the machinery met by attempts.", ("kind",), registry=to)
        self._tokens = Counter("swarm_tokens", "Tokens of model calls.", ("kind",), registry=to)
        self._refusals = Counter("swarm_refusals", "Proposals that the broker refused.", registry=to)
        self._calls = Histogram("swarm_model_call_seconds", "One model call.", buckets=_CALLS, registry=to)
        self._tools = Histogram("swarm_tool_seconds", "One tool run.", buckets=_CALLS, registry=to)
        self._phases = Histogram("swarm_phase_seconds", "A phase.", ("phase",), buckets=_TASKS, registry=to)
        self._waits = Histogram("swarm_queue_wait_seconds", "Until claimed.", buckets=_TASKS, registry=to)
        self._whole = Histogram("swarm_task_seconds", "From accepted to ended.", buckets=_TASKS, registry=to)
        self._info = Gauge("swarm_build_info", "Always 1; the version is the label.", ("version",), registry=to)
        self._tasks = Gauge("swarm_tasks", "Tasks by state, now.", ("state",), registry=to)
        self._oldest = Gauge("swarm_queue_oldest_seconds", "Age of the longest waiting task.", registry=to)
        self._slots = Gauge("swarm_slots", "Attempts that may run at a time on live hosts.", registry=to)
        self._running = Gauge("swarm_slots_used", "Attempts running on this host.", registry=to)
        self._hosts = Gauge("swarm_hosts", "Hosts by state.", ("state",), registry=to)
        self._endpoint = Gauge("swarm_endpoint_up", "1 while it answers.", ("endpoint", "tier"), registry=to)
        self._broker = Gauge("swarm_broker_up", "1 while the broker answers.", registry=to)
        self._draining = Gauge("swarm_draining", "1 while the daemon is on its way out.", registry=to)
        self._breakers = Gauge("swarm_breakers_open", "Repositories and images that are left alone.", registry=to)
        self._disk = Gauge("swarm_disk_free_bytes", "Room in the state folder.", registry=to)
        self._began: dict[str, tuple[float, float]] = {}  # task: accepted at, queued at

    def heard(self, line: Step) -> None:
        """Count a journal line."""
        self._steps.labels(line.kind).inc()
        match line.kind:
            case "state":
                self._moved(line)
            case "attempt":
                self._attempts.labels(str(line.data.get("tier", ""))).inc()
            case "model_call":
                self._called(line)
            case "command" | "candidate":
                self._tools.observe(_seconds(line))
            case "phase_ended":
                self._phases.labels(str(line.data.get("phase"))).observe(_seconds(line))
            case "fault":
                self._faults.labels(str(line.data.get("kind", ""))).inc()
            case "refusal":
                self._refusals.inc()
            case _:
                pass

    def page(self, fleet: Fleet) -> bytes:
        """All of it in the text format, with the fleet as it is now."""
        for gauge in (self._tasks, self._hosts, self._endpoint, self._info):
            gauge.clear()
        self._info.labels(fleet.version).set(1)
        for state in TaskState:
            self._tasks.labels(state.value).set(fleet.tasks.get(state, 0))
        for name, count in fleet.hosts.items():
            self._hosts.labels(name).set(count)
        for endpoint, tier, up in fleet.endpoints:
            self._endpoint.labels(endpoint, tier).set(up)
        self._oldest.set(fleet.oldest_queued or 0.0)
        self._slots.set(fleet.slots)
        self._running.set(fleet.running)
        self._broker.set(fleet.broker_up)
        self._draining.set(fleet.draining)
        self._breakers.set(fleet.breakers_open)
        self._disk.set(float("nan") if fleet.disk_free is None else fleet.disk_free)
        return generate_latest(self.registry)

    def _moved(self, line: Step) -> None:
        to = TaskState(str(line.data.get("to")))
        accepted, queued = self._began.get(line.task, (line.at, line.at))
        if line.data.get("from") is None:
            self._submitted.inc()
        if to is TaskState.QUEUED:
            self._remember(line.task, accepted, line.at)
        elif to is TaskState.RUNNING and line.task in self._began:
            self._waits.observe(line.at - queued)
        elif to.final:
            self._ended.labels(to.value).inc()
            if self._began.pop(line.task, None) is not None:
                self._whole.observe(line.at - accepted)

    def _remember(self, task: str, accepted: float, queued: float) -> None:
        while len(self._began) >= _OPEN:
            del self._began[next(iter(self._began))]
        self._began[task] = accepted, queued

    def _called(self, line: Step) -> None:
        self._calls.observe(_seconds(line))
        for key, kind in _TOKENS.items():
            if isinstance(count := line.data.get(key), int) and count > 0:
                self._tokens.labels(kind).inc(count)


def _seconds(line: Step) -> float:
    seconds = line.data.get("seconds")
    return float(seconds) if isinstance(seconds, (int, float)) and seconds > 0 else 0.0
