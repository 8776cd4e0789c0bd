"""Forge and tracker of each repository, by the kind that its settings name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from broker.config.repository import ForgeKind
from broker.config.settings import BrokerConfig
from broker.errors import ConfigError, ForgeError
from broker.forge.base import Forge, Tracker
from broker.forge.gitea.making import gitea
from broker.forge.github.making import github
from broker.forge.gitlab.making import gitlab
from broker.forge.local import LocalForge
from broker.forge.local_tracker import LocalTracker
from broker.forge.rest.pace import Paces
from broker.scope import Lend

Parts = tuple[Forge, Tracker]
_REMOTE: Mapping[ForgeKind, Callable[..., Parts]] = {"github": github, "gitea": gitea, "gitlab": gitlab}


def forge_of(
    name: str, config: BrokerConfig, lends: tuple[Lend, Lend], paces: Paces, redact: Callable[[str], str]
) -> Parts:
    """One repository's; ``lends`` give its credential for the API and for git. Raises ConfigError."""
    settings = config.repositories[name]
    if settings.path is not None:
        forge = LocalForge(name, settings.path, config.state / "pulls" / name, config.identity, lends[1])
        _require_usable(name, settings.path, forge)
        return forge, LocalTracker(forge)
    make = _REMOTE.get(settings.forge)
    if make is None:
        raise ConfigError(f"repositories.{name}: {settings.forge} is not supported", f"use {', '.join(_REMOTE)}")
    return make(name, settings, *lends, paces, redact)


def _require_usable(name: str, path: Path, forge: Forge) -> None:
    try:
        forge.object_format()
    except ForgeError:
        mend = f"make it as uid {os.geteuid()}: git init --bare {path}"
        raise ConfigError(
            f"repositories.{name}.path = {path} is no bare repository that git can use here", mend
        ) from None
    if path.stat().st_uid != os.geteuid():  # git would refuse to read it, yet only once a task is under way
        mend = f"chown -R {os.geteuid()} {path}"
        raise ConfigError(f"repositories.{name}.path = {path} does not belong to the broker's user", mend)
