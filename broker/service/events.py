"""What happened on the forges, told to the coordinator, and what it tells there: one status comment per task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from broker.capability import Rights
from broker.errors import AbsentError, FencedError
from broker.followup.followup import Followup
from broker.followup.ledger import Ledger
from broker.followup.parts import Followed
from broker.followup.status import Place, Sticky
from broker.outbox.grants import MAX_LISTED, GrantStore
from broker.outbox.rows import Own
from broker.service.grants import Grants
from broker.service.stops import Stops
from broker.service.ward import Desk, Ward
from broker.wire import EventPage, Noted, StatusNote
from broker.words.notes import StatusPage

_RESTS = {"delivered", "failed", "cancelled", "waiting"}  # nobody works on the task any more
_ENDS = {"failed", "cancelled"}  # without a pull request it has come to nothing: its issue may be asked for again


class Events:
    """Events and status comments. Owns the pollers: `start` with the broker, `close` at its end."""

    def __init__(
        self,
        desk: Desk,
        grants: Grants,
        store: GrantStore,
        stops: Stops,
        ledger: Ledger,
        fenced: Callable[[FencedError], None],
    ) -> None:
        self._desk = desk
        self._grants = grants
        self._store = store
        self._ledger = ledger
        followed = tuple(self._followed(ward, stops) for ward in desk.wards.all())
        self._sticky: Mapping[str, Sticky] = {one.name: Sticky(one) for one in followed}
        self._followup = Followup(followed, fenced)

    def _followed(self, ward: Ward, stops: Stops) -> Followed:
        return Followed(
            name=ward.name,
            forge=ward.forge,
            tracker=ward.tracker,
            settings=ward.settings,
            own=functools.partial(self._desk.outbox.own, ward.name),
            grant=self._grants.grant,
            running=functools.partial(stops.require_running, ward.name),
            newest=self._newest,
            tidy=functools.partial(self._tidy, ward),
            ledger=self._ledger,
            audit=self._desk.audit,
            clock=self._desk.clock,
        )

    def _newest(self) -> None:
        with self._desk.outbox.database.writing():
            pass  # an empty transaction: it is made under the condition that nobody else has taken over

    def start(self) -> None:
        """Begins to look at the forges."""
        self._followup.start()

    def hint(self, repository: str) -> None:
        """A forge says that something changed there: look soon. An unknown name is nothing."""
        self._followup.hint(repository)

    def close(self) -> None:
        """Ends the looks and closes the memory."""
        self._followup.close()
        self._ledger.close()

    def page(self, after: int) -> EventPage:
        """Events after a number. Does not wait."""
        return self._ledger.page(after)

    def comment(self, note: StatusNote) -> Noted:
        """Writes the task's one status comment: on the grant's issue, else on its pull request.

        Without either, or where the settings want none, nothing is written. Raises BudgetError, ForgeError.
        """
        rights = self._grants.rights(note.capability, "comment")
        ward = self._desk.wards.get(rights.repository)
        own = self._own(ward, rights)
        if note.state in _RESTS:
            self._ledger.rest(ward.name, rights.task)
        if note.state in _ENDS and own is None:
            self._ledger.finished(ward.name, rights.task)
        place, pull_url = self._place(ward, rights, own)
        if place is None or not ward.settings().follow.status_comment:
            return Noted()
        page = StatusPage(task=rights.task, state=note.state, text=note.text, pull_url=pull_url, at=self._desk.clock())
        url = self._sticky[ward.name].say(place, page)
        self._desk.rationing.append(rights.grant, "comment", grant=rights.grant, repository=ward.name,
                                    number=place.number, state=note.state)  # fmt: skip
        return Noted(url=url)

    def _own(self, ward: Ward, rights: Rights) -> Own | None:
        own = reversed(self._desk.outbox.own(ward.name))
        return next((one for one in own if (one.task, one.branch) == (rights.task, rights.branch)), None)

    def _place(self, ward: Ward, rights: Rights, own: Own | None) -> tuple[Place | None, str]:
        if rights.issue is not None:
            return Place(rights.issue), self._address(ward, own.number) if own else ""
        return (Place(own.number, pull=True) if own else None), ""

    @staticmethod
    def _address(ward: Ward, number: int) -> str:
        try:
            return ward.forge.pull(number).url
        except AbsentError:
            return ""

    def _tidy(self, ward: Ward) -> None:
        """Lets the mirror go of bases that no grant and no kept proposal names, and of branches that are over."""
        good = self._store.good(self._desk.clock())
        if len(good) >= MAX_LISTED:
            return  # there may be more of them
        named = {granted.rights.base_commit for granted in good if granted.rights.repository == ward.name}
        over = self._ledger.over(ward.name)
        branches = {own.branch for own in self._desk.outbox.own(ward.name) if own.number in over}
        gone = ward.mirror.prune(named | self._desk.outbox.kept_bases(ward.name), branches)
        if gone:
            self._desk.audit.append("mirror-pruned", repository=ward.name, refs=gone)
