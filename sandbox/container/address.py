"""Where the engine is, read from the environment as Docker's own client reads it: pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from sandbox.errors import SandboxUnavailableError
from sandbox.types import Frozen

SOCKET = "/var/run/docker.sock"
_MEND = "mend: set DOCKER_HOST to unix:///PATH, ssh://USER@HOST[:PORT] or, with DOCKER_TLS_VERIFY=1, tcp://HOST:2376"


class Address(Frozen):
    """One engine. ``path`` is its socket, here for ``unix``, on the far side for ``ssh``."""

    kind: Literal["unix", "ssh", "tls", "tcp"]
    told: str
    path: str = SOCKET
    user: str | None = None
    host: str = ""
    port: int | None = None
    certificates: str = ""

    @property
    def local(self) -> bool:
        """Whether the engine shares this machine's files, so that something of it could be mounted."""
        return self.kind == "unix"


def address_of(environment: Mapping[str, str]) -> Address:
    """The engine that DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH name; without any, the local socket.

    Raises SandboxUnavailableError for what cannot be used safely: plain TCP to another machine, TLS that checks nobody.
    """
    told = environment.get("DOCKER_HOST") or f"unix://{SOCKET}"
    try:
        parts = urlsplit(told)
        port = parts.port
    except ValueError as error:
        raise SandboxUnavailableError(f"DOCKER_HOST={told} is no address ({error}); {_MEND}") from error
    if parts.password is not None:
        raise SandboxUnavailableError("DOCKER_HOST holds a password, which is not used; mend: log in by key")
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return Address(kind="unix", told=told, path=parts.path)
    if parts.scheme == "ssh" and parts.hostname:
        return _ssh(told, parts)
    if parts.scheme == "tcp" and parts.hostname and parts.path in {"", "/"}:
        return _tcp(told, parts.hostname, port, environment)
    raise SandboxUnavailableError(f"DOCKER_HOST={told} is of no kind that can be used; {_MEND}")


def _ssh(told: str, parts: SplitResult) -> Address:
    host = parts.hostname or ""
    if host.startswith("-") or (parts.username or "").startswith("-"):
        raise SandboxUnavailableError(f"DOCKER_HOST={told}: a name cannot begin with a dash; {_MEND}")
    path = parts.path if parts.path not in {"", "/"} else SOCKET
    if ":" in path:  # it ends a path in OpenSSH's own notation
        raise SandboxUnavailableError(f"DOCKER_HOST={told}: a socket's path cannot hold a colon; {_MEND}")
    return Address(kind="ssh", told=told, path=path, user=parts.username, host=host, port=parts.port)


def _tcp(told: str, host: str, port: int | None, environment: Mapping[str, str]) -> Address:
    if environment.get("DOCKER_TLS_VERIFY"):
        folder = environment.get("DOCKER_CERT_PATH") or str(PurePosixPath(environment.get("HOME", "/"), ".docker"))
        return Address(kind="tls", told=told, host=host, port=port or 2376, certificates=folder)
    if not _loopback(host):
        raise SandboxUnavailableError(
            f"DOCKER_HOST={told} is plain TCP to another machine: whoever is in between becomes root there; "
            "mend: DOCKER_TLS_VERIFY=1 with DOCKER_CERT_PATH, or ssh://"
        )
    return Address(kind="tcp", told=told, host=host, port=port or 2375)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
