"""Settings of the hall, read once at the door and passed by hand; nothing below reads a file or the environment."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from pool.config import PoolConfig
from sandbox.config import SandboxConfig
from swarm.types import Budget, Frozen


class DaemonConfig(Frozen):
    """Where the daemon lives."""

    state: Path = Field(description="folder of the database, git objects and logs; the daemon's user owns it")
    socket: Path = Field(description="unix socket that the swarm command speaks to")
    workers: int = Field(default=2, ge=1, le=64, description="attempts at a time")
    drain_timeout: float = Field(default=60.0, ge=0, description="seconds to finish running attempts after SIGTERM")
    socket_group: str | None = Field(default=None, description="group that may use the socket besides the owner")


class BrokerAddress(Frozen):
    """Where the broker listens. Its settings are its own, in broker.toml."""

    socket: Path = Field(description="the broker's unix socket")


class RepositoryConfig(Frozen):
    """What the operator knows about a repository; the broker knows where it is."""

    test_command: str | None = Field(
        default=None, description="run through /bin/sh in the sandbox; tells whether the work is good"
    )
    base: str | None = Field(default=None, description="branch to aim at; default: the broker's default for it")
    strategy: str | None = Field(default=None, description="agent, sampled_repair or auto")
    tier: str | None = Field(default=None, description="tier to start with")


class Settings(Frozen):
    """One swarm.toml."""

    daemon: DaemonConfig
    broker: BrokerAddress
    pool: PoolConfig = PoolConfig()
    repositories: dict[str, RepositoryConfig] = Field(default_factory=dict)
    sandbox: SandboxConfig = SandboxConfig()
    limits: Budget = Field(default=Budget(), description="what a task may spend when it names nothing else")
