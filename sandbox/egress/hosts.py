"""Which hosts, ports, methods, paths and addresses may be reached. Pure: nothing is looked up here."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import idna

from sandbox.config import PackageRule

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

WEB = {"http": 80, "https": 443}
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_AUTHORITY = re.compile(
    rf"(?P<host>(?:{_LABEL}\.)*{_LABEL}|\[[0-9a-f:.]+\])\.?(?::(?P<port>[0-9]{{1,5}}))?\Z", re.IGNORECASE | re.ASCII
)
_NUMERIC = re.compile(
    r"(0x[0-9a-f]*|[0-9]+)\Z", re.IGNORECASE | re.ASCII
)  # a last label that inet_aton would take for a number
# Where clouds tell their virtual machines secrets, though it is no link-local address: Azure, Alibaba, AWS, Google.
_METADATA = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254")))
_SHARED = ipaddress.ip_network("100.64.0.0/10")  # RFC 6598; many private overlays use it
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Place:
    """A host and a port. The host is in small letters, without a last dot, in its ASCII form."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def place(authority: str, default: int | None) -> Place | None:
    """HOST or HOST:PORT as a request names it; None for what is no such thing: a userinfo, an encoded or empty name."""
    if not (match := _AUTHORITY.match(authority)):
        return None
    port = int(match["port"]) if match["port"] else default
    if not port or port > 65535 or len(match["host"]) > 253:
        return None
    return Place(match["host"].lower().strip("[]"), port)


def is_literal(host: str) -> bool:
    """Whether a host is an address, in any spelling that a resolver would take for one."""
    return ":" in host or bool(_NUMERIC.match(host.rpartition(".")[2]))


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the allowlist. ``port`` None means the web's own, and public addresses alone."""

    host: str
    suffix: bool
    port: int | None
    rule: PackageRule

    def matches(self, where: Place, scheme: str) -> bool:
        """Whether this line is about that place."""
        name = where.host.endswith("." + self.host) if self.suffix else where.host == self.host
        return name and where.port == (self.port or WEB[scheme])


class Allowlist:
    """What the operator lists. An empty one lets nothing out (CVE-2025-66479)."""

    def __init__(self, entries: Sequence[str], rules: Mapping[str, PackageRule]) -> None:
        """Raises ValueError for a line that names no host."""
        self._listed = tuple(_listed(entry, rules.get(entry, PackageRule())) for entry in entries)

    def lines(self, where: Place, scheme: str) -> tuple[Listed, ...]:
        """The lines about a place, none where it may not be reached."""
        return tuple(line for line in self._listed if line.matches(where, scheme))

    def refuses_place(self, where: Place, scheme: str) -> str | None:
        """Why a place may not be reached, or None."""
        if not self._listed:
            return "no host at all is listed in [sandbox.egress.packages] hosts"
        if self.lines(where, scheme):
            return None
        if any(self.lines(Place(where.host, port), name) for name, port in WEB.items()):
            return f"{where.host} is listed, but not port {where.port} for {scheme}"
        kind = "the address " if is_literal(where.host) else ""
        return f"{kind}{where} is not among the hosts listed in [sandbox.egress.packages]"

    def refuses_request(self, where: Place, scheme: str, method: str, target: str) -> str | None:
        """Why a request to a listed place is not passed on, or None."""
        lines = self.lines(where, scheme)
        if not lines:
            return self.refuses_place(where, scheme)
        path = target.partition("?")[0]
        if climbs(path):
            return "its path climbs"
        able = [line for line in lines if method in line.rule.methods]
        if not able:
            return f"{method} is not among the methods listed for {where.host}: {', '.join(lines[0].rule.methods)}"
        if not any(_below(path, prefix) for line in able for prefix in line.rule.paths):
            return f"its path is not among those listed for {where.host}: {', '.join(able[0].rule.paths)}"
        return None

    def refuses_address(self, where: Place, address: str) -> str | None:
        """Why a connection to a resolved address is not made, or None.

        Private and loopback ones are for a HOST:PORT that is listed expressly; link-local ones, where clouds keep
        credentials, only where the address itself is listed.
        """
        found = _innermost(ipaddress.ip_address(address.partition("%")[0]))
        if found.is_global and not found.is_multicast and found not in _METADATA:
            return None
        express = [line for line in self._listed if line.port == where.port and line.matches(where, "http")]
        literal = any(line.host == where.host for line in express) and is_literal(where.host)
        near = found.is_private or found.is_loopback or found in _SHARED
        odd = found.is_link_local or found.is_multicast or found.is_unspecified or found in _METADATA
        if literal or (express and near and not odd):
            return None
        return (
            f"{where.host} is at {found}, which is no public address; list {where} expressly if it is a mirror of yours"
        )


def _listed(entry: str, rule: PackageRule) -> Listed:
    suffix = entry.startswith("*.")
    name = entry.removeprefix("*.")
    host, colon, port = (
        name.rpartition(":") if re.search(r":[0-9]+\Z", name) and not name.endswith("]") else (name, "", "")
    )
    if not host.isascii():
        host = idna.encode(host, uts46=True).decode()
    found = place(f"{host}{colon}{port}", 443)
    if found is None or (suffix and "." not in found.host):
        raise ValueError(f"{entry!r} is no host, host:port or *.suffix of at least two labels")
    return Listed(found.host, suffix, found.port if colon else None, rule)


def climbs(path: str) -> bool:
    """Whether a path has a dot segment or a backslash, plain or encoded up to twice."""
    for _ in range(3):
        if "\\" in path or any(part in {".", ".."} for part in path.split("/")):
            return True
        path = unquote(path)
    return False


def _below(path: str, prefix: str) -> bool:
    return path.startswith(prefix) if prefix.endswith("/") else path == prefix or path.startswith(prefix + "/")


def _innermost(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, else itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address
