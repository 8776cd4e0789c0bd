"""Chooses the backend: the one asked for, or the first that proves its claims on this machine; and its engine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from sandbox.base import Exits, SandboxBackend
from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.config import SandboxConfig
from sandbox.container.backend import ContainerBackend
from sandbox.container.engine import Engine
from sandbox.container.remote import way_to
from sandbox.errors import SandboxUnavailableError
from sandbox.owner import Owner, owner_of
from sandbox.register import Register
from sandbox.warm.backend import WarmBackend

Maker = Callable[[SandboxConfig, Owner, Exits], SandboxBackend]
BACKENDS: Mapping[str, Maker] = MappingProxyType({"docker": ContainerBackend, "bwrap": BwrapBackend})
NO_EXITS: Exits = MappingProxyType({})


async def choose_backend(
    config: SandboxConfig, *, state: Path, exits: Exits = NO_EXITS, backends: Mapping[str, Maker] = BACKENDS
) -> WarmBackend:
    """A backend that has just proved its claims; ``auto`` takes the first of ``backends`` that does. Close it.

    ``state`` is the daemon's state folder: what a crashed daemon of the same folder left, ``sweep`` removes. ``exits``
    are the only ways out that its sandboxes can be given. Raises SandboxUnavailableError with the reason and the mend
    of each backend that was tried; none is ever run weaker.
    """
    owner = owner_of(state)
    names = tuple(backends) if config.backend == "auto" else (config.backend,)
    reasons = []
    for name in names:
        backend = backends[name](config, owner, exits)
        try:
            await backend.self_test()
        except SandboxUnavailableError as error:
            reasons.append(f"  {name}: {error}")
            await backend.close()
        except BaseException:
            await backend.close()
            raise
        else:
            return WarmBackend(backend, config.warm, Register(state / "sandboxes"))
    raise SandboxUnavailableError("\n".join(["no sandbox can be used on this machine:", *reasons]))


@asynccontextmanager
async def chosen_backend(config: SandboxConfig, *, state: Path, exits: Exits = NO_EXITS) -> AsyncIterator[WarmBackend]:
    """The backend that `choose_backend` takes, closed at the end."""
    backend = await choose_backend(config, state=state, exits=exits)
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def image_engine(backend: SandboxBackend) -> AsyncIterator[Engine | None]:
    """The Docker engine to ask about images: the backend's own, else the one that DOCKER_HOST or its default names."""
    bare = backend.bare if isinstance(backend, WarmBackend) else backend
    if isinstance(bare, ContainerBackend):
        yield bare.engine
        return
    try:
        engine = Engine(way_to(os.environ))
    except SandboxUnavailableError:
        yield None
        return
    try:
        yield engine
    finally:
        await engine.close()
