"""Settings of the sandbox room."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sandbox.types import MIB, Frozen, Limits


class WarmConfig(Frozen):
    """Sandboxes held ready, each for one use."""

    max: int = Field(default=4, ge=0, le=64, description="most sandboxes held ready at a time; 0 holds none")
    memory: int = Field(default=256 * MIB, ge=0, description="bytes that they may take, at 32 MiB each")
    idle: float = Field(default=300.0, gt=0, description="seconds without a demand after which none is held")


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
    warm: WarmConfig = Field(default=WarmConfig(), description="sandboxes started before they are asked for")
