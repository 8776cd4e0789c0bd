"""Asks placement for a place within what the live sets allow, and decides when a forecast is reason to refuse; pure."""

from __future__ import annotations

from pool.admission.fairness import Service
from pool.admission.footprint import Footprint
from pool.admission.line import Line, Scene, able
from pool.admission.presence import Presence
from pool.admission.queue import Ticket
from pool.admission.refusals import WHY_LIVE
from pool.admission.sessions import Session
from pool.placement.placer import Placer
from pool.placement.view import Decision, Site

LEARNED = 8  # first tokens after which an endpoint's speed counts as known
PROOF = 30.0  # seconds between two requests that are sent although the forecast says that they will be late


class Chooser:
    """``force_after`` are the seconds after which a waiting session displaces one that is between turns."""

    def __init__(self, placer: Placer, presence: Presence, service: Service, force_after: float) -> None:
        self.forced = 0
        self._placer = placer
        self._presence = presence
        self._service = service
        self._force_after = force_after

    def choose(self, line: Line, scene: Scene, ticket: Ticket, session: Session, need: Footprint) -> Decision:
        """Where a ticket goes now; where it must wait, the ticket is told for what."""
        claimed = scene.claimed if ticket.lane != "live" else ()
        kept_out: dict[str, Site] = {}

        def allow(name: str) -> str:
            site = scene.sites[name]
            if name not in claimed and self._presence.fits(session, need, site, scene.now):
                return ""
            kept_out[name] = site
            return WHY_LIVE

        decision = self._placer.choose(ticket.ask, scene.now_sites(), self._tried(scene, ticket), allow)
        if decision.endpoint is None and kept_out:
            decision = self._forced(scene, ticket, need, kept_out) or decision
        if decision.endpoint is None:
            self._wait(line, scene, ticket, decision, kept_out)
        return decision

    def believes(self, line: Line, endpoint: str, now: float) -> bool:
        """Whether a forecast is reason enough to refuse. One request in a while is sent in spite of it: a model of the
        costs that is wrong would else never learn better."""
        if self._placer.cost(endpoint).seen < LEARNED:
            return False
        if line.risked is not None and now - line.risked > PROOF:
            line.risked = now
            return False
        line.risked = now if line.risked is None else line.risked
        return True

    @staticmethod
    def _tried(scene: Scene, ticket: Ticket) -> frozenset[str]:
        """Endpoints to leave out: those that failed this request, unless nobody else lives."""
        tried = ticket.tried
        if tried and all(site.name in tried for site in scene.living if able(site, ticket.ask)):
            return frozenset()
        return tried

    def _wait(self, line: Line, scene: Scene, ticket: Ticket, decision: Decision, kept_out: dict[str, Site]) -> None:
        ticket.why = decision.reason
        if kept_out and ticket.lane != "live":
            ticket.why = WHY_LIVE
            scene.claimed.update(kept_out)
        if decision.again is not None:
            line.again = decision.again if line.again is None else min(line.again, decision.again)

    def _forced(self, scene: Scene, ticket: Ticket, need: Footprint, kept_out: dict[str, Site]) -> Decision | None:
        """A place for a session that waited too long, on the endpoint whose live set is the least full."""
        if scene.now - ticket.entered < self._force_after:
            return None
        name = min(kept_out, key=lambda name: self._presence.fullness(kept_out[name], scene.now))

        def served(program: str) -> float:
            return self._service.attained(program, scene.now)

        if not self._presence.force(need, kept_out[name], served, scene.now):
            return None
        self.forced += 1
        return self._placer.choose(ticket.ask, scene.now_sites(), (), lambda other: "" if other == name else WHY_LIVE)
