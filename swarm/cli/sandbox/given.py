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

from sandbox.base import Exits, SandboxBackend
from sandbox.config import SandboxConfig, WarmConfig
from sandbox.egress.denied import DeniedLog
from sandbox.factory import chosen_backend, image_engine
from sandbox.images.realise import Realiser
from sandbox.images.shelf import shelves_in
from sandbox.images.sources import Archive, Dockerfile, Folder, ImageSource, Reference, source_of
from sandbox.types import Backend, SandboxSpec
from sandbox.warm.backend import WarmBackend
from swarm.cli import screen
from swarm.config import Settings
from swarm.config_file import NAME, load_parts, seek
from swarm.errors import ConfigError
from swarm.rooms import on_image
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
    typer.Option(
        "--image",
        help="Another system: an image's name, or the path of a Dockerfile, an archive or a folder (./DIR).",
        show_default=False,
        metavar="IMAGE",
    ),
]


def settings_of(ctx: typer.Context, config: Path | None) -> Settings:
    """The settings of the swarm.toml that is named or found, else the built-in ones. Raises ConfigError.

    [sandbox] counts, and [daemon], whose state folder says which sandboxes are ours. The rest is not looked at.
    One in the current folder has to be named: it may be the checkout's that is to be locked in, and a checkout that
    chose its own mounts and ways out would choose what of this machine it sees.
    """
    named = config or ctx.find_root().obj
    path = seek(named, os.environ, None)
    here = Path.cwd() / NAME
    if not named and path != here and here.exists():
        screen.hint(f"{here} is not read, since a checkout may bring one; if it is yours: --config {NAME}")
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


def spec_of(settings: Settings, network: NetworkName) -> SandboxSpec:
    """One sandbox with the configured limits."""
    config = settings.sandbox
    return SandboxSpec(limits=config.limits, env=config.env, network=network.value)


def image_of(text: str, here: Path) -> ImageSource:
    """What a person names as an image, where a path may begin anywhere. Raises ImageError for what is none."""
    path = here / Path(text).expanduser()
    named = source_of(str(path))
    plainly = text.startswith((".", "/", "~")) or (not isinstance(named, Folder) and path.exists())
    return named if plainly or ("/" in text and path.exists()) else source_of(text)


def insist_here(image: str) -> None:
    """Raises ConfigError for a path where nothing is, and ImageError for what is no image's name."""
    match image_of(image, Path.cwd()):
        case Reference():
            return
        case Dockerfile() as source:
            path = (source.folder or Path()) / source.file
        case Archive() | Folder() as source:
            path = source.path
    if not path.exists():
        raise ConfigError(f"there is no {path}", "give --image a path that is here, or an image's name")


@asynccontextmanager
async def realised(
    settings: Settings, backend: SandboxBackend, name: Backend, spec: SandboxSpec, image: str | None
) -> AsyncIterator[SandboxSpec]:
    """The spec on that image, which is kept while the context lasts. Raises SandboxError where it cannot be had."""
    if image is None:
        yield spec
        return
    source, config, state = image_of(image, Path.cwd()), settings.sandbox.images, own_state(settings)
    async with image_engine(backend) as engine:
        realiser = Realiser(name, engine, shelves_in(state, config).images, config)
        async with realiser.realise(source) as found:
            yield on_image(spec, found)


def own_state(settings: Settings) -> Path:
    """Where this user's images and copies are kept: the configured state folder, or this user's."""
    return settings.daemon.state if _writable(settings.daemon.state) else _ours(settings).daemon.state


def _writable(state: Path) -> bool:
    """Whether this user's things may be kept there: those of a daemon of another user are not to be touched."""
    there = next(place for place in (state, *state.parents) if place.exists())
    return os.access(there, os.W_OK) and (there != state or there.stat().st_uid == os.geteuid())


def exits_of(settings: Settings, network: NetworkName) -> Exits:
    """The ways out, none where none is asked for. Raises ConfigError where the settings lack the one asked for."""
    if network is NetworkName.NONE:
        return {}
    ways = ways_out(settings.sandbox.egress, DeniedLog())
    if network.value not in ways:
        what = "--network model has nowhere to go: gateway of [sandbox.egress.model] is not set"
        raise ConfigError(what, 'set it there in swarm.toml, for example gateway = "http://127.0.0.1:8080"')
    return ways


@asynccontextmanager
async def backend_of(
    settings: Settings, backend: BackendName | None, network: NetworkName
) -> AsyncIterator[WarmBackend]:
    """A backend that has just proved its claims, with the way out asked for.

    Raises SandboxUnavailableError, and ConfigError where the settings have no such way.
    """
    exits = exits_of(settings, network)
    config = config_of(settings, backend)
    async with chosen_backend(config, state=settings.daemon.state, exits=exits) as chosen:
        yield chosen
