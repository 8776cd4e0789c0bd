"""The steps of each delivery, as they begin and as they end. What a kill interrupted has begun and not ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from broker.outbox.database import Database


class Steps:
    """A row is on disk before its step is taken, and its result before the next one."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def begin(self, proposal: str, name: str) -> None:
        """Written before the step. Raises FencedError: then the step is another broker's."""
        self._database.write(
            "INSERT INTO steps (proposal, name, begun) VALUES (?, ?, ?)"
            " ON CONFLICT (proposal, name) DO UPDATE SET tries = tries + 1",
            proposal, name, self._clock(),
        )  # fmt: skip

    def end(self, proposal: str, name: str, result: str) -> None:
        """Written after it, with what came of it."""
        self._database.write(
            "UPDATE steps SET ended = ?, result = ? WHERE proposal = ? AND name = ?",
            self._clock(), result, proposal, name,
        )  # fmt: skip

    def results(self, proposal: str) -> dict[str, str]:
        """What came of the steps that ended, by name."""
        rows = self._database.rows("SELECT name, result FROM steps WHERE proposal = ? AND ended IS NOT NULL", proposal)
        return {row["name"]: row["result"] for row in rows}

    def tries(self, proposal: str, name: str) -> int:
        """How often a step was begun."""
        rows = self._database.rows("SELECT tries FROM steps WHERE proposal = ? AND name = ?", proposal, name)
        return int(rows[0]["tries"]) if rows else 0

    def begun(self, proposal: str) -> tuple[str, ...]:
        """Names of all that were begun, in order."""
        rows = self._database.rows("SELECT name FROM steps WHERE proposal = ? ORDER BY rowid", proposal)
        return tuple(row["name"] for row in rows)
