"""Where a Gitea or Forgejo repository is, and how its API is spoken to."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from broker.config.repository import Repository
from broker.errors import ConfigError
from broker.forge.rest.address import Address, part
from broker.forge.rest.door import Dialect
from broker.forge.transport import Remote

GITEA = Dialect("Gitea", sign=lambda token: {"Authorization": f"token {token}"})
"""The header is Gitea's own; `Bearer` is for OAuth. A token in the query, which Gitea would take too, is never used."""


@dataclass(frozen=True)
class Site:
    """One repository: its name in broker.toml, owner and name there, web address, API, git, the branches' prefix."""

    name: str
    prefix: str
    owner: str
    repository: str
    web: str
    address: Address
    remote: Remote

    @property
    def path(self) -> str:
        """The repository's part of an API path."""
        return f"/repos/{part(self.owner)}/{part(self.repository)}"

    def pull_url(self, number: int) -> str:
        """The page of a pull request, from broker.toml's address: what the forge tells is not shown to anyone."""
        return f"{self.web}/pulls/{number}"

    def issue_url(self, number: int) -> str:
        """The page of an issue."""
        return f"{self.web}/issues/{number}"


def site(name: str, settings: Repository) -> Site:
    """The site that the settings name; the address may have a folder before owner and name. Raises ConfigError."""
    url = settings.url or ""
    parts = urlsplit(url)
    pieces = parts.path.strip("/").split("/")
    if len(pieces) < 2 or not all(pieces) or {".", ".."} & set(pieces):
        raise ConfigError(f"url {url!r} names no repository", "write it as https://HOST/OWNER/NAME")
    folder = "".join(f"/{piece}" for piece in pieces[:-2])
    api = settings.api or f"{parts.scheme}://{parts.netloc}{folder}/api/v1"
    remote = Remote(settings.git or url, "x-access-token", settings.ca_file)
    address = Address(api, settings.ca_file)
    return Site(name, settings.branch_prefix, pieces[-2], pieces[-1], url, address, remote)
