"""The verbs, by what they are about. Blocking; the door calls them from threads and knows who may call which."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.audit import Audit
from broker.capability import Mint
from broker.errors import FencedError
from broker.followup.ledger import Ledger
from broker.forge.base import Forge, Tracker
from broker.judge.inspection import never
from broker.judge.quarantine import Quarantine
from broker.judge.scan.scanner import Scanner
from broker.outbox.grants import GrantStore
from broker.outbox.stops import StopStore
from broker.outbox.store import OutboxStore
from broker.person_wire import LogPage
from broker.provenance.store import Provenance
from broker.rationing import Rationing
from broker.service.delivering import Delivering
from broker.service.events import Events
from broker.service.grants import Grants
from broker.service.proposals import Proposals
from broker.service.pulls import Pulls
from broker.service.reads import Reads
from broker.service.records import Records
from broker.service.resuming import Resumer
from broker.service.stops import Stops
from broker.service.ward import Current, Desk, Wards


@dataclass(frozen=True)
class Service:
    """All parts of a running broker. What a capability allows is checked in them, the caller's role at the door."""

    desk: Desk
    grants: Grants
    stops: Stops
    proposals: Proposals
    reads: Reads
    pulls: Pulls
    events: Events
    records: Records
    resumer: Resumer

    @property
    def audit(self) -> Audit:
        """The log."""
        return self.desk.audit

    def log(self, after: int) -> LogPage:
        """The log from a number on."""
        return self.records.log(after)

    def start(self) -> None:
        """Clears away what a kill left; then, in threads, goes on with what it interrupted and follows the forges."""
        self.desk.quarantine.sweep()
        self.events.start()
        self.resumer.start()

    def close(self) -> None:
        """Ends what goes on by itself and closes what is open."""
        self.resumer.close()
        self.events.close()
        self.desk.outbox.close()
        self.desk.audit.close()


def assemble(  # noqa: PLR0913 - the one place that joins all parts
    current: Current,
    *,
    mint: Mint,
    audit: Audit,
    provenance: Provenance,
    forges: Mapping[str, Forge],
    trackers: Mapping[str, Tracker],
    clock: Callable[[], float] = time.time,
    watch: Callable[[str, bytes], bool] = never,
    fenced: Callable[[FencedError], None] = lambda _error: None,
) -> Service:
    """Joins the parts of a broker whose settings ``current`` gives, with a forge and a tracker per repository.

    ``fenced`` is called, from a thread, once another broker has taken the outbox over.
    """
    config = current()
    desk = Desk(
        current=current,
        wards=Wards(current, forges, trackers, config.state / "mirrors"),
        outbox=OutboxStore(config.state, config, clock),
        audit=audit,
        mint=mint,
        quarantine=Quarantine(config.state / "quarantine"),
        scanner=Scanner(),
        clock=clock,
        provenance=provenance,
        rationing=Rationing(audit, clock),
        watch=watch,
    )
    stops = Stops(desk, StopStore(desk.outbox.database))
    store = GrantStore(desk.outbox.database)
    grants = Grants(desk, store, stops)
    proposals = Proposals(desk, grants, Delivering(desk, grants, stops))
    return Service(
        desk=desk,
        grants=grants,
        stops=stops,
        proposals=proposals,
        reads=Reads(desk, grants),
        pulls=Pulls(desk),
        events=Events(desk, grants, store, stops, Ledger(config.state), fenced),
        records=Records(desk),
        resumer=Resumer(proposals, fenced),
    )
