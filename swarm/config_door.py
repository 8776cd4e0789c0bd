"""Settings of the daemon's door over TCP: where it listens, under which certificate, and who may call."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field

from swarm.answers import Role
from swarm.config_text import Problem, dotted
from swarm.types import Frozen

TOKEN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"  # noqa: S105  # a pattern; what names a token may have
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):(\d{1,5})")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


class TokenConfig(Frozen):
    """A caller's right, as its hash: who has the token may call, who reads this may not."""

    name: str = Field(pattern=TOKEN_NAME, description="who calls with it; tasks are shown as handed in by this name")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the token, as swarm token add writes it")
    role: Role = Field(
        default="submitter",
        description="viewer looks; submitter hands in tasks and moves its own; operator may do everything",
    )
    per_minute: int = Field(default=600, ge=1, le=1_000_000, description="requests that it may make in a minute")


class TcpConfig(Frozen):
    """Where the api listens for other machines."""

    address: str = Field(description='host and port, as "0.0.0.0:7420" or "[::1]:7420"')
    certificate: Path | None = Field(default=None, description="file with the TLS certificate and its chain, as PEM")
    key: Path | None = Field(default=None, description="file with the certificate's key, as PEM, without a password")
    plain: bool = Field(
        default=False, description="answer without TLS; on a loopback address only, as behind a proxy of this machine"
    )
    hosts: tuple[str, ...] = Field(
        default=(), max_length=50, description="names by which callers reach it; addresses and localhost always do"
    )
    tokens: Path | None = Field(
        default=None, description="file that swarm token writes; default: tokens.json in daemon.state"
    )

    @property
    def place(self) -> tuple[str, int]:
        """Host and port. Raises ValueError for an address without both."""
        found = _ADDRESS.fullmatch(self.address)
        if found is None or not 0 <= int(found[2]) <= 65_535:
            raise ValueError(f'"{self.address}" is no HOST:PORT')
        return found[1].strip("[]"), int(found[2])


def loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def known_host(told: str, names: tuple[str, ...]) -> bool:
    """Whether a Host header names this daemon. An address cannot be rebound by a page, another's name can."""
    try:
        name = urlsplit(f"//{told}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name in {each.lower() for each in names}
    return True


def tcp_misfits(tcp: TcpConfig | None, tokens: tuple[TokenConfig, ...]) -> Iterator[Problem]:
    """What of the door's settings cannot be meant."""
    names = [token.name for token in tokens]
    for number, name in enumerate(names):
        if name in names[:number]:
            words = f'"{name}" is taken by another token; give every caller a name of its own'
            yield Problem(key=dotted(("daemon", "tokens", number, "name")), line=None, message=words)
    if tcp is None:
        return
    try:
        host, _ = tcp.place
    except ValueError as error:
        yield Problem(key="daemon.tcp.address", line=None, message=f'{error}; write it as "0.0.0.0:7420"')
        return
    for number, name in enumerate(tcp.hosts):
        if not _HOST.fullmatch(name):
            words = f'"{name[:60]}" is no host\'s name; write it without a scheme and a port'
            yield Problem(key=dotted(("daemon", "tcp", "hosts", number)), line=None, message=words)
    if (tcp.certificate is None) != (tcp.key is None):
        yield Problem(key="daemon.tcp", line=None, message="certificate and key belong together; give both")
    elif tcp.certificate is None and not (tcp.plain and loopback(host)):
        where = "is needed" if not tcp.plain else f"is needed, since others reach {host}"
        words = f"a certificate and its key {where}: tokens would cross the net in the open; plain = true is for "
        yield Problem(key="daemon.tcp.certificate", line=None, message=words + "an address of this machine alone")
    elif tcp.certificate is not None and tcp.plain:
        yield Problem(key="daemon.tcp.plain", line=None, message="there is a certificate; leave plain out")
