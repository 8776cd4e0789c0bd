"""Which grants there are, what each was spent on, and which a person took back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from broker.capability import Rights
from broker.errors import AbsentError, CapabilityError
from broker.outbox.database import Database

MAX_LISTED = 1000
REMEMBERED = 10_000
_SELECT = "SELECT *, (SELECT count(*) FROM uses WHERE grant_id = grants.id) AS used FROM grants"
_NEW = "a person asks for a new one: swarm-broker grant"


@dataclass(frozen=True)
class Granted:
    """One grant: its rights as they were given, by whom and when, and what became of it."""

    rights: Rights
    by: str
    at: float
    used: int
    revoked: bool


class GrantStore:
    """The grants of one outbox. Safe to use from several threads; a use is spent before anything is done with it."""

    def __init__(self, database: Database, remembered: int = REMEMBERED) -> None:
        self._database = database
        self._remembered = remembered

    def record(self, rights: Rights, by: str, at: float) -> None:
        """Writes down a grant; only what is written down here is good.

        Beyond so many the oldest that are over are forgotten: by their number, since a clock that once ran ahead would
        have all of them forgotten.
        """
        row = (rights.grant, rights.model_dump_json(), by, at, rights.expires)
        with self._database.writing():
            old = "SELECT id FROM grants WHERE expires < ? AND rowid <= (SELECT max(rowid) FROM grants) - ?"
            for over in self._database.rows(old, at, self._remembered - 1):
                self._database.write("DELETE FROM uses WHERE grant_id = ?", over["id"])
                self._database.write("DELETE FROM grants WHERE id = ?", over["id"])
            self._database.write("INSERT INTO grants (id, rights, by_whom, at, expires) VALUES (?, ?, ?, ?, ?)", *row)

    def require(self, rights: Rights) -> None:
        """Raises CapabilityError for a grant that this state does not know or that was taken back."""
        found = self.find(rights.grant)
        if found is None:
            raise CapabilityError("the capability was granted from another state folder", _NEW)
        if found.revoked:
            raise CapabilityError("a person took the capability back", _NEW)

    def spend(self, rights: Rights, proposal: str) -> None:
        """Spends one use for a proposal; the same proposal spends no second one. Raises CapabilityError.

        ``rights.uses`` may have been narrowed; whatever was spent under the grant in any form counts.
        """
        with self._database.writing():
            self.require(rights)
            if self.left(rights, proposal):
                pair = (rights.grant, proposal)
                self._database.write("INSERT INTO uses (grant_id, proposal) VALUES (?, ?)", *pair)

    def left(self, rights: Rights, proposal: str) -> bool:
        """Whether a use is there for a proposal; False where it has one. Raises CapabilityError: used up."""
        pair = (rights.grant, proposal)
        if self._database.rows("SELECT 1 FROM uses WHERE grant_id = ? AND proposal = ?", *pair):
            return False
        spent = self._database.rows("SELECT count(*) AS n FROM uses WHERE grant_id = ?", rights.grant)[0]["n"]
        if spent >= rights.uses:
            raise CapabilityError(f"the capability is used up: it was good for {rights.uses}", _NEW)
        return True

    def draw(self, held: Rights, drawn: Rights, by: str, at: float) -> Granted | None:
        """Writes down what is drawn out of a standing grant, and spends its use: both or neither.

        The standing grant is looked at in the same transaction, so that nothing is drawn from one that was taken back
        meanwhile. None where it is done, else what was drawn for that task before. Raises CapabilityError.
        """
        with self._database.writing():
            self.require(held)
            if (before := self.find(drawn.grant)) is not None:
                return before
            self.spend(held, drawn.task)
            self.record(drawn, by, at)
        return None

    def refund(self, rights: Rights, proposal: str) -> None:
        """Takes a use back that led to nothing, such as a full outbox."""
        self._database.write("DELETE FROM uses WHERE grant_id = ? AND proposal = ?", rights.grant, proposal)

    def spent_on(self, grant: str) -> tuple[str, ...]:
        """The proposals that a grant was spent on, or the tasks that were drawn from it."""
        return tuple(
            row["proposal"] for row in self._database.rows("SELECT proposal FROM uses WHERE grant_id = ?", grant)
        )

    def find(self, grant: str) -> Granted | None:
        """One grant; None if it was never given here, or long ago."""
        rows = self._database.rows(f"{_SELECT} WHERE id = ?", grant)
        return _granted(rows[0]) if rows else None

    def get(self, grant: str) -> Granted:
        """One grant. Raises AbsentError."""
        found = self.find(grant)
        if found is None:
            raise AbsentError(f"there is no grant {grant!r}", "swarm-broker grants list shows those that are good")
        return found

    def good(self, now: float) -> tuple[Granted, ...]:
        """All that can still be used, newest first; 1000 at most."""
        rows = self._database.rows(
            f"{_SELECT} WHERE expires > ? AND revoked_at IS NULL ORDER BY at DESC, id LIMIT {MAX_LISTED}", now
        )
        return tuple(found for found in map(_granted, rows) if found.used < found.rights.uses)

    def revoke(self, grant: str, by: str, at: float, drawn: Callable[[Rights, str], str] | None = None) -> Granted:
        """Takes a grant back for good, with all that was drawn from it; again is no harm. Raises AbsentError.

        ``drawn`` gives the id of what a task drew out of a standing grant.
        """
        with self._database.writing():
            rights = self.get(grant).rights
            more = [drawn(rights, task) for task in self.spent_on(grant)] if drawn else []
            for one in (grant, *more):
                self._database.write(
                    "UPDATE grants SET revoked_by = ?, revoked_at = ? WHERE id = ? AND revoked_at IS NULL", by, at, one
                )
            return self.get(grant)


def _granted(row: sqlite3.Row) -> Granted:
    return Granted(
        rights=Rights.model_validate_json(row["rights"]),
        by=row["by_whom"],
        at=row["at"],
        used=row["used"],
        revoked=row["revoked_at"] is not None,
    )
