"""Sends spans to an OpenTelemetry collector over HTTP. The only importer of the OpenTelemetry SDK.

A collector that is away costs spans and nothing else: they are queued, the oldest are dropped, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from swarm.telemetry.redaction import Redactor
from swarm.telemetry.spans import Span

QUEUE = 4096  # spans that wait for the collector
PATIENCE = 5.0  # seconds for one request to it, and for the last ones at the end

_SCOPE = InstrumentationScope("agent-swarm")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Exporter:
    """Spans on their way to ``endpoint`` (an OTLP/HTTP address, ending in /v1/traces), secrets struck out.

    ``sink`` takes the place of the one that speaks HTTP.
    """

    def __init__(
        self,
        endpoint: str,
        redactor: Redactor,
        *,
        facts: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        sink: SpanExporter | None = None,
    ) -> None:
        self._redactor = redactor
        self._resource = Resource.create(dict(facts))
        out = sink or OTLPSpanExporter(endpoint, headers=dict(headers or {}), timeout=PATIENCE)
        self._processor = BatchSpanProcessor(out, max_queue_size=QUEUE, max_export_batch_size=QUEUE // 8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _k: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def send(self, span: Span) -> None:
        """Queue one. Never waits and never raises for a collector's sake."""
        self._processor.on_end(self._readable(span))

    def _readable(self, span: Span) -> ReadableSpan:
        attributes = {
            key: self._redactor.text(value) if isinstance(value, str) else value
            for key, value in span.attributes.items()
        }
        failed = Status(StatusCode.ERROR, self._redactor.text(span.error)) if span.error else Status(StatusCode.UNSET)
        return ReadableSpan(
            name=self._redactor.text(span.name),
            context=_context(span.trace, span.id),
            parent=_context(span.trace, span.parent) if span.parent else None,
            resource=self._resource,
            attributes=attributes,
            kind=SpanKind.CLIENT if attributes.get("gen_ai.operation.name") == "chat" else SpanKind.INTERNAL,
            status=failed,
            start_time=int(span.start * 1e9),
            end_time=int(span.end * 1e9),
            instrumentation_scope=_SCOPE,
        )


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=_SAMPLED)
