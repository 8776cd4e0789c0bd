"""One tier as admission sees it: its queue, who holds how many places, and its sites at one moment; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pool.admission.classes import LEVELS, Classes
from pool.admission.fairness import Service
from pool.admission.pace import Pace
from pool.admission.queue import Queue
from pool.placement.choice import GUESS
from pool.placement.view import Ask, Site

Sites = Callable[[], Sequence[Site]]


def living(sites: Sequence[Site]) -> list[Site]:
    """Those that may be asked, now or in a moment."""
    return [s for s in sites if s.state in ("up", "suspect") and not s.draining and s.role != "prefill"]


def able(alive: Sequence[Site], ask: Ask) -> list[Site]:
    """Those that can take this ask, now or in a moment. How long its prompt is, is only guessed."""
    size = GUESS * ask.prompt.tokens
    return [s for s in alive if ask.needs <= s.capabilities and (s.window is None or size < s.window)]


class Line:
    """One tier: who waits for it, and the places that each class has in it."""

    def __init__(self, tier: str, classes: Classes, service: Service) -> None:
        self.tier = tier
        self.queue = Queue(classes, service.level)
        self.held = [0] * LEVELS
        self.pace = Pace()
        self.sites: Sites = tuple
        self.again: float | None = None


class Scene:
    """The sites of a tier during one drain; what is granted in it is taken off at once."""

    def __init__(self, line: Line, now: float) -> None:
        self.now = now
        self.sites = list(line.sites())
        self.living = living(self.sites)
        self.free = sum(s.room for s in self.living if s.room > 0 and s.cooling <= 0)
        self.capacity = sum(line.held) + sum(max(0, s.room) for s in self.living)

    def take(self, endpoint: str) -> Site:
        """One place there is taken."""
        for sites in (self.sites, self.living):
            for i, site in enumerate(sites):
                if site.name == endpoint:
                    taken = site
                    sites[i] = replace(site, room=site.room - 1)
        self.free -= 1
        return taken
