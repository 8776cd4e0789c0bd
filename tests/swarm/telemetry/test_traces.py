"""Spans over HTTP to a collector that reads real OTLP, and what happens when it is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from swarm.telemetry.redaction import STRUCK, Redactor
from swarm.telemetry.settings import TelemetryConfig
from swarm.telemetry.spans import trace_id
from swarm.telemetry.telemetry import opened
from swarm.types import Step


class Collector(ThreadingHTTPServer):
    """Keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []


class _Take(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            raise AssertionError("not asked for")
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            facts = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.server.resources.append(facts)  # type: ignore[attr-defined]
            self.server.headers.append(dict(self.headers))  # type: ignore[attr-defined]
            for scope in resource.scope_spans:
                self.server.spans += scope.spans  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_collector_gets_the_whole_trace_with_secrets_struck(collector: Collector, story: tuple[Step, ...]) -> None:
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    config = TelemetryConfig(otlp_endpoint=endpoint, otlp_headers_env="H", service_name="mine")
    environment = {"H": "x-team=a%20b,authorization=Bearer%20k"}
    with opened(config, Redactor(["gpu1"]), environment, host="box", version="1") as telemetry:
        telemetry.heard(story[0])
        leak = story[4].model_copy(update={"data": {**story[4].data, "endpoint": "gpu1-secret-gpu1"}})
        for line in (*story[1:4], leak, *story[5:]):
            telemetry.heard(line)
    assert {span.name for span in collector.spans} == {"task", "invoke_agent", "work", "chat qwen", "execute_tool run"}
    assert {span.trace_id for span in collector.spans} == {trace_id("t1").to_bytes(16, "big")}
    chat = next(span for span in collector.spans if span.name == "chat qwen")
    assert chat.start_time_unix_nano == 106 * 10**9
    facts = {each.key: each.value for each in chat.attributes}
    assert facts["gen_ai.usage.output_tokens"].int_value == 50
    assert facts["server.address"].string_value in {"gpu1-secret-gpu1", f"{STRUCK}-secret-{STRUCK}"}
    assert collector.resources[0]["service.name"] == "mine"
    assert collector.headers[0]["x-team"] == "a b"


def test_a_known_secret_does_not_reach_the_collector(collector: Collector, line: Any) -> None:
    config = TelemetryConfig(otlp_endpoint=f"http://127.0.0.1:{collector.server_port}/v1/traces")
    with opened(config, Redactor(["hunter2hunter2"]), {}, host="box", version="1") as telemetry:
        telemetry.heard(line("state", 1, **{"from": None, "to": "queued"}))
        telemetry.heard(line("state", 2, **{"from": "queued", "to": "cancelled"}, reason="x hunter2hunter2 y"))
    assert collector.spans[0].status.message == f"cancelled: x {STRUCK} y"


@pytest.mark.slow
def test_a_collector_that_is_away_holds_nobody_up(story: tuple[Step, ...]) -> None:
    config = TelemetryConfig(otlp_endpoint="http://127.0.0.1:9/v1/traces")
    began = time.monotonic()
    with opened(config, Redactor(), {}, host="box", version="1") as telemetry:
        for _ in range(300):
            for line in story:
                telemetry.heard(line)
        assert time.monotonic() - began < 30
    assert time.monotonic() - began < 60
