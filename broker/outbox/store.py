"""Every proposal from arrival to verdict, on disk: what is being delivered, what waits, what a person approved.

A proposal's words and pack lie in a file of their own until it is delivered or discarded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from broker.capability import Rights
from broker.config.settings import BrokerConfig
from broker.errors import AbsentError, BrokerError, ConflictError, OutboxFullError
from broker.outbox.database import Database
from broker.outbox.digest import digest
from broker.outbox.rows import Approved, Kept, Own, approved, covers_text, kept, own, shown
from broker.outbox.steps import Steps
from broker.person_wire import KeptProposal, Outbox
from broker.wire import Proposal, Receipt, Refusal, decode_proposal, encode_proposal

_HOPELESS = (
    "SELECT * FROM proposals WHERE size > 0 AND state = 'refused' AND EXISTS (SELECT 1 FROM"
    " json_each(verdict, '$.findings') WHERE json_extract(value, '$.severity') = 'fatal') ORDER BY settled LIMIT 1"
)


class OutboxStore:
    """One database and one folder. Safe to use from several threads of one process; of two processes the newer acts."""

    def __init__(self, state: Path, config: BrokerConfig, clock: Callable[[], float] = time.time) -> None:
        self._folder = state / "outbox"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._config = config
        self._clock = clock
        self.database = Database(state / "outbox.sqlite")
        self.steps = Steps(self.database, clock)
        self._sweep()
        self._name_old_ones()

    def close(self) -> None:
        """Closes the database."""
        self.database.close()

    def _sweep(self) -> None:
        # A kill leaves a file without a row (its sender never got an answer) or the file of a delivered proposal.
        self.database.write("UPDATE proposals SET size = 0 WHERE state = 'delivered' AND size > 0")
        known = {f"{row['id']}.proposal" for row in self.database.rows("SELECT id FROM proposals WHERE size > 0")}
        for file in self._folder.iterdir():
            if file.name not in known:
                file.unlink()

    def _name_old_ones(self) -> None:
        # What version 1 kept has no digest yet, and a person needs one to approve it.
        for row in self.database.rows("SELECT * FROM proposals WHERE digest = '' AND size > 0"):
            old = kept(row)
            try:
                name = digest(old.repository, decode_proposal(self._file(old.id).read_bytes())[0])
            except (OSError, ValueError):
                continue  # whoever asks for it is told
            verdict = old.verdict.model_copy(update={"digest": name}) if isinstance(old.verdict, Refusal) else None
            text = verdict.model_dump_json() if verdict else None
            self.database.write("UPDATE proposals SET digest = ?, verdict = ? WHERE id = ?", name, text, old.id)

    # --- arrival and verdict

    def keep(self, proposal: Proposal, pack: bytes, rights: Rights) -> Kept:
        """Keeps a new one.

        Raises OutboxFullError, ConflictError for an id that another call took meanwhile, and ValueError for words that
        could not be read again.
        """
        body = encode_proposal(proposal.model_copy(update={"capability": ""}), pack)
        if digest(rights.repository, decode_proposal(body)[0]) != digest(rights.repository, proposal):
            raise ValueError("the proposal's words do not come back as they are written down")
        self._make_room(len(body))
        with self.database.writing():
            if self.find(proposal.id) is not None:
                raise ConflictError(f"proposal id {proposal.id!r} was used for something else", "use a new id")
            self._require_room(len(body))
            self.database.write(
                "INSERT INTO proposals (id, grant_id, repository, task, base_commit, tree, rights, at, size, state,"
                " digest, updates) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'judging', ?, ?)",
                proposal.id, rights.grant, rights.repository, proposal.task, proposal.base_commit, proposal.tree,
                rights.model_dump_json(), self._clock(), len(body), digest(rights.repository, proposal),
                int(proposal.update),
            )  # fmt: skip
            self._write(proposal.id, body)
        return self.get(proposal.id)

    def _make_room(self, size: int) -> None:
        """What no person can approve goes first, oldest first; nothing else is dropped."""
        while not self._has_room(size) and (hopeless := self._one(_HOPELESS)):
            self._drop_file(hopeless.id)

    def _require_room(self, size: int) -> None:
        if not self._has_room(size):
            entries, total = self._load()
            mend = "a person looks at swarm-broker proposals list, then discards what is done with"
            raise OutboxFullError(f"the outbox holds {entries} proposals and {total} bytes: no room for one more", mend)

    def _has_room(self, size: int) -> bool:
        entries, total = self._load()
        return entries < self._config.outbox_entries and total + size <= self._config.outbox_bytes

    def _load(self) -> tuple[int, int]:
        query = "SELECT count(*) AS n, coalesce(sum(size), 0) AS bytes FROM proposals WHERE size > 0"
        row = self.database.rows(query)[0]
        return row["n"], row["bytes"]

    def pushing(self, proposal: str, commit: str) -> None:
        """Written before the first step that the outside can see."""
        self.database.write(
            "UPDATE proposals SET state = 'pushing', commit_id = ?, reason = '' WHERE id = ?", commit, proposal
        )

    def waits(self, proposal: str, reason: str) -> None:
        """It may not go on now; it will, with nobody's word but that of whoever stopped it."""
        query = "UPDATE proposals SET state = 'waiting', reason = ? WHERE id = ? AND verdict IS NULL"
        self.database.write(query, reason[:500], proposal)

    def settle(self, verdict: Receipt | Refusal) -> None:
        """The last word. A delivered proposal's file is removed: the forge has it now."""
        delivered = isinstance(verdict, Receipt)
        self.database.write(
            "UPDATE proposals SET state = ?, verdict = ?, number = ?, settled = ?, reason = '' WHERE id = ?",
            "delivered" if delivered else "refused", verdict.model_dump_json(),
            verdict.number if isinstance(verdict, Receipt) else None, self._clock(), verdict.proposal,
        )  # fmt: skip
        if delivered:
            self._drop_file(verdict.proposal)

    # --- a person's word

    def approve(self, proposal: str, word: Approved) -> None:
        """Keeps a person's word; the proposal is unfinished again."""
        with self.database.writing():
            self.database.write(
                "INSERT OR REPLACE INTO approvals (proposal, digest, by_uid, at, note, covers)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                proposal, word.digest, word.by_uid, word.at, word.note, covers_text(word.covers),
            )  # fmt: skip
            self.database.write("UPDATE proposals SET state = 'judging', verdict = NULL WHERE id = ?", proposal)

    def approval(self, proposal: Kept) -> Approved | None:
        """A person's word for exactly what this proposal holds."""
        query = "SELECT * FROM approvals WHERE proposal = ? AND digest = ?"
        rows = self.database.rows(query, proposal.id, proposal.digest)
        return approved(rows[0]) if rows else None

    def discard(self, proposal: str) -> KeptProposal:
        """A person is done with a refused one. Its verdict stays. Raises AbsentError, ConflictError."""
        found = self.get(proposal)
        if found.state != "refused":
            raise ConflictError(f"proposal {proposal} is {found.state}, not refused")
        last = self.show(proposal)
        self._drop_file(proposal)
        return last

    def _drop_file(self, proposal: str) -> None:
        self._file(proposal).unlink(missing_ok=True)
        self.database.write("UPDATE proposals SET size = 0 WHERE id = ?", proposal)

    # --- looking

    def find(self, proposal: str) -> Kept | None:
        """One row by its id."""
        return self._one("SELECT * FROM proposals WHERE id = ?", proposal)

    def get(self, proposal: str) -> Kept:
        """The same. Raises AbsentError."""
        found = self.find(proposal)
        if found is None:
            raise AbsentError(f"there is no proposal {proposal!r}", "swarm-broker proposals list shows them")
        return found

    def twin(self, proposal: Proposal, grant: str) -> Kept | None:
        """One of another id with the same content under the same grant, delivered or on its way.

        A new grant for the same task is a person's new word: what was done under the old one is no answer to it.
        """
        return self._one(
            "SELECT * FROM proposals WHERE grant_id = ? AND task = ? AND base_commit = ? AND tree = ? AND updates = ?"
            " AND id != ? AND state != 'refused' ORDER BY state = 'delivered' DESC, at LIMIT 1",
            grant, proposal.task, proposal.base_commit, proposal.tree, int(proposal.update), proposal.id,
        )  # fmt: skip

    def unfinished(self) -> tuple[Kept, ...]:
        """What a kill, a stop or a failing forge interrupted, oldest first."""
        return tuple(map(kept, self.database.rows("SELECT * FROM proposals WHERE verdict IS NULL ORDER BY at")))

    def deliveries(self, repository: str, since: float) -> tuple[float, ...]:
        """When proposals were delivered, oldest first (s since the epoch); none that a clock put into the future."""
        query = (
            "SELECT settled FROM proposals WHERE repository = ? AND state = 'delivered' AND settled > ?"
            " AND settled <= ? ORDER BY settled"
        )
        return tuple(row["settled"] for row in self.database.rows(query, repository, since, self._clock()))

    def own(self, repository: str, task: str | None = None) -> tuple[Own, ...]:
        """All pull requests that were delivered, or a task's, oldest first."""
        # Of each group SQLite gives the row with the smallest ``settled``: the delivery that opened it.
        query = (
            "SELECT number, task, json_extract(rights, '$.branch') AS branch, json_extract(rights, '$.base') AS base,"
            " grant_id, group_concat(commit_id) AS commits, sum(updates) AS rounds, min(settled) AS at"
            " FROM proposals WHERE repository = ? AND state = 'delivered'"
        )
        rest = " GROUP BY number ORDER BY number"
        if task is None:
            return tuple(map(own, self.database.rows(query + rest, repository)))
        return tuple(map(own, self.database.rows(query + " AND task = ?" + rest, repository, task)))

    def numbers(self, repository: str) -> tuple[int, ...]:
        """Of all pull requests that were delivered, newest first."""
        query = (
            "SELECT DISTINCT number FROM proposals WHERE repository = ? AND state = 'delivered' ORDER BY number DESC"
        )
        return tuple(row["number"] for row in self.database.rows(query, repository))

    def kept_bases(self, repository: str) -> frozenset[str]:
        """Base commits of all whose content is still kept."""
        query = "SELECT DISTINCT base_commit FROM proposals WHERE repository = ? AND size > 0"
        return frozenset(row["base_commit"] for row in self.database.rows(query, repository))

    def content(self, proposal: Kept) -> tuple[Proposal, bytes]:
        """The words (without the capability) and the pack, as they arrived. Raises AbsentError once they are gone."""
        mend = "find out who wrote to the state folder; discard the proposal"
        try:
            words, pack = decode_proposal(self._file(proposal.id).read_bytes())
        except FileNotFoundError:
            raise AbsentError(f"the content of proposal {proposal.id!r} is no longer kept") from None
        except (OSError, ValueError):
            raise BrokerError(f"the content of proposal {proposal.id!r} cannot be read any more", mend) from None
        if digest(proposal.repository, words) != proposal.digest:
            raise BrokerError(f"the content of proposal {proposal.id!r} is not what arrived", mend)
        return words, pack

    def show(self, proposal: str) -> KeptProposal:
        """One proposal for a person; without its words where they are gone or not what arrived, which is then said."""
        found = self.get(proposal)
        if not found.size:
            return shown(found, None)
        try:
            return shown(found, self.content(found)[0])
        except BrokerError as error:
            return shown(found, None).model_copy(update={"reason": str(error)})

    def listing(self) -> Outbox:
        """All that is kept, newest first."""
        rows = self.database.rows("SELECT * FROM proposals WHERE size > 0 ORDER BY at DESC")
        entries, total = self._load()
        return Outbox(
            proposals=tuple(shown(kept(row), None) for row in rows),
            entries_left=max(0, self._config.outbox_entries - entries),
            bytes_left=max(0, self._config.outbox_bytes - total),
        )

    def _one(self, query: str, *values: object) -> Kept | None:
        rows = self.database.rows(query, *values)
        return kept(rows[0]) if rows else None

    def _file(self, proposal: str) -> Path:
        return self._folder / f"{proposal}.proposal"

    def _write(self, proposal: str, body: bytes) -> None:
        file = self._file(proposal)
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as opened:
            opened.write(body)
            opened.flush()
            os.fsync(handle)
