"""Which vLLM release knows which flag, parser and KV connector: from a shipped table, or as an installed vLLM told.

The table (flags.json) was made by scripts/vllm_flags.py from the sources of some releases and, for one, from the parser
of an installation; both ways agreed. Between two releases of the table a name counts as known where both know it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from pool.errors import PoolConfigError

Kind = Literal["flag", "tool_parser", "reasoning_parser", "connector"]
Table = Mapping[Kind, Mapping[str, tuple[str, ...]]]


@cache
def table() -> Table:
    """The shipped table: by kind, each name with the releases that know it, oldest first."""
    told = json.loads(resources.files("pool.profiles").joinpath("flags.json").read_text("utf-8"))
    return {kind: {name: tuple(seen) for name, seen in names.items()} for kind, names in told.items()}


@cache
def releases() -> tuple[str, ...]:
    """The releases of the table, oldest first."""
    return tuple(sorted({v for names in table().values() for seen in names.values() for v in seen}, key=order))


def order(version: str) -> tuple[int, ...]:
    """A version as something to compare. Raises PoolConfigError for one that is no release's."""
    numbers = version.strip().removeprefix("v").split("+")[0].split(".post")[0].split("rc")[0].split(".dev")[0]
    try:
        return tuple(int(part) for part in numbers.split("."))
    except ValueError:
        raise PoolConfigError(f"{version!r} is no vLLM version; write it like {releases()[-1]}") from None


def since(kind: Kind, name: str) -> str | None:
    """The oldest release of the table that knows a name; None where none does."""
    return next(iter(table()[kind].get(name, ())), None)


@dataclass(frozen=True, slots=True)
class Release:
    """One vLLM. ``told`` are its own facts where it is installed; without, the shipped table answers."""

    version: str
    told: Mapping[Kind, frozenset[str]] | None = None

    @property
    def assumed(self) -> str | None:
        """The release of the table that stands for one older or newer than all of it; None where none need be.

        It lends its lacks alone: what it has is unconfirmed for the other.
        """
        oldest, newest = releases()[0], releases()[-1]
        if self.told is not None or order(oldest) <= order(self.version) <= order(newest):
            return None
        return newest if order(self.version) > order(newest) else oldest

    def knows(self, kind: Kind, name: str) -> bool | None:
        """Whether this release has a flag, parser or connector; None where that cannot be told from here."""
        if self.told is not None:
            return name in self.told[kind]
        seen = table()[kind].get(name, ())
        known = {release in seen for release in around(self.assumed or self.version)}
        if self.assumed:
            return None if True in known else False
        return known.pop() if len(known) == 1 else None

    def why(self, kind: Kind, name: str) -> str:
        """The reason in words for an answer that was not yes."""
        first = since(kind, name)
        if self.knows(kind, name) is False:
            whose = f"{self.assumed}, which is taken for {self.version}," if self.assumed else self.version
            return f"vLLM {whose} has none" + (f"; {first} is the first one seen to have it" if first else "")
        if self.assumed:
            return f"not confirmed for vLLM {self.version}: {self.assumed} has it"
        seen = [(release, release in table()[kind].get(name, ())) for release in around(self.version)]
        told = " and ".join(f"{release} has {'it' if has else 'none'}" for release, has in seen)
        return f"not confirmed for vLLM {self.version}: {told}"


def around(version: str) -> Iterable[str]:
    """The releases of the table that bracket a version: itself, or its two neighbours; none outside the table."""
    mine = order(version)
    below = [release for release in releases() if order(release) <= mine]
    above = [release for release in releases() if order(release) >= mine]
    return dict.fromkeys((below[-1], above[0])) if below and above else ()
