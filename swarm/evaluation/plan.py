"""What a run of an evaluation is to do: which cases, in which ways, how often, at what cost. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from swarm.types import Budget, Frozen

NO_TIER = "-"  # of ways that ask no model
_SLUG = re.compile(r"[^a-z0-9]+")


class Way(Frozen):
    """How cases are worked on: a strategy by its name, and the tier that it asks."""

    strategy: str
    tier: str

    @property
    def name(self) -> str:
        """Both, as reports have it."""
        return self.strategy if self.tier == NO_TIER else f"{self.strategy} on {self.tier}"


class Planned(Frozen):
    """One try at one case. ``key`` names it; the run's seed is in it, and so in whatever it draws at random."""

    case: str
    way: Way
    number: int
    key: str

    @property
    def task(self) -> str:
        """The id of its task."""
        return f"eval-{self.key}"

    @property
    def attempt(self) -> str:
        """The id of its one attempt, which seeds whatever a strategy draws."""
        return f"{self.task}.1"

    @property
    def folder(self) -> str:
        """A name for its folder: of the case's id nothing but letters and digits gets into it."""
        slug = _SLUG.sub("-", self.case.lower()).strip("-")[:40].strip("-")
        return f"{slug}-{self.key}" if slug else self.key


class Plan(Frozen):
    """What makes two runs comparable, and whether one may be gone on with. ``cases`` are digests by id, in order.

    ``models`` are those that the settings name, by tier; ``backend`` and ``image`` are of the sandboxes. ``climb``:
    tiers are not pinned, so that a strategy may ask others.
    """

    version: Literal[1] = 1
    program: str
    set: str
    origin: str
    licence: str
    cases: dict[str, str]
    ways: tuple[Way, ...] = Field(min_length=1)
    repeat: int = Field(default=1, ge=1, le=1000)
    seed: int = 0
    budget: Budget
    models: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    backend: str = ""
    image: str = ""
    climb: bool = False
    embedded: bool = False
    given: dict[str, Any] = Field(default_factory=dict, description="what a person gave the set beside its name")
    config: str = Field(default="", description="the swarm.toml that it was begun with; empty: none")
    started: float = Field(default=0.0, description="when it was begun, in seconds since the epoch")

    def tries(self) -> Iterator[Planned]:
        """All tries, in order: a case in every way before the next, so that a run cut short compares like to like."""
        for case, digest in self.cases.items():
            for number in range(1, self.repeat + 1):
                for way in self.ways:
                    words = "\0".join((str(self.seed), self.set, digest, way.strategy, way.tier, str(number)))
                    key = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:16]
                    yield Planned(case=case, way=way, number=number, key=key)


def changes(before: Plan, now: Plan) -> tuple[str, ...]:
    """How a plan differs from an earlier one, in words; when it was begun, and where its settings lie, is no
    difference."""
    found = []
    for name in Plan.model_fields:
        was, will = getattr(before, name), getattr(now, name)
        if name in {"started", "cases", "config"} or was == will:
            continue
        found.append(f"{name} was {_words(was)} and is {_words(will)}")
    if before.cases != now.cases:
        found.append(_cases(before.cases, now.cases))
    return tuple(found)


def _words(value: object) -> str:
    if isinstance(value, Budget):
        return ", ".join(f"{name} {each}" for name, each in value.model_dump(exclude_none=True).items())
    if isinstance(value, tuple):
        return ", ".join(each.name if isinstance(each, Way) else str(each) for each in value)
    return repr(value)


def _cases(was: dict[str, str], will: dict[str, str]) -> str:
    changed = [case for case in was if case in will and was[case] != will[case]]
    gone, new = [case for case in was if case not in will], [case for case in will if case not in was]
    parts = [(changed, "changed"), (gone, "gone"), (new, "new")]
    told = [
        f"{len(cases)} {word} ({', '.join(cases[:3])}{', ...' if len(cases) > 3 else ''})"
        for cases, word in parts
        if cases
    ]
    return f"of its cases {', '.join(told)}"
