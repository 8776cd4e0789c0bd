"""Settings that will load and may still not do what is wanted: looks at the file system, never at the network."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from sandbox.config import SandboxConfig
from sandbox.images.sources import Archive, Dockerfile, Folder, source_of
from swarm.agents import PLACEHOLDERS
from swarm.config import Settings, missing_keys
from swarm.config_file import Loaded
from swarm.config_sandbox import strange_placeholders


class Caution(NamedTuple):
    """Something to look at: the setting, what is odd about it, and what to do."""

    key: str
    text: str
    mend: str


_FOLDERS = {  # by the setting whose folder is missing
    "daemon.socket": "the daemon makes it where its user may; else make it and give it to that user: {folder}",
    "broker.socket": "start the broker (swarm-broker serve), or name the socket that broker.toml names",
}


def cautions(loaded: Loaded) -> tuple[Caution, ...]:
    """Everything odd about these settings on this machine."""
    settings = loaded.settings
    return (
        *_folders(loaded),
        *_tests(settings),
        *_images(settings),
        *_placeholders(settings),
        *_keys(settings),
        *_open_file(loaded),
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


def _tests(settings: Settings) -> Iterator[Caution]:
    for name, known in settings.repositories.items():
        key = f"repositories.{name}.test_command"
        if known.test_command is None:
            yield Caution(key, "is not set; work cannot be checked", "say how its tests are run")
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
