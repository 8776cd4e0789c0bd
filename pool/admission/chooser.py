"""Asks placement for a place within what the live sets allow, and decides when a forecast is reason to refuse; pure."""

from __future__ import annotations

from pool.admission.fairness import Service
from pool.admission.footprint import Footprint
from pool.admission.line import Line, Scene, able, lives
from pool.admission.presence import Presence, Swap
from pool.admission.queue import Ticket
from pool.admission.refusals import WHY_LIVE
from pool.admission.sessions import Session
from pool.placement.placer import Placer
from pool.placement.view import Decision, Site

STARVING = 10.0  # times as long as one should wait, after which there is a place in any case
LEARNED = 8  # first tokens after which an endpoint's speed counts as known
PROOF = 30.0  # seconds between two requests that are sent although the forecast says that they will be late


class Chooser:
    """``force_after`` are the seconds after which a waiting session may displace others that are between turns."""

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

    def rotate(
        self, scene: Scene, ticket: Ticket, bound: tuple[Session, Footprint], name: str, idle: float
    ) -> Decision | None:
        """A place on one endpoint for who waited too long, taken from sessions between turns; None where none is.

        The longer it waited, the larger contexts may go for it, from its own size on. A better class keeps its place,
        and so does a program that got far less. Where the endpoint was ``idle`` for some seconds, nobody need wait too
        long.
        """
        site = scene.sites.get(name)
        if site is None or not lives(site) or site.room <= 0 or site.cooling > 0 or not able(site, ticket.ask):
            return None

        def only(other: str) -> str:
            return "" if other == name else WHY_LIVE

        def may(other: Session) -> bool:
            return other.rank >= ticket.level and not self._service.hogs(ticket.program, other.program)

        decision = self._placer.choose(ticket.ask, scene.now_sites(), self._tried(scene, ticket), only)
        if decision.endpoint is None:
            return None
        session, need = bound
        urge = (scene.now - ticket.entered) / self._force_after
        swap = Swap(scene.now, urge * need.tokens, urge >= STARVING, may, idle, idling=ticket.patient)
        if not self._presence.swap(session, need, site, swap):
            return None
        self.forced += 1
        return decision
