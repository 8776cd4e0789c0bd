"""How the daemon tells about itself: the section [telemetry] of swarm.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field


class TelemetryConfig(BaseModel):
    """Logs, and where traces go. Counters are always at the api's /metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    log_format: Literal["text", "json"] = Field(default="text", description="text, or one JSON object a line")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="the least to be told")
    otlp_endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s@]+$",
        description="OpenTelemetry collector that gets the traces, as http://localhost:4318/v1/traces",
    )
    otlp_headers_env: str | None = Field(
        default=None, description="environment variable with headers for it, as authorization=Bearer%20KEY,x-team=a"
    )
    service_name: str = Field(default="agent-swarm", min_length=1, description="name of this service in the traces")

    def headers(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The collector's headers, as the OpenTelemetry specification writes them in one variable."""
        pairs = (pair.partition("=") for pair in environment.get(self.otlp_headers_env or "", "").split(",") if pair)
        return {name.strip().lower(): unquote(value.strip()) for name, sep, value in pairs if sep and name.strip()}
