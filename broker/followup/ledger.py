"""What the follow-up remembers, on disk: where each look goes on, what was seen, what happened, how far each pull is.

A long file since every statement of one database stands together. What belongs together is written in one transaction:
an event, and the ids that keep it from happening again.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.errors import BrokerError
from broker.wire import Comment, Event, EventPage

MAX_EVENTS = 10_000
MAX_SEEN = 20_000  # ids per repository; what was seen before the oldest of them counts as old by its time
MAX_PAGE = 100
MAX_PENDING = 200  # words that wait for one pull request
_MIGRATIONS = (
    """
    CREATE TABLE marks (repository TEXT, key TEXT, value TEXT NOT NULL, PRIMARY KEY (repository, key)) STRICT;
    CREATE TABLE floors (repository TEXT PRIMARY KEY, at REAL NOT NULL) STRICT;
    CREATE TABLE seen (repository TEXT, id TEXT, at REAL NOT NULL, PRIMARY KEY (repository, id)) STRICT;
    CREATE INDEX seen_by_time ON seen (repository, at);
    CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL) STRICT;
    CREATE TABLE intakes (
        repository TEXT, task TEXT, issue INTEGER NOT NULL, sender TEXT NOT NULL, at REAL NOT NULL,
        over INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (repository, task)
    ) STRICT;
    CREATE TABLE pulls (
        repository TEXT, number INTEGER, task TEXT NOT NULL, head TEXT NOT NULL, active REAL NOT NULL,
        looked REAL NOT NULL DEFAULT 0, busy REAL, rounds INTEGER NOT NULL DEFAULT 0,
        told INTEGER NOT NULL DEFAULT 0, over INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (repository, number)
    ) STRICT;
    CREATE TABLE pending (
        repository TEXT, number INTEGER, id TEXT, comment TEXT NOT NULL, PRIMARY KEY (repository, number, id)
    ) STRICT;
    CREATE TABLE comments (
        repository TEXT, task TEXT, digest TEXT NOT NULL, url TEXT NOT NULL, room REAL NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (repository, task)
    ) STRICT;
    """,
)


@dataclass(frozen=True)
class Watched:
    """What is known of one of the broker's own pull requests. ``busy``: since when an event of it is worked on."""

    number: int
    task: str
    head: str
    active: float
    looked: float = 0.0
    busy: float | None = None
    rounds: int = 0
    told: bool = False
    over: bool = False


@dataclass(frozen=True)
class Written:
    """A status comment as it was written last. ``room``: how many more may be written, as it was ``at`` that time."""

    digest: str
    url: str
    room: float
    at: float


class Ledger:
    """One SQLite file. Safe to use from several threads of one process. Raises BrokerError when it cannot be used."""

    def __init__(self, state: Path) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(state / "followup.sqlite", check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._migrate()

    def close(self) -> None:
        """Closes the database."""
        with self._lock:
            self._db.close()

    def _migrate(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(_MIGRATIONS):
            mend = "install the newer broker again, or give this one a state folder of its own"
            raise BrokerError(f"followup.sqlite was written by a newer broker (schema {version})", mend)
        for number, script in enumerate(_MIGRATIONS[version:], start=version + 1):
            self._db.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT;")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Everything in the block is written, or nothing. May be nested: the outermost counts."""
        with self._lock:
            if self._db.in_transaction:
                yield
                return
            self._run("BEGIN IMMEDIATE")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    # --- looks

    def marks(self, repository: str) -> dict[str, str]:
        """Where the next look goes on; empty before the first."""
        rows = self._rows("SELECT key, value FROM marks WHERE repository = ?", repository)
        return {row["key"]: row["value"] for row in rows}

    def set_marks(self, repository: str, marks: Mapping[str, str]) -> None:
        """Replaces them."""
        with self.together():
            self._run("DELETE FROM marks WHERE repository = ?", (repository,))
            for key, value in marks.items():
                self._run("INSERT INTO marks (repository, key, value) VALUES (?, ?, ?)", (repository, key, value))

    def floor(self, repository: str) -> float | None:
        """What was written before this time is old, whatever it says now; None before the first look."""
        rows = self._rows("SELECT at FROM floors WHERE repository = ?", repository)
        return rows[0]["at"] if rows else None

    def raise_floor(self, repository: str, at: float) -> None:
        """Moves it on, never back."""
        query = (
            "INSERT INTO floors (repository, at) VALUES (?, ?)"
            " ON CONFLICT (repository) DO UPDATE SET at = max(at, excluded.at)"
        )
        self._run(query, (repository, at))

    def is_seen(self, repository: str, item: str) -> bool:
        """Whether an id was seen before."""
        return bool(self._rows("SELECT 1 FROM seen WHERE repository = ? AND id = ?", repository, item))

    def see(self, repository: str, items: Mapping[str, float]) -> None:
        """Remembers ids with the time of what they name.

        The oldest comments ("note:...") beyond MAX_SEEN are forgotten, and the floor moves to where they were.
        """
        with self.together():
            for item, at in items.items():
                self._run("INSERT OR IGNORE INTO seen (repository, id, at) VALUES (?, ?, ?)", (repository, item, at))
            notes = "repository = ? AND id LIKE 'note:%'"
            query = f"SELECT at FROM seen WHERE {notes} ORDER BY at DESC LIMIT 1 OFFSET ?"  # noqa: S608 - a constant
            if rows := self._rows(query, repository, MAX_SEEN):
                self.raise_floor(repository, rows[0]["at"])
                self._run(f"DELETE FROM seen WHERE {notes} AND at <= ?", (repository, rows[0]["at"]))  # noqa: S608

    def forget(self, repository: str, item: str) -> None:
        """The id may be seen again."""
        self._run("DELETE FROM seen WHERE repository = ? AND id = ?", (repository, item))

    # --- events

    def publish(self, event: Event) -> Event:
        """Gives the event its number and keeps it; the oldest beyond MAX_EVENTS go."""
        with self.together():
            number = self._run("INSERT INTO events (body) VALUES ('')").lastrowid or 0
            numbered = event.model_copy(update={"number": number})
            self._run("UPDATE events SET body = ? WHERE number = ?", (numbered.model_dump_json(), number))
            self._run("DELETE FROM events WHERE number <= ?", (number - MAX_EVENTS,))
        return numbered

    def page(self, after: int, limit: int = MAX_PAGE) -> EventPage:
        """Events after a number, oldest first. ``last`` is the last one here, or the last of all if there is none."""
        rows = self._rows("SELECT body FROM events WHERE number > ? ORDER BY number LIMIT ?", after, limit)
        events = tuple(Event.model_validate_json(row["body"]) for row in rows)
        return EventPage(events=events, last=events[-1].number if events else self._last())

    def _last(self) -> int:
        rows = self._rows("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        return int(rows[0]["seq"]) if rows else 0

    # --- tasks that were started from the forge

    def started(self, repository: str, issue: int, task: str, sender: str, at: float) -> None:
        """Remembers a task of an issue."""
        row = (repository, task, issue, sender, at)
        self._run("INSERT INTO intakes (repository, task, issue, sender, at) VALUES (?, ?, ?, ?, ?)", row)

    def open_task(self, repository: str, issue: int) -> str | None:
        """The task of an issue that is not over."""
        query = "SELECT task FROM intakes WHERE repository = ? AND issue = ? AND over = 0 LIMIT 1"
        rows = self._rows(query, repository, issue)
        return rows[0]["task"] if rows else None

    def started_since(self, repository: str, since: float) -> int:
        """How many were started from a time on."""
        return int(self._rows("SELECT count(*) FROM intakes WHERE repository = ? AND at > ?", repository, since)[0][0])

    def finished(self, repository: str, task: str) -> None:
        """A task is over: its issue may start another one."""
        self._run("UPDATE intakes SET over = 1 WHERE repository = ? AND task = ?", (repository, task))

    def expire_tasks(self, before: float) -> None:
        """Tasks whose grant has expired by now are over, whoever forgot them."""
        self._run("UPDATE intakes SET over = 1 WHERE over = 0 AND at < ?", (before,))

    # --- own pull requests

    def watched(self, repository: str, number: int) -> Watched | None:
        """What is known of one."""
        rows = self._rows("SELECT * FROM pulls WHERE repository = ? AND number = ?", repository, number)
        return _watched(rows[0]) if rows else None

    def over(self, repository: str) -> frozenset[int]:
        """Numbers of those that were merged or closed."""
        rows = self._rows("SELECT number FROM pulls WHERE repository = ? AND over = 1", repository)
        return frozenset(row["number"] for row in rows)

    def watch(self, repository: str, pull: Watched) -> None:
        """Writes what is known of one."""
        query = (
            "INSERT OR REPLACE INTO pulls (repository, number, task, head, active, looked, busy, rounds, told, over)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        row = (repository, pull.number, pull.task, pull.head, pull.active, pull.looked, pull.busy, pull.rounds,
               int(pull.told), int(pull.over))  # fmt: skip
        self._run(query, row)

    def rest(self, repository: str, task: str) -> None:
        """Nobody works on the task's pull request any more: the next event may come."""
        self._run("UPDATE pulls SET busy = NULL WHERE repository = ? AND task = ?", (repository, task))

    def ask(self, repository: str, number: int, words: Mapping[str, Comment]) -> None:
        """Words of permitted people that a pull request waits to be told, by their ids; no more than MAX_PENDING."""
        with self.together():
            for item, comment in words.items():
                query = (
                    "INSERT OR IGNORE INTO pending (repository, number, id, comment) SELECT ?, ?, ?, ?"
                    " WHERE (SELECT count(*) FROM pending WHERE repository = ? AND number = ?) < ?"
                )
                row = (repository, number, item, comment.model_dump_json(), repository, number, MAX_PENDING)
                self._run(query, row)

    def pending(self, repository: str, number: int) -> tuple[Comment, ...]:
        """They, in the order in which they came."""
        query = "SELECT comment FROM pending WHERE repository = ? AND number = ? ORDER BY rowid"
        return tuple(Comment.model_validate_json(row["comment"]) for row in self._rows(query, repository, number))

    def told(self, repository: str, number: int) -> None:
        """They are in an event now."""
        self._run("DELETE FROM pending WHERE repository = ? AND number = ?", (repository, number))

    # --- status comments

    def written(self, repository: str, task: str) -> Written | None:
        """The task's status comment as it was written last."""
        rows = self._rows(
            "SELECT digest, url, room, at FROM comments WHERE repository = ? AND task = ?", repository, task
        )
        return Written(**dict(rows[0])) if rows else None

    def write(self, repository: str, task: str, written: Written) -> None:
        """Remembers it."""
        row = (repository, task, written.digest, written.url, written.room, written.at)
        query = "INSERT OR REPLACE INTO comments (repository, task, digest, url, room, at) VALUES (?, ?, ?, ?, ?, ?)"
        self._run(query, row)

    # --- machinery

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock, closing(self._run(query, values)) as cursor:
            return cursor.fetchall()

    def _run(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            with self._lock:
                return self._db.execute(query, values)
        except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
            mend = "the operator looks whether the disk of the state folder is full; what was kept is still there"
            raise BrokerError(f"the follow-up's memory cannot be used: {error}", mend) from None


def _watched(row: sqlite3.Row) -> Watched:
    values = {key: row[key] for key in row.keys() if key != "repository"}  # noqa: SIM118 - a Row iterates over values
    return Watched(**{**values, "told": bool(row["told"]), "over": bool(row["over"])})
