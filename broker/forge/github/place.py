"""Where a repository is on GitHub or a GitHub Enterprise: its API, its git address, its pages. All from broker.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from broker.config.repository import Repository
from broker.errors import ConfigError
from broker.forge.rest.address import Address, part
from broker.forge.rest.door import Dialect
from broker.forge.transport import Remote

_FULL_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})/[A-Za-z0-9._-]{1,100}")
_V3 = "/v3"

DIALECT = Dialect(
    name="github",
    sign=lambda token: {"Authorization": f"Bearer {token}"},
    headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
)


@dataclass(frozen=True)
class Place:
    """One repository's addresses; ``prefix`` is what every branch of the broker's own starts with."""

    name: str
    full_name: str
    prefix: str
    web: str
    api: Address
    git: Remote
    rest: str = ""

    @property
    def owner(self) -> str:
        """User or organisation."""
        return self.full_name.split("/", maxsplit=1)[0]

    @property
    def graphql(self) -> str:
        """Path of the GraphQL API."""
        return "/graphql"

    @property
    def user(self) -> str:
        """Path of whose token it is."""
        return f"{self.rest}/user"

    def repo(self, *pieces: object) -> str:
        """Path of the repository, or of something in it."""
        owner, name = self.full_name.split("/")
        return "/".join((f"{self.rest}/repos/{part(owner)}/{part(name)}", *(part(piece) for piece in pieces)))

    def ref(self, branch: str) -> str:
        """Path of a branch, one piece as its description has it. Raises ValueError for a name that leads elsewhere."""
        if any(piece in {"", ".", ".."} for piece in branch.split("/")):
            raise ValueError(f"{branch!r} is no name of a branch")
        return self.repo("git", "ref", f"heads/{branch}")

    def page(self, number: int, *, pull: bool = True) -> str:
        """What a person opens; made here, so that no address of the forge's answer is passed on."""
        return f"{self.web}/{'pull' if pull else 'issues'}/{number}"


def place_of(name: str, settings: Repository) -> Place:
    """The addresses that the settings of a repository give. Raises ConfigError if url is no repository's."""
    url = settings.url or ""
    full_name = urlsplit(url).path.strip("/")
    if not _FULL_NAME.fullmatch(full_name) or full_name.endswith(("/.", "/..")):
        mend = "such as https://github.com/OWNER/NAME"
        raise ConfigError(f"repositories.{name}.url = {url} is no address of a repository on GitHub", mend)
    base = settings.api or api_of(url)
    has_version = base.endswith("/api" + _V3)  # GraphQL lies beside the version, not below it
    return Place(
        name=name,
        full_name=full_name,
        prefix=settings.branch_prefix,
        web=url,
        api=Address(base.removesuffix(_V3) if has_version else base, settings.ca_file),
        git=Remote(settings.git or url, "x-access-token", settings.ca_file),
        rest=_V3 if has_version else "",
    )


def api_of(url: str) -> str:
    """The usual address of the API: api.github.com, api.NAME.ghe.com, or /api/v3 of an Enterprise Server."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in {"github.com", "www.github.com"}:
        return "https://api.github.com"
    if host.endswith(".ghe.com"):
        return f"https://api.{quote(host)}"
    return f"{parts.scheme}://{parts.netloc}/api{_V3}"
