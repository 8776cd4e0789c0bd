"""What a sandbox sees as its file system: the machine's own programs, or an extracted image; all of it read-only."""

from __future__ import annotations

import errno
import os
import platform
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sandbox.bubblewrap.layers import PLACE
from sandbox.errors import SandboxUnavailableError
from sandbox.line.programs import BORROWED, LOADERS, argv_of
from sandbox.rules.profile import AGENT_UID

FILES = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:{AGENT_UID}:{AGENT_UID}:agent:/home/agent:/bin/sh\n",
    "group": f"root:x:0:\nagent:x:{AGENT_UID}:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_SHARED_ETC = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "perl"),
    *("ssl/certs", "ssl/openssl.cnf"),
)
_SHARED_KINDS = ("python3*", "java-*")  # Debian keeps the settings without which a JVM does not start in /etc
_OURS = frozenset({"dev", "proc", "tmp", "work", "home", ".swarm"})
_MOST_ENTRIES = 1024


@dataclass(frozen=True)
class Root:
    """Bubblewrap's arguments that show it, what its mount namespace must hold for them, and where its own tools are."""

    arguments: tuple[str, ...]
    binds: Mapping[str, str]
    usr: str = "/usr"

    def tool(self, program: str, *words: str) -> list[str]:
        """One of the project's own programs inside."""
        return argv_of(program, words, usr=self.usr, machine=platform.machine())


def root_of(image: str | None, mounts: Mapping[str, str]) -> Root:
    """The root for a spec's image, which is the path of an extracted one; without it the machine's own system.

    Raises SandboxUnavailableError for an image that cannot be shown, a name among them.
    """
    if image is not None and not image.startswith("/"):
        raise SandboxUnavailableError(
            f"bubblewrap shows an extracted image, and {image} is only a name; mend: extract it, or use Docker"
        )
    root = system_root() if image is None else image_root(Path(image))
    shown = {f"mounts/{number}": host for number, host in enumerate(mounts.values())}
    arguments = [
        part for number, inside in enumerate(mounts) for part in ("--ro-bind", f"{PLACE}/mounts/{number}", inside)
    ]
    return Root((*root.arguments, *arguments), {**root.binds, **shown}, root.usr)


def system_root() -> Root:
    """The host's programs and libraries, and nothing else of the host. Looked for again when / or /etc changed."""
    return _system_root(Path("/").stat().st_mtime_ns, Path("/etc").stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _system_root(*_: int) -> Root:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/") / name
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    for name in FILES:
        arguments += ["--ro-bind", f"{PLACE}/{name}", f"/etc/{name}"]
    shared = [Path("/etc") / name for name in _SHARED_ETC]
    shared += sorted(path for kind in _SHARED_KINDS for path in Path("/etc").glob(kind))
    for path in shared:
        arguments += ["--ro-bind-try", str(path), str(path)]
    return Root(tuple(arguments), {})


def image_root(folder: Path) -> Root:
    """An extracted image. Its top folders are shown one by one, so that places of ours need not be in it.

    It brings no program that we need: those come from the host's own /usr. Raises SandboxUnavailableError.
    """
    loader = Path("/usr") / LOADERS.get(platform.machine(), "no-loader-known")
    if not loader.exists():
        raise SandboxUnavailableError(
            f"images need {loader} on this machine; mend: use no image, or the Docker backend"
        )
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        names = _entries(folder)
        homes = [name for name in _entries(folder / "home") if name != "agent"] if "home" in names else []
    except OSError as error:
        raise SandboxUnavailableError(f"the image {folder} cannot be used: {error.strerror}") from error
    arguments: list[str] = []
    for name in [*(name for name in names if name not in _OURS), *(f"home/{name}" for name in homes)]:
        arguments += _shown(folder, name)
    for name in FILES:
        if "etc" not in names or _is_file(folder / "etc" / name):
            arguments += ["--ro-bind", f"{PLACE}/{name}", f"/etc/{name}"]
    arguments += ["--ro-bind", "/usr", BORROWED]
    return Root(tuple(arguments), {"root": str(folder)}, BORROWED)


def _shown(folder: Path, name: str) -> list[str]:
    mode = (folder / name).lstat().st_mode
    if stat.S_ISLNK(mode):
        return ["--symlink", os.readlink(folder / name), f"/{name}"]  # noqa: PTH115 - kept as it is, letter by letter
    if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
        return ["--ro-bind", f"{PLACE}/root/{name}", f"/{name}"]
    return []


def _entries(folder: Path) -> list[str]:
    if not stat.S_ISDIR(folder.lstat().st_mode):
        return []
    names = sorted(os.listdir(folder))  # noqa: PTH208 - names are enough
    if len(names) > _MOST_ENTRIES:
        raise OSError(0, f"more than {_MOST_ENTRIES} entries in {folder}")
    return names


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
