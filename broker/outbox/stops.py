"""What a person stopped, on disk, until a person says go."""

from __future__ import annotations

from broker.outbox.database import Database
from broker.person_wire import Stop

_ALL = ""  # in place of a repository's name, which is never empty


class StopStore:
    """The stops of one outbox. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> tuple[Stop, ...]:
        """All in force, oldest first."""
        rows = self._database.rows("SELECT repository, by_uid, at, reason FROM stops ORDER BY at, repository")
        return tuple(
            Stop(repository=row["repository"] or None, by=row["by_uid"], at=row["at"], reason=row["reason"])
            for row in rows
        )

    def put(self, stop: Stop) -> None:
        """From now on, in place of an earlier one there: the latest word counts."""
        self._database.write(
            "INSERT OR REPLACE INTO stops (repository, by_uid, at, reason) VALUES (?, ?, ?, ?)",
            stop.repository or _ALL, stop.by, stop.at, stop.reason,
        )  # fmt: skip

    def drop(self, repository: str | None) -> bool:
        """No longer; False if there was none."""
        return self._database.write("DELETE FROM stops WHERE repository = ?", repository or _ALL) > 0
