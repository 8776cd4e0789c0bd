"""The operator's own folders that sandboxes see read-only: what may be shown, where, and what never is."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from sandbox.errors import SandboxUnavailableError

# Inside: places that are the sandbox's own, with what lies above them; a mount there would cover or enter them.
_TAKEN = ("/work", "/proc", "/dev", "/sys", "/tmp", "/run", "/home/agent", "/etc", "/.swarm")  # noqa: S108
# Here: the kernel's and the daemons' places, homes of secrets as a whole, and the state of our own processes.
_CLOSED = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/boot",
    "/root",
    "/etc",
    "/var/lib/docker",
    "/var/lib/containerd",
)
_SECRETS = frozenset(
    {
        *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".password-store", ".netrc"),
        *(".git-credentials", ".npmrc", ".pypirc", "docker.sock", "swarm-broker", "agent-swarm"),
    }
)


def refusal(inside: str, host: str) -> str | None:
    """Why a mount cannot be, by its two paths alone; None where nothing speaks against it. Pure."""
    for path in (inside, host):
        if not path.startswith("/") or path != str(PurePosixPath(path)) or ".." in PurePosixPath(path).parts:
            return f"{path!r} is not an absolute path without . and .."
    if _touches(inside, _TAKEN):
        return f"{inside} covers, or lies in, a place of the sandbox's own"
    if _touches(host, _CLOSED) or _SECRETS & set(PurePosixPath(host).parts):
        return f"{host} is, holds or lies in a place of secrets or of the system"
    return None


def resolved(mounts: Mapping[str, str]) -> dict[str, str]:
    """The mounts with links followed, checked again where they lead and for what lies openly in them.

    Raises SandboxUnavailableError with the mend.
    """
    found = {}
    for inside, given in mounts.items():
        try:
            host = os.path.realpath(given, strict=True)
            reason = refusal(inside, host) or _holds_secrets(Path(host))
        except OSError as error:
            reason = f"{given} cannot be used: {error.strerror}"
        if reason:
            raise SandboxUnavailableError(f"sandbox.mounts: {reason}; mend: show a folder that holds tools alone")
        found[inside] = host
    return found


def _touches(path: str, places: tuple[str, ...]) -> bool:
    """Whether it is one of the places, or above or below one."""
    asked = PurePosixPath(path)
    return any(asked.is_relative_to(place) or PurePosixPath(place).is_relative_to(asked) for place in places)


def _holds_secrets(path: Path) -> str | None:
    mode = path.stat().st_mode
    if not stat.S_ISDIR(mode):
        return None if stat.S_ISREG(mode) else f"{path} is neither a folder nor a file"
    for entry in path.iterdir():
        if entry.name in _SECRETS or stat.S_ISSOCK(entry.lstat().st_mode):
            return f"{path} holds {entry.name}"
    return None
