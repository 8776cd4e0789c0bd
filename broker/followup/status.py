"""The one comment that tells how far a task is: the same words are not written twice, and not too often."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from broker.errors import BudgetError
from broker.followup.ledger import Watched, Written
from broker.followup.parts import Followed
from broker.words.dialect import dialect_of
from broker.words.notes import StatusPage, status_comment, status_marker

ROOM = 10.0  # comments that may be written at once
REFILL = 60.0  # seconds until there is room for one more


@dataclass(frozen=True)
class Place:
    """An issue, or a pull request: some forges number them apart."""

    number: int
    pull: bool = False


class Sticky:
    """The status comments of one repository; each is found again by a hidden marker and rewritten in place."""

    def __init__(self, followed: Followed) -> None:
        self._of = followed

    def say(self, place: Place, page: StatusPage) -> str:
        """Writes what the coordinator says; returns the address. Raises BudgetError and ForgeError."""
        return self._write(place, page)

    def tell(self, number: int, known: Watched, state: str, text: str) -> str:
        """Writes what the broker itself has to say of a pull request. Empty where the settings want no comment."""
        follow = self._of.settings().follow
        if not follow.status_comment:
            return ""
        page = StatusPage(
            task=known.task,
            state=state,
            text=text,
            rounds=known.rounds,
            max_rounds=follow.max_rounds,
            at=self._of.clock(),
        )
        return self._write(Place(number, pull=True), page)

    def _write(self, place: Place, page: StatusPage) -> str:
        of = self._of
        same = f"{place}\0{page.state}\0{page.text}\0{page.pull_url}\0{page.rounds}"
        digest = hashlib.sha256(same.encode()).hexdigest()
        last = of.ledger.written(of.name, page.task)
        if last is not None and last.digest == digest:
            return last.url
        room = ROOM if last is None else min(ROOM, last.room + (of.clock() - last.at) / REFILL)
        if room < 1:
            raise BudgetError(
                f"the status comment of {page.task} was written too often", f"say it again in {REFILL:.0f} s"
            )
        marker, text = status_marker(page.task), status_comment(page, dialect_of(of.settings()))
        url = of.tracker.note(place.number, marker, text, pull=place.pull)
        of.ledger.write(of.name, page.task, Written(digest, url, room - 1, of.clock()))
        return url
