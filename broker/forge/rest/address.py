"""Where a forge's API is: one fixed origin and folder, from broker.toml alone. Nothing that arrives can change it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

from broker.errors import ConfigError

_MOST_PAIRS = 20
_LONGEST_LINK = 4096


@dataclass(frozen=True)
class Address:
    """``base`` without a slash at the end, such as https://api.github.com; ``ca_file`` instead of the usual trust."""

    base: str
    ca_file: Path | None = None

    @property
    def host(self) -> str:
        """Host and port, as messages and the pace name it."""
        return urlsplit(self.base).netloc

    def url(self, path: str) -> str:
        """The whole address of a path below it. Raises ValueError for one that would leave it."""
        if not path.startswith("/") or ".." in path.split("/") or any(c in path for c in "\\?#\r\n"):
            raise ValueError(f"{path!r} is no path of an API")
        return self.base + path

    def trust(self) -> ssl.SSLContext | None:
        """Whom to believe; None for the usual authorities. Raises ConfigError if the file cannot be used."""
        if self.ca_file is None:
            return None
        try:
            return ssl.create_default_context(cafile=str(self.ca_file))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"the certificates in {self.ca_file} cannot be used: {error}", "correct ca_file"
            ) from None


def part(value: object) -> str:
    """One piece of a path, so that no slash, dot or sign in it means anything."""
    text = quote(str(value), safe="")
    if text in {"", ".", ".."}:
        raise ValueError(f"{text!r} cannot be a piece of a path")
    return text


def next_query(link: str | None) -> tuple[tuple[str, str], ...] | None:
    """The query of the next page in a Link header (RFC 8288); None if there is none.

    Only the query is taken, and put on the path that was asked before: where a Link points is never followed, so a
    forge, or whoever speaks for it, cannot send a credential to another host.
    """
    for entry in (link or "")[:_LONGEST_LINK].split(","):
        target, _, parameters = entry.strip().partition(">")
        if target.startswith("<") and any(p.strip() in {'rel="next"', "rel=next"} for p in parameters.split(";")):
            try:
                return tuple(parse_qsl(urlsplit(target[1:]).query, max_num_fields=_MOST_PAIRS))
            except ValueError:
                return None
    return None


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    """Header names in lower case, values cut."""
    return {name.lower(): value[:1000] for name, value in headers.items()}
