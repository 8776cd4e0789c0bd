"""Which grants there are, what each was spent on, and which a person took back: a SQLite file of its own."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.capability import Rights
from broker.errors import AbsentError, BrokerError, CapabilityError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS grants (
    id TEXT PRIMARY KEY, rights TEXT NOT NULL, by_whom TEXT NOT NULL, at REAL NOT NULL, expires REAL NOT NULL,
    revoked_by TEXT, revoked_at REAL
) STRICT;
CREATE TABLE IF NOT EXISTS uses (
    grant_id TEXT NOT NULL REFERENCES grants (id), proposal TEXT NOT NULL, PRIMARY KEY (grant_id, proposal)
) STRICT;
CREATE INDEX IF NOT EXISTS by_expiry ON grants (expires);
"""
MAX_LISTED = 1000
_FORGET_SECONDS = 30 * 86_400.0
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
    """One file. Safe to use from several threads; a use is spent before anything is done with it."""

    def __init__(self, state: Path) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(state / "grants.sqlite", check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA foreign_keys=ON")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def record(self, rights: Rights, by: str, at: float) -> None:
        """Writes down a grant; only what is written down here is good. Forgets those that expired a month ago."""
        row = (rights.grant, rights.model_dump_json(), by, at, rights.expires)
        with self._transaction():
            old = at - _FORGET_SECONDS
            self._run("DELETE FROM uses WHERE grant_id IN (SELECT id FROM grants WHERE expires < ?)", (old,))
            self._run("DELETE FROM grants WHERE expires < ?", (old,))
            self._run("INSERT INTO grants (id, rights, by_whom, at, expires) VALUES (?, ?, ?, ?, ?)", row)

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
        with self._transaction():
            self.require(rights)
            pair = (rights.grant, proposal)
            if self._rows("SELECT 1 FROM uses WHERE grant_id = ? AND proposal = ?", *pair):
                return
            spent = self._rows("SELECT count(*) AS n FROM uses WHERE grant_id = ?", rights.grant)[0]["n"]
            if spent >= rights.uses:
                raise CapabilityError(f"the capability is used up: it was good for {rights.uses}", _NEW)
            self._run("INSERT INTO uses (grant_id, proposal) VALUES (?, ?)", pair)

    def refund(self, rights: Rights, proposal: str) -> None:
        """Takes a use back that led to nothing, such as a full outbox."""
        self._run("DELETE FROM uses WHERE grant_id = ? AND proposal = ?", (rights.grant, proposal))

    def find(self, grant: str) -> Granted | None:
        """One grant; None if it was never given here, or long ago."""
        rows = self._rows(f"{_SELECT} WHERE id = ?", grant)
        return _granted(rows[0]) if rows else None

    def get(self, grant: str) -> Granted:
        """One grant. Raises AbsentError."""
        found = self.find(grant)
        if found is None:
            raise AbsentError(f"there is no grant {grant!r}", "swarm-broker grants list shows those that are good")
        return found

    def good(self, now: float) -> tuple[Granted, ...]:
        """All that can still be used, newest first; 1000 at most."""
        rows = self._rows(
            f"{_SELECT} WHERE expires > ? AND revoked_at IS NULL ORDER BY at DESC, id LIMIT {MAX_LISTED}", now
        )
        return tuple(found for found in map(_granted, rows) if found.used < found.rights.uses)

    def revoke(self, grant: str, by: str, at: float) -> Granted:
        """Takes a grant back for good; again is no harm. Raises AbsentError."""
        self.get(grant)
        self._run(
            "UPDATE grants SET revoked_by = ?, revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (by, at, grant)
        )
        return self.get(grant)

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock, closing(self._run(query, values)) as cursor:
            return cursor.fetchall()

    def _run(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            with self._lock:
                return self._db.execute(query, values)
        except sqlite3.OperationalError as error:
            mend = "the operator looks whether the disk of the state folder is full; what was granted is still there"
            raise BrokerError(f"the grants cannot be used: {error}", mend) from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._run("BEGIN IMMEDIATE")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has SQLite roll back by itself
                    self._db.execute("ROLLBACK")
                raise


def _granted(row: sqlite3.Row) -> Granted:
    return Granted(
        rights=Rights.model_validate_json(row["rights"]),
        by=row["by_whom"],
        at=row["at"],
        used=row["used"],
        revoked=row["revoked_at"] is not None,
    )
