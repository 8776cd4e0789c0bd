"""The visibility rule: what is read where few may read never shows where more may."""

from __future__ import annotations

from collections.abc import Iterable

from broker.forge.base import Visibility
from broker.service.ward import Ward
from broker.wire import Finding

_MEND = "leave it out of reads; or, where the forge cannot tell, the operator sets visibility in broker.toml"


def leak(target: Ward, sources: Iterable[Ward]) -> Finding | None:
    """Whether something could flow from a source that may be private into a target that may be public, as of now.

    What nobody can tell counts as worst. Raises ForgeError.
    """
    read = tuple(sources)
    if not read or visibility(target) == "private":
        return None
    closed = [source.name for source in read if visibility(source) != "public"]
    if not closed:
        return None
    message = f"{', '.join(closed)} may be private and {target.name} may be public: what is read there would show here"
    return Finding(rule="visibility", severity="fatal", message=message, mend=_MEND)


def visibility(ward: Ward) -> Visibility:
    """Who can read a repository, as the settings or else the forge say now. Raises ForgeError."""
    said = ward.settings().visibility
    return ward.forge.visibility() if said == "forge" else said
