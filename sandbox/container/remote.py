"""Brings an engine, wherever it is, to one unix socket on this machine; all else speaks to that socket.

A far engine's socket lies in a folder that only this user can enter. What goes wrong on the way is told by `why`, since
those who speak to the socket see no more than a connection that ends.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Protocol

from sandbox.container.address import Address, address_of
from sandbox.container.relay import TcpRelay
from sandbox.container.ssh import SshForward
from sandbox.errors import SandboxLostError


class Way(Protocol):
    """A way to one engine. ``local`` tells whether it is an engine of this machine."""

    @property
    def local(self) -> bool: ...

    @property
    def told(self) -> str: ...

    async def path(self) -> str:
        """The socket to speak to, the way opened or reopened. Raises SandboxLostError with reason and mend."""

    async def why(self) -> str:
        """What last went wrong on the way, or nothing."""

    async def close(self) -> None: ...


def way_to(environment: Mapping[str, str]) -> Way:
    """The way to the engine that the environment names; nothing is opened yet. Raises SandboxUnavailableError."""
    address = address_of(environment)
    if address.kind == "unix":
        return LocalSocket(address)
    if address.kind == "ssh":
        return SshForward(address, environment)
    return TcpRelay(address)


class LocalSocket:
    """An engine's own socket."""

    def __init__(self, address: Address) -> None:
        self.local = True
        self.told = address.told
        self._path = address.path

    async def path(self) -> str:
        """Connects once by hand: where no engine listens, the SDK would leave its socket open."""
        _knock(self._path)
        return self._path

    async def why(self) -> str:
        """Nothing lies in between."""
        return ""

    async def close(self) -> None:
        """Nothing is held."""


def _knock(path: str) -> None:
    """Never waits: a unix socket is connected at once, or its queue is full and someone listens."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(0)
        try:
            probe.connect(path)
        except BlockingIOError:
            return
        except PermissionError as error:
            raise SandboxLostError(
                f"this user may not open the Docker engine's socket {path}; mend: join its group, or use bubblewrap"
            ) from error
        except OSError as error:
            raise SandboxLostError(
                f"no Docker engine listens at {path} ({error.strerror or error}); mend: start one (in a checkout, as "
                'root: eval "$(scripts/start-docker)"), or set DOCKER_HOST'
            ) from error
