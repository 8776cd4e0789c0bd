"""What the gateway counts, in a registry of its own, under `swarm_gateway_*` and `swarm_pool_*`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pool.types import EndpointStatus, Usage

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
WAITS = (0.001, *SECONDS)


CLASSES = ("interactive", "default", "bulk")
KINDS = ("prompt", "completion", "cached")


class Series(NamedTuple):
    """The series of one endpoint and class."""

    retries: Counter
    ttft: Histogram
    seconds: Histogram
    waits: Histogram


class Metrics:
    """Counters of one gateway. Labels: callers' keys and endpoints come from the settings, classes are three."""

    def __init__(self, status: Callable[[], Sequence[EndpointStatus]]) -> None:
        self.registry = CollectorRegistry()
        to = self.registry
        both = ("endpoint", "request_class")
        self.requests = Counter("swarm_gateway_requests", "Requests answered.", (*both, "key", "status"), registry=to)
        self.in_flight = Gauge("swarm_gateway_in_flight", "Requests inside.", ("request_class",), registry=to)
        self.retries = Counter("swarm_gateway_retries", "Attempts beyond the first.", both, registry=to)
        self.aborted = Counter("swarm_gateway_disconnects", "Clients that hung up.", ("request_class",), registry=to)
        self.tokens = Counter("swarm_gateway_tokens", "Tokens answered for.", ("key", "kind"), registry=to)
        self.ttft = Histogram(
            "swarm_gateway_ttft_seconds", "Until the answer began.", both, buckets=SECONDS, registry=to
        )
        self.seconds = Histogram(
            "swarm_gateway_request_seconds", "Until the answer ended.", both, buckets=SECONDS, registry=to
        )
        self.waits = Histogram(
            "swarm_gateway_queue_wait_seconds", "Wait for a place.", both, buckets=WAITS, registry=to
        )
        to.register(_Endpoints(status))
        self.running = {name: self.in_flight.labels(name) for name in CLASSES}
        self._series: dict[tuple[str, str], Series] = {}
        self._requests: dict[tuple[str, str, str, str], Counter] = {}
        self._tokens: dict[str, tuple[Counter, ...]] = {}

    def of(self, endpoint: str, request_class: str) -> Series:
        """The series of an endpoint and a class; kept, since looking them up takes longer than counting."""
        kept = self._series.get((endpoint, request_class))
        if kept is None:
            labels = (endpoint, request_class)
            kept = self._series[labels] = Series(
                self.retries.labels(*labels),
                self.ttft.labels(*labels),
                self.seconds.labels(*labels),
                self.waits.labels(*labels),
            )
        return kept

    def counted(self, endpoint: str, request_class: str, key: str, status: str) -> None:
        """Count an answer."""
        labels = (endpoint, request_class, key, status)
        kept = self._requests.get(labels)
        if kept is None:
            kept = self._requests[labels] = self.requests.labels(*labels)
        kept.inc()

    def page(self) -> bytes:
        """The exposition, as Prometheus reads it."""
        return generate_latest(self.registry)

    def spent(self, key: str, usage: Usage) -> None:
        """Count an answer's tokens."""
        kept = self._tokens.get(key)
        if kept is None:
            kept = self._tokens[key] = tuple(self.tokens.labels(key, kind) for kind in KINDS)
        for counter, tokens in zip(
            kept, (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens), strict=True
        ):
            if tokens:
                counter.inc(tokens)


class _Endpoints(Collector):
    """The pool's endpoints as they are when the page is read; one that is gone leaves no series behind."""

    def __init__(self, status: Callable[[], Sequence[EndpointStatus]]) -> None:
        self._status = status

    def collect(self) -> Iterator[GaugeMetricFamily]:
        labels = ("endpoint", "tier")
        up = GaugeMetricFamily("swarm_pool_endpoint_up", "1 while it may be asked.", labels=labels)
        ours = GaugeMetricFamily("swarm_pool_endpoint_in_flight", "Our requests inside.", labels=labels)
        usage = GaugeMetricFamily("swarm_pool_endpoint_kv_usage", "From 0 to 1, where told.", labels=labels)
        for one in self._status():
            names = (one.name, one.tier)
            up.add_metric(names, float(one.state in ("up", "suspect")))
            ours.add_metric(names, one.in_flight)
            if one.kv_usage is not None:
                usage.add_metric(names, one.kv_usage)
        yield from (up, ours, usage)
