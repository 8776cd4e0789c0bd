"""What a forge makes of a text, as data: the signs that refer, the words that toggle, the addresses that may stay."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from broker.config.repository import ForgeKind, Repository

REFERENCES: dict[ForgeKind, str] = {
    "local": "#!",
    "github": "#!",  # "!" refers to nothing here, yet the text may be read where it does
    "gitea": "#!",
    "gitlab": "#!&$%^~",  # issue, merge request, epic, snippet, milestone, alert, label
}
"""Signs that, before a number, refer to something and leave a note there."""


@dataclass(frozen=True)
class Dialect:
    """One repository's: ``host`` (with a port if it has one) and ``path`` are the forge's own; empty where it has none.

    ``link_hosts`` and the lengths are the operator's. Whatever is not named here loses its effect on every forge alike.
    """

    kind: ForgeKind = "local"
    host: str = ""
    path: str = ""
    link_hosts: frozenset[str] = frozenset()
    title_chars: int = 120
    body_chars: int = 60_000

    @property
    def references(self) -> str:
        """The signs that refer."""
        return REFERENCES[self.kind]


def dialect_of(repository: Repository) -> Dialect:
    """The dialect that a repository's settings name."""
    parts = urlsplit(repository.url or "")
    return Dialect(
        kind=repository.forge,
        host=parts.netloc.casefold(),
        path=parts.path.strip("/").casefold(),
        link_hosts=frozenset(host.casefold() for host in repository.policy.link_hosts),
        title_chars=repository.policy.title_chars,
        body_chars=repository.policy.body_chars,
    )
