"""Chooses the backend: the one asked for, or the first that proves its claims on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from sandbox.base import SandboxBackend
from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.config import SandboxConfig
from sandbox.container.backend import ContainerBackend
from sandbox.errors import SandboxUnavailableError
from sandbox.owner import Owner, owner_of

Maker = Callable[[SandboxConfig, Owner], SandboxBackend]
BACKENDS: Mapping[str, Maker] = MappingProxyType({"docker": ContainerBackend, "bwrap": BwrapBackend})


async def choose_backend(
    config: SandboxConfig, *, state: Path, backends: Mapping[str, Maker] = BACKENDS
) -> SandboxBackend:
    """A backend that has just proved its claims; ``auto`` takes the first of ``backends`` that does.

    ``state`` is the daemon's state folder: what a crashed daemon of the same folder left, ``sweep`` removes. Raises
    SandboxUnavailableError with the reason and the mend of each backend that was tried; none is ever run weaker.
    """
    owner = owner_of(state)
    names = tuple(backends) if config.backend == "auto" else (config.backend,)
    reasons = []
    for name in names:
        backend = backends[name](config, owner)
        try:
            await backend.self_test()
        except SandboxUnavailableError as error:
            reasons.append(f"  {name}: {error}")
        else:
            return backend
    raise SandboxUnavailableError("\n".join(["no sandbox can be used on this machine:", *reasons]))
