"""One tier as admission sees it: its queue, who holds how many places, and its sites at one moment; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from pool.admission.classes import LEVELS, Classes
from pool.admission.fairness import Service
from pool.admission.pace import Pace
from pool.admission.queue import Queue
from pool.placement.choice import GUESS
from pool.placement.view import Ask, Site

Sites = Callable[[], Sequence[Site]]


def lives(site: Site) -> bool:
    """Whether it may be asked, now or in a moment."""
    return site.state in ("up", "suspect") and not site.draining and site.role != "prefill"


def able(site: Site, ask: Ask) -> bool:
    """Whether it can take this ask, now or in a moment. How long a prompt is, is only guessed."""
    if site.window is not None and GUESS * ask.prompt.tokens >= site.window:
        return False
    return ask.needs <= site.capabilities


class Line:
    """One tier: who waits for it, and the places that each class has in it.

    ``names`` are its endpoints as seen last; ``again`` are seconds after which placement wants to be asked again;
    ``closed`` tells that nobody can become live now; ``risked`` is when a forecast was last put to the proof.
    """

    def __init__(self, tier: str, classes: Classes, service: Service, patience: float) -> None:
        self.tier = tier
        self.queue = Queue(classes, service, patience)
        self.held = [0] * LEVELS
        self.pace = Pace()
        self.sites: Sites = tuple
        self.again: float | None = None
        self.closed = False
        self.names: Collection[str] = ()
        self.risked: float | None = None


class Scene:
    """The sites of a tier during one drain; what is granted in it is taken off at once.

    ``claimed`` are the endpoints whose live sets kept somebody out: nobody after him may enter them, else small
    sessions would for ever overtake large ones.
    """

    def __init__(self, line: Line, now: float) -> None:
        self.now = now
        self.sites = {site.name: site for site in line.sites()}
        self.living = [site for site in self.sites.values() if lives(site)]
        line.names = self.sites.keys()
        self.claimed: set[str] = set()
        self._taken: list[str] = []
        self.free, self.capacity = 0, sum(line.held)
        for site in self.living:
            if site.room > 0:
                self.capacity += site.room
                self.free += site.room if site.cooling <= 0 else 0

    @property
    def open(self) -> bool:
        """Whether there is anything to decide: a free place, or nobody alive, which is to be told."""
        return self.free > 0 or not self.living

    @property
    def closed(self) -> bool:
        """Whether no live set may be entered any more."""
        return bool(self.claimed) and all(site.name in self.claimed for site in self.living)

    def take(self, endpoint: str) -> Site:
        """One place there is taken."""
        self.free -= 1
        self._taken.append(endpoint)
        return self.sites[endpoint]

    def now_sites(self) -> list[Site]:
        """The sites with what was taken since taken off."""
        for endpoint in self._taken:
            site = self.sites[endpoint]
            self.sites[endpoint] = replace(site, room=site.room - 1)
        self._taken.clear()
        return list(self.sites.values())
