"""Which address may stay one: https, on a named host, without a query; all others are shown and lead nowhere. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from broker.words.dialect import Dialect

# A plain address that ends where every forge's own recogniser ends it, or anything that one of them would begin with.
_ADDRESS = re.compile(
    r"(?<![\w+.:/@-])https://[A-Za-z0-9.-]{1,253}(?::\d{1,5})?(?:/[A-Za-z0-9._+/-]{0,1000})?(?:#[A-Za-z][\w.-]{0,200})?"
    r"(?=[).,;:]{0,3}(?:\s|\Z))"
    r"|://(?=\S)|www\.(?=\S)|(?:mailto|xmpp|javascript|vbscript|data):(?=\S)",
    re.IGNORECASE,
)
_IMAGE = re.compile(r"!\[([^\[\]\n]{0,1000})\](?:\([^()\n]{0,2000}\)|\[[^\[\]\n]{0,1000}\])?")
_LINK = re.compile(r"\[([^\[\]\n]{0,1000})\](?:\(([^()\n]{0,2000})\)|\[[^\[\]\n]{0,1000}\])")
# A link to one of these leaves a note there, or closes it.
_NOTED = frozenset({
    "issues", "pull", "pulls", "merge_requests", "discussions", "work_items", "epics", "milestone", "milestones",
    "settings", "compare",
})  # fmt: skip


def without_links(text: str) -> str:
    """Images as their words, links as their words with the address behind; titles and references are gone."""
    return _LINK.sub(_spelled_out, _IMAGE.sub(r"\1", text))


def defused(text: str, dialect: Dialect) -> str:
    """Every address that may not stay is shown with a gap that no forge links across."""
    return _ADDRESS.sub(lambda found: _shown(found.group(), dialect), text)


def may_stay(address: str, dialect: Dialect) -> bool:
    """Whether an address leads to a host that the operator named, or into the forge's own repository and to no talk."""
    parts = urlsplit(address.rstrip(".,;:"))
    if parts.scheme != "https" or parts.query or "@" in parts.netloc:
        return False
    steps = parts.path.casefold().strip("/").split("/")
    host = parts.netloc.casefold()
    if set(steps) & {".", ".."} or "//" in parts.path:
        return False
    if host == dialect.host:
        inside = f"{'/'.join(steps)}/".startswith(f"{dialect.path}/")
        return inside and bool(dialect.path) and not set(steps) & _NOTED
    return host in dialect.link_hosts


def _shown(address: str, dialect: Dialect) -> str:
    return address if "://" in address[1:] and may_stay(address, dialect) else _gap(address)


def _gap(address: str) -> str:
    at = address.find("://")
    end = at + 3 if at >= 0 else len(address)
    return f"{address[:end]} {address[end:]}"


def _spelled_out(found: re.Match[str]) -> str:
    words, target = found.group(1), (found.group(2) or "").strip().partition(" ")[0].strip("<>")
    return f"{words} ({target})" if target.lower().startswith("https://") else words
