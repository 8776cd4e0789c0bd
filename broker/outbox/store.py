"""Every proposal from arrival to verdict, on disk: what was granted, what is being pushed, what waits for a person.

The only SQL of this room. A proposal's words and pack lie in a file of their own until it is delivered or discarded.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from broker.capability import Rights
from broker.config.settings import BrokerConfig
from broker.errors import AbsentError, BrokerError, CapabilityError, ConflictError, OutboxFullError
from broker.person_wire import KeptProposal, Outbox
from broker.wire import Proposal, Receipt, Refusal, decode_proposal, encode_proposal

_SCHEMA = """
CREATE TABLE IF NOT EXISTS grants (
    id TEXT PRIMARY KEY, repository TEXT NOT NULL, task TEXT NOT NULL, by_uid INTEGER NOT NULL, at REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS proposals (
    id TEXT PRIMARY KEY, grant_id TEXT NOT NULL REFERENCES grants (id), repository TEXT NOT NULL, task TEXT NOT NULL,
    base_commit TEXT NOT NULL, tree TEXT NOT NULL, rights TEXT NOT NULL, at REAL NOT NULL, size INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('judging', 'pushing', 'delivered', 'refused')),
    commit_id TEXT, verdict TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS by_task ON proposals (repository, task);
"""
_VERDICT: TypeAdapter[Receipt | Refusal] = TypeAdapter(Receipt | Refusal)


@dataclass(frozen=True)
class Kept:
    """One row: a proposal and how far it came."""

    id: str
    repository: str
    task: str
    base_commit: str
    tree: str
    rights: Rights
    at: float
    size: int
    state: str
    commit: str | None
    verdict: Receipt | Refusal | None


class OutboxStore:
    """One SQLite file and one folder. Safe to use from several threads of one process."""

    def __init__(self, state: Path, config: BrokerConfig) -> None:
        self._folder = state / "outbox"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._config = config
        self._lock = threading.RLock()
        self._db = sqlite3.connect(state / "outbox.sqlite", check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA foreign_keys=ON")
        self._db.executescript(_SCHEMA)
        self._sweep()

    def close(self) -> None:
        """Closes the database."""
        self._db.close()

    def _sweep(self) -> None:
        # A kill leaves a file without a row (its sender never got an answer) or the file of a delivered proposal.
        self._db.execute("UPDATE proposals SET size = 0 WHERE state = 'delivered'")
        known = {f"{row['id']}.proposal" for row in self._rows("SELECT id FROM proposals WHERE size > 0")}
        for file in self._folder.iterdir():
            if file.name not in known:
                file.unlink()

    def granted(self, rights: Rights, by_uid: int, at: float) -> None:
        """Records a grant; only recorded grants are good."""
        with self._lock:
            row = (rights.grant, rights.repository, rights.task, by_uid, at)
            self._run("INSERT INTO grants (id, repository, task, by_uid, at) VALUES (?, ?, ?, ?, ?)", row)

    def is_granted(self, grant: str) -> bool:
        """Whether this state knows the grant."""
        return bool(self._rows("SELECT 1 FROM grants WHERE id = ?", grant))

    def keep(self, proposal: Proposal, pack: bytes, rights: Rights, at: float) -> Kept:
        """Spends one use for this proposal id and keeps it. Raises CapabilityError (used up) and OutboxFullError."""
        body = encode_proposal(proposal.model_copy(update={"capability": ""}), pack)
        with self._lock, self._transaction():
            spent = self._rows("SELECT count(*) AS n FROM proposals WHERE grant_id = ?", rights.grant)[0]["n"]
            if spent >= rights.uses:
                raise CapabilityError(
                    f"the capability is used up ({rights.uses})", "swarm-broker grant gives a new one"
                )
            self._require_room(len(body))
            self._write(proposal.id, body)
            row = (
                proposal.id, rights.grant, rights.repository, proposal.task, proposal.base_commit, proposal.tree,
                rights.model_dump_json(), at, len(body),
            )  # fmt: skip
            self._run(
                "INSERT INTO proposals (id, grant_id, repository, task, base_commit, tree, rights, at, size, state)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'judging')",
                row,
            )
        return self.get(proposal.id)

    def _require_room(self, size: int) -> None:
        entries, total = self._load()
        if entries >= self._config.outbox_entries or total + size > self._config.outbox_bytes:
            mend = "a person looks at swarm-broker proposals list, then discards what is done with"
            raise OutboxFullError(f"the outbox holds {entries} proposals and {total} bytes: no room for one more", mend)

    def _load(self) -> tuple[int, int]:
        row = self._rows("SELECT count(*) AS n, coalesce(sum(size), 0) AS bytes FROM proposals WHERE size > 0")[0]
        return row["n"], row["bytes"]

    def pushing(self, proposal: str, commit: str) -> None:
        """Written before the first step that the outside can see."""
        with self._lock:
            self._run("UPDATE proposals SET state = 'pushing', commit_id = ? WHERE id = ?", (commit, proposal))

    def settle(self, verdict: Receipt | Refusal) -> None:
        """The last word. A delivered proposal's file is removed: the forge has it now."""
        state = "delivered" if isinstance(verdict, Receipt) else "refused"
        row = (state, verdict.model_dump_json(), verdict.proposal)
        with self._lock:
            self._run("UPDATE proposals SET state = ?, verdict = ? WHERE id = ?", row)
        if isinstance(verdict, Receipt):
            self._drop_file(verdict.proposal)

    def discard(self, proposal: str) -> KeptProposal:
        """A person is done with a refused one. Its verdict stays. Raises AbsentError, ConflictError."""
        kept = self.get(proposal)
        if kept.state != "refused":
            raise ConflictError(f"proposal {proposal} is {kept.state}, not refused")
        shown = self.show(proposal)
        self._drop_file(proposal)
        return shown

    def _drop_file(self, proposal: str) -> None:
        with self._lock:
            self._file(proposal).unlink(missing_ok=True)
            self._run("UPDATE proposals SET size = 0 WHERE id = ?", (proposal,))

    def find(self, proposal: str) -> Kept | None:
        """One row by its id."""
        rows = self._rows("SELECT * FROM proposals WHERE id = ?", proposal)
        return _kept(rows[0]) if rows else None

    def get(self, proposal: str) -> Kept:
        """The same. Raises AbsentError."""
        kept = self.find(proposal)
        if kept is None:
            raise AbsentError(f"there is no proposal {proposal!r}", "swarm-broker proposals list shows them")
        return kept

    def delivered(self, repository: str, task: str) -> Kept | None:
        """The proposal that became this task's pull request."""
        rows = self._rows(
            "SELECT * FROM proposals WHERE repository = ? AND task = ? AND state = 'delivered'", repository, task
        )
        return _kept(rows[0]) if rows else None

    def unfinished(self) -> tuple[Kept, ...]:
        """What a kill or a failing forge interrupted, oldest first."""
        return tuple(_kept(row) for row in self._rows("SELECT * FROM proposals WHERE verdict IS NULL ORDER BY at"))

    def content(self, proposal: str) -> tuple[Proposal, bytes]:
        """The words (without the capability) and the pack. Raises AbsentError once they are gone."""
        try:
            return decode_proposal(self._file(proposal).read_bytes())
        except FileNotFoundError:
            raise AbsentError(f"the content of proposal {proposal!r} is no longer kept") from None

    def show(self, proposal: str) -> KeptProposal:
        """One proposal for a person."""
        kept = self.get(proposal)
        words = self.content(proposal)[0] if kept.size else None
        return _shown(kept, words)

    def listing(self) -> Outbox:
        """All that is kept, newest first."""
        rows = self._rows("SELECT * FROM proposals WHERE size > 0 ORDER BY at DESC")
        entries, total = self._load()
        return Outbox(
            proposals=tuple(_shown(_kept(row), None) for row in rows),
            entries_left=max(0, self._config.outbox_entries - entries),
            bytes_left=max(0, self._config.outbox_bytes - total),
        )

    def _file(self, proposal: str) -> Path:
        return self._folder / f"{proposal}.proposal"

    def _write(self, proposal: str, body: bytes) -> None:
        file = self._file(proposal)
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as opened:
            opened.write(body)
            opened.flush()
            os.fsync(handle)

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock, closing(self._run(query, values)) as cursor:
            return cursor.fetchall()

    def _run(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            return self._db.execute(query, values)
        except sqlite3.OperationalError as error:
            mend = (
                "the operator looks whether the disk of the state folder is full; what was kept before is still there"
            )
            raise BrokerError(f"the outbox cannot be used: {error}", mend) from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            self._run("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk has SQLite roll back by itself
                self._db.execute("ROLLBACK")
            raise


def _kept(row: sqlite3.Row) -> Kept:
    return Kept(
        id=row["id"],
        repository=row["repository"],
        task=row["task"],
        base_commit=row["base_commit"],
        tree=row["tree"],
        rights=Rights.model_validate_json(row["rights"]),
        at=row["at"],
        size=row["size"],
        state=row["state"],
        commit=row["commit_id"],
        verdict=None if row["verdict"] is None else _VERDICT.validate_json(row["verdict"]),
    )


def _shown(kept: Kept, words: Proposal | None) -> KeptProposal:
    return KeptProposal.model_validate(
        {
            "id": kept.id,
            "repository": kept.repository,
            "task": kept.task,
            "state": kept.state,
            "at": kept.at,
            "size": kept.size,
            "title": words.title if words else "",
            "body": words.body if words else "",
            "base_commit": kept.base_commit,
            "tree": kept.tree,
            "verdict": kept.verdict,
        }
    )
