"""Where the daemon's database is when it is no file of its own: a Postgres server, its password kept apart."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from swarm.config_text import Problem

SCHEMES = ("postgresql", "postgres")
# What libpq takes in an address and may stand in ours; others could name programs, files with passwords, or options.
QUERY = ("host", "sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs")


@dataclass(frozen=True)
class Address:
    """A Postgres database. ``url`` holds no password, so that it may be shown."""

    url: str
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.url


def address_misfits(url: str) -> Iterator[Problem]:
    """What is wrong with the setting daemon.database. What it holds is never told back: it may be a password."""
    for message in _faults(url):
        yield Problem(key="daemon.database", line=None, message=message)


def _faults(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        port, query = parts.port, dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        yield "is no address; write postgresql://USER@HOST:PORT/DATABASE"
        return
    if parts.scheme not in SCHEMES or port == 0 or parts.fragment or not parts.path.strip("/"):
        yield "is no address of a Postgres database; write postgresql://USER@HOST:PORT/DATABASE"
    if parts.password is not None:
        yield "holds a password, which would be seen; put it in a file and name that as daemon.database_password_file"
    if strange := sorted(set(query) - set(QUERY)):
        known = ", ".join(QUERY)
        yield f"has words after the ? that are not taken here ({len(strange)} of them); taken are: {known}"
    if "sslmode" not in query and not _local(parts.hostname or query.get("host", "")):
        words = "is on another machine and does not say how the way there is protected: add ?sslmode=verify-full, or "
        yield f"{words}sslmode=disable where the network itself is (a tunnel, a wire of your own)"


def _local(host: str) -> bool:
    if host in {"", "localhost"} or host.startswith("/"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
