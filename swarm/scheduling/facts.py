"""What a decision of the scheduler is made from: the host that asks, what runs, what waits, and the caps. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class HostFacts:
    """A host that asks for work. ``lease`` is how many seconds it holds a task unless it renews.

    ``labels`` are words as a task's ``requires`` has them: gpu, arch=aarch64, image:python.
    """

    name: str
    labels: frozenset[str] = frozenset()
    slots: int = 1
    lease: float = 60.0


@dataclass(frozen=True)
class Caps:
    """How many tasks may run at a time; None is no cap.

    ``repositories``, ``users`` and ``tiers`` are caps of their own for some names; ``per_…`` hold for every other.
    """

    fleet: int | None = None
    per_repository: int | None = None
    per_user: int | None = None
    per_tier: int | None = None
    repositories: Mapping[str, int] = field(default_factory=lambda: _NONE)
    users: Mapping[str, int] = field(default_factory=lambda: _NONE)
    tiers: Mapping[str, int] = field(default_factory=lambda: _NONE)


@dataclass(frozen=True)
class Candidate:
    """A queued task, as far as it matters for whether it may start. ``repository``, ``user`` and ``tier`` are its own.

    ``pull`` is the first task of its pull request, ``needs`` counts the needed tasks that are not done, and
    ``not_before`` is a time in seconds since 1970. ``begun`` is the host that has the saved work of an attempt which
    was stopped in the middle.
    """

    task: str
    repository: str
    user: str
    tier: str
    rank: float = 0.0
    priority: int = 50
    mutex: str | None = None
    pull: str = ""
    requires: tuple[str, ...] = ()
    needs: int = 0
    not_before: float = 0.0
    begun: str = ""


@dataclass(frozen=True)
class Busy:
    """A task that is worked on now or, with ``delivering``, waits for the broker, which takes nobody's slot."""

    task: str
    repository: str
    user: str
    tier: str
    mutex: str | None = None
    pull: str = ""
    host: str | None = None
    delivering: bool = False


@dataclass(frozen=True)
class Hold:
    """Something that keeps tasks from starting though slots are free: an open breaker, a spent budget, a preflight.

    ``scope`` is repository:NAME, user:NAME, tier:NAME or fleet; ``reason`` is what a person sees. ``fresh`` tells that
    it holds what begins alone, and nothing whose saved work the host that asks goes on with.
    """

    scope: str
    reason: str
    fresh: bool = False


@dataclass(frozen=True)
class Rules:
    """What the settings say of the queue. ``images`` names the system of each repository's sandboxes."""

    caps: Caps = Caps()
    images: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Running:
    """Everything that holds a slot, and what is held back. ``now`` in seconds since 1970."""

    busy: tuple[Busy, ...] = ()
    holds: tuple[Hold, ...] = ()
    now: float = 0.0
