"""Settings that will load and may still not do what is wanted: looks at the file system, never at the network."""

from __future__ import annotations

import grp
import shlex
import stat
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from pool.config import EMBEDDED
from sandbox.config import SandboxConfig
from sandbox.images.sources import Archive, Dockerfile, Folder, source_of
from swarm.agents import PLACEHOLDERS
from swarm.config import Settings, missing_keys
from swarm.config_file import Loaded
from swarm.config_sandbox import strange_placeholders
from swarm.config_text import dotted, nearest


class Caution(NamedTuple):
    """Something to look at: the setting, what is odd about it, and what to do."""

    key: str
    text: str
    mend: str


_UNJUDGED = "no task is accepted that names no --test-command of its own"
_FOLDERS = {  # by the setting whose folder is missing
    "daemon.socket": "the daemon makes it where its user may; else make it and give it to that user: {folder}",
    "broker.socket": "start the broker (swarm-broker serve), or name the socket that broker.toml names",
}


def cautions(loaded: Loaded) -> tuple[Caution, ...]:
    """Everything odd about these settings on this machine."""
    settings = loaded.settings
    return (
        *_folders(loaded),
        *_group(settings),
        *_tests(loaded),
        *_images(settings),
        *_placeholders(settings),
        *_keys(settings),
        *_names(settings),
        *_money(settings),
        *_open_file(loaded),
    )


def _names(settings: Settings) -> Iterator[Caution]:
    """Settings for something by a name that nothing has: they would never be looked at."""
    pool, prices, scheduling = settings.pool, settings.prices, settings.scheduling
    models = [each.model for each in pool.endpoints if each.model]
    endpoints = [each.name for each in pool.endpoints]
    if pool.embedded.enabled:  # its model and its name are its own affair
        endpoints.append(EMBEDDED)
    tables: tuple[tuple[str, Iterable[str], Iterable[str], str], ...] = (
        ("prices.endpoints", prices.endpoints, endpoints, "endpoint"),
        ("prices.tiers", prices.tiers, pool.askable, "tier"),
        ("scheduling.tiers", scheduling.tiers, pool.askable, "tier"),
        ("scheduling.repositories", scheduling.repositories, settings.repositories, "repository"),
        ("budgets.repositories", settings.budgets.repositories, settings.repositories, "repository"),
    )
    if not pool.embedded.enabled and len(models) == len(pool.endpoints):  # else a server says what it serves
        tables += (("prices.models", prices.models, models, "model"),)
    for key, named, known, what in tables:
        for name in sorted(set(named) - set(known)):
            like = nearest(name, tuple(known))
            mend = f'did you mean "{like}"?' if like else f"known are: {', '.join(sorted(known)) or 'none'}"
            yield Caution(
                dotted((*key.split("."), name)), f"no {what} of this file has that name: it has no effect", mend
            )


def _money(settings: Settings) -> Iterator[Caution]:
    """Limits of money where nothing has a price."""
    prices, days = settings.prices, settings.budgets
    every = (*prices.endpoints.values(), *prices.models.values(), *prices.tiers.values())
    if any(price.prompt or price.cached or price.completion or price.gpu_second for price in every):
        return
    limits = {"limits": settings.limits.money, "budgets.fleet": days.fleet.money}
    limits |= {"budgets.repository": days.repository.money, "budgets.user": days.user.money}
    limits |= {dotted(("budgets", "repositories", name)): each.money for name, each in days.repositories.items()}
    limits |= {dotted(("budgets", "users", name)): each.money for name, each in days.users.items()}
    for key, limit in limits.items():
        if limit is not None:
            mend = "say what the models cost in [prices], or limit tokens or gpu_seconds instead"
            yield Caution(
                f"{key}.money", "nothing has a price, so that no money is ever spent and this never binds", mend
            )


def _folders(loaded: Loaded) -> Iterator[Caution]:
    """Of what the file speaks of: one about the pool alone may have neither daemon nor broker."""
    settings = loaded.settings
    for key, path in (("daemon.socket", settings.daemon.socket), ("broker.socket", settings.broker.socket)):
        if key.partition(".")[0] in loaded.raw and not _is_folder(path.parent):
            mend = _FOLDERS[key].format(folder=path.parent)
            yield Caution(key, f"the folder {path.parent} is not there", mend)
    if settings.daemon.state.exists() and not settings.daemon.state.is_dir():
        yield Caution("daemon.state", f"{settings.daemon.state} is no folder", "name another")


def _group(settings: Settings) -> Iterator[Caution]:
    group = settings.daemon.socket_group
    try:
        grp.getgrnam(group or "root")
    except KeyError:
        mend = (
            f"make it with: groupadd {shlex.quote(group or '')}; and put the daemon's user and those who submit in it"
        )
        yield Caution("daemon.socket_group", f"this machine has no group {group!r}", mend)


def _tests(loaded: Loaded) -> Iterator[Caution]:
    """Repositories whose work nothing here could judge; a file about the pool alone need not know of any."""
    repositories = loaded.settings.repositories
    if not repositories and {"daemon", "broker"} & set(loaded.raw):
        mend = 'add [repositories.NAME], by the broker\'s name for it, with test_command = "..."'
        yield Caution("repositories", f"none says how its tests are run: {_UNJUDGED}", mend)
    for name, known in repositories.items():
        key = dotted(("repositories", name, "test_command"))
        if known.test_command is None:
            yield Caution(key, f"is not set: {_UNJUDGED}", "say how its tests are run")
            continue
        try:
            shlex.split(known.test_command)
        except ValueError as error:
            yield Caution(key, f"does not look like a shell command: {error}", "close the quotes")


def _images(settings: Settings) -> Iterator[Caution]:
    for name, known in settings.repositories.items():
        source = source_of(known.image) if known.image else None
        if isinstance(source, Dockerfile) and source.folder:
            path = source.folder / source.file
        elif isinstance(source, Archive | Folder):
            path = source.path
        else:
            continue
        if not _is_there(path):
            mend = "put it there; or name another path, or a name that the Docker engine knows"
            yield Caution(f"repositories.{name}.image", f"{path} is not there", mend)
    if settings.sandbox.backend == "bwrap" and settings.sandbox.image != SandboxConfig().image:
        words = "has no use with bubblewrap, which shows the machine's own system"
        yield Caution("sandbox.image", words, "set the image of a repository, or take Docker")


def _placeholders(settings: Settings) -> Iterator[Caution]:
    for name, agent in settings.agents.items():
        for word, _ in strange_placeholders(agent):
            known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
            words = f"{{{word}}} stays as it is: nothing is put in for it"
            yield Caution(f"agents.{name}.command", words, f"known are {known}; leave it where the agent wants it so")


def _keys(settings: Settings) -> Iterator[Caution]:
    for problem in missing_keys(settings):
        yield Caution(problem.key, problem.message, "set it where the daemon is started")
    for number, endpoint in enumerate(settings.pool.endpoints):
        parts = urlsplit(endpoint.url)
        if endpoint.api_key and parts.scheme == "http" and not _loopback(parts.hostname or ""):
            key = f"pool.endpoints[{number}].url"
            yield Caution(key, "the key goes over the network in the clear", "use https, or a tunnel to loopback")


def _open_file(loaded: Loaded) -> Iterator[Caution]:
    written = [e for e in loaded.raw.get("pool", {}).get("endpoints", []) if "api_key" in e]
    if written and loaded.path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        mend = f"chmod o-rw {loaded.path}, or name a variable with api_key_env"
        yield Caution("pool.endpoints", f"{loaded.path} holds a key and everyone may read it", mend)


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except PermissionError:
        return True  # there, and not ours to look into


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return True
