"""Settings of the sandbox room."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sandbox.types import Frozen, Limits


class SandboxConfig(Frozen):
    """Which backend, which image, which limits."""

    backend: Literal["auto", "docker", "bwrap"] = Field(
        default="auto", description="auto takes Docker where an engine answers, else bubblewrap, else refuses"
    )
    image: str = Field(default="agent-swarm/base:1", description="local Docker image; scripts/build-image makes it")
    runtime: str | None = Field(default=None, description="OCI runtime for Docker, for example crun; default: its own")
    cgroup: str = Field(
        default="agent-swarm",
        pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$",
        description="bubblewrap: control group below which sandboxes are limited; must be ours",
    )
    env: dict[str, str] = Field(default_factory=dict, description="variables set inside; nothing else gets in")
    limits: Limits = Field(default=Limits(), description="bounds of every sandbox; bytes and seconds")
