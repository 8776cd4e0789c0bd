"""The message of the one commit that the broker makes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from broker.words.clean import clean
from broker.words.dialect import Dialect


def commit_message(subject: str, body: str, trailers: Mapping[str, str], dialect: Dialect) -> str:
    """Subject as it is (a `title`), the body cleaned of all effect, and no trailers but the broker's own."""
    own = "\n".join(f"{name}: {value}" for name, value in trailers.items())
    return "\n\n".join(part for part in (subject, clean(body, dialect), own) if part) + "\n"
