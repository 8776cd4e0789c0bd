"""One SQLite file and who may write to it: the process that opened it last. A write is on disk before a call returns.

A process takes the next epoch when it opens the file, and every write is made under the condition that it is still
the newest: a broker that was taken for dead, or whose lock was lost, cannot act on what another has taken over.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from broker.errors import BrokerError, ConfigError, FencedError
from broker.outbox.schema import migrate


class Database:
    """Safe to use from several threads of one process."""

    def __init__(self, path: Path) -> None:
        """Opens or makes it and takes it over. Raises ConfigError if it is damaged, or a newer broker's."""
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            migrate(self._db)
            self.epoch = self._take_over()
        except sqlite3.Error as error:
            self._db.close()
            mend = (
                "restore it from a copy, or move it aside: proposals that were not delivered are then to be sent anew"
            )
            raise ConfigError(f"{path} cannot be opened: {error}", mend) from None
        except ConfigError:
            self._db.close()
            raise

    def _take_over(self) -> int:
        taken = self._db.execute(
            "UPDATE fence SET epoch = epoch + 1, at = ? WHERE only = 1 RETURNING epoch", (time.time(),)
        )
        return int(taken.fetchall()[0]["epoch"])

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._db.close()

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        """What a query finds."""
        with self._lock, closing(self._run(query, values)) as cursor:
            return cursor.fetchall()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction, or a part of the present one.

        Raises FencedError once another process has opened the file, and BrokerError (full disk).
        """
        with self._lock:
            if self._db.in_transaction:
                yield
                return
            self._run("BEGIN IMMEDIATE")
            try:
                self._require_newest()
                yield
                self._run("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has SQLite roll back by itself
                    self._db.execute("ROLLBACK")
                raise

    def write(self, query: str, *values: Any) -> int:
        """One statement in a transaction of its own, or within the present one. Returns the rows that it touched."""
        with self.writing():
            return self._run(query, values).rowcount

    def _require_newest(self) -> None:
        epoch = self._run("SELECT epoch FROM fence WHERE only = 1").fetchone()["epoch"]
        if epoch != self.epoch:
            mend = "find out why two brokers run on one state folder, and stop this one"
            raise FencedError(f"another broker has taken over the outbox (epoch {epoch}, ours is {self.epoch})", mend)

    def _run(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            return self._db.execute(query, values)
        except sqlite3.Error as error:
            mend = (
                "the operator looks whether the disk of the state folder is full; what was kept before is still there"
            )
            raise BrokerError(f"the outbox cannot be used: {error}", mend) from None
