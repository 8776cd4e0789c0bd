"""What the commands about sandboxes share: their options, and the settings, which need no swarm.toml."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_state_path

from sandbox.base import Exits
from sandbox.config import SandboxConfig, WarmConfig
from sandbox.egress.denied import DeniedLog
from sandbox.factory import chosen_backend
from sandbox.types import SandboxSpec
from sandbox.warm.backend import WarmBackend
from swarm.config import Settings
from swarm.config_file import load_parts, seek
from swarm.ways_out import ways_out


class BackendName(StrEnum):
    """A backend that may be asked for."""

    DOCKER = "docker"
    BWRAP = "bwrap"


class NetworkName(StrEnum):
    """The one way out of a sandbox."""

    NONE = "none"
    MODEL = "model"
    PACKAGES = "packages"


BackendOption = Annotated[
    BackendName | None,
    typer.Option("--backend", help="This backend alone, not the configured one.", show_default=False),
]
NetworkOption = Annotated[
    NetworkName,
    typer.Option("--network", help="The one way out: the model gateway, or package registries through a proxy."),
]
ImageOption = Annotated[
    str | None,
    typer.Option("--image", help="Another image than the configured one; it must be here already.", show_default=False),
]


def settings_of(ctx: typer.Context, config: Path | None) -> Settings:
    """The settings of the swarm.toml that is named or found, else the built-in ones. Raises ConfigError.

    [sandbox] counts, and [daemon], whose state folder says which sandboxes are ours. The rest is not looked at.
    """
    path = seek(config or ctx.find_root().obj, os.environ, Path.cwd())
    if path is None:
        return _ours(Settings())
    loaded = load_parts(path, ("daemon", "sandbox"))
    return loaded.settings if loaded.raw.keys() & {"daemon", "pool"} else _ours(loaded.settings)


def _ours(settings: Settings) -> Settings:
    """With a state folder of this user, where no file tells a daemon's."""
    state = user_state_path("agent-swarm").absolute()
    return settings.model_copy(update={"daemon": settings.daemon.model_copy(update={"state": state})})


def config_of(settings: Settings, backend: BackendName | None) -> SandboxConfig:
    """The sandbox settings with the backend that was asked for; nothing is held ready for a single command."""
    update: dict[str, object] = {"warm": WarmConfig(max=0)}
    return settings.sandbox.model_copy(update=update | ({"backend": backend.value} if backend else {}))


def spec_of(settings: Settings, network: NetworkName, image: str | None) -> SandboxSpec:
    """One sandbox with the configured limits."""
    config = settings.sandbox
    return SandboxSpec(limits=config.limits, env=config.env, image=image, network=network.value)


@asynccontextmanager
async def backend_of(
    settings: Settings, backend: BackendName | None, network: NetworkName
) -> AsyncIterator[WarmBackend]:
    """A backend that has just proved its claims, with the way out asked for. Raises SandboxUnavailableError."""
    exits: Exits = {} if network is NetworkName.NONE else ways_out(settings.sandbox.egress, DeniedLog())
    config = config_of(settings, backend)
    async with chosen_backend(config, state=settings.daemon.state, exits=exits) as chosen:
        yield chosen
