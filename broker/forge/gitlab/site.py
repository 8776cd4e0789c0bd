"""Where a GitLab project is, and how its API is spoken to."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from broker.config.repository import Repository
from broker.errors import ConfigError
from broker.forge.rest.address import Address, part
from broker.forge.rest.door import Dialect
from broker.forge.transport import Remote

GITLAB = Dialect("GitLab", sign=lambda token: {"PRIVATE-TOKEN": token})
"""A project, group or personal access token. A token in the query, which GitLab would take too, is never used."""


@dataclass(frozen=True)
class Site:
    """One project: its name in broker.toml, its path with all its groups, web address, API, git, branches' prefix."""

    name: str
    prefix: str
    project: str
    web: str
    address: Address
    remote: Remote

    @property
    def path(self) -> str:
        """The project's part of an API path: its whole path as one piece, the slashes encoded."""
        return f"/projects/{part(self.project)}"

    def merge_url(self, number: int) -> str:
        """The page of a merge request, from broker.toml's address: what the forge tells is not shown to anyone."""
        return f"{self.web}/-/merge_requests/{number}"

    def issue_url(self, number: int) -> str:
        """The page of an issue."""
        return f"{self.web}/-/issues/{number}"


def site(name: str, settings: Repository) -> Site:
    """The site that the settings name. Raises ConfigError.

    An installation in a folder of its host needs ``api``, which then tells where the project's path begins.
    """
    url = settings.url or ""
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    if settings.api and settings.api.endswith("/api/v4") and url.startswith(settings.api.removesuffix("/api/v4") + "/"):
        root = settings.api.removesuffix("/api/v4")
    project = url.removeprefix(root).strip("/")
    pieces = project.split("/")
    if len(pieces) < 2 or not all(pieces) or {".", "..", "-"} & set(pieces):
        raise ConfigError(f"url {url!r} names no project", "write it as https://HOST/GROUP/NAME, sub-groups included")
    address = Address(settings.api or f"{root}/api/v4", settings.ca_file)
    remote = Remote(settings.git or url, "oauth2", settings.ca_file)
    return Site(name, settings.branch_prefix, project, url, address, remote)
