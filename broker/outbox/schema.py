"""The outbox's tables, version by version. A database of any older version is brought forward when it is opened."""

from __future__ import annotations

import sqlite3

from broker.errors import ConfigError

# Version 1 wrote no version down; its tables are made here as they were, so that every way leads through it.
_FIRST = (
    """CREATE TABLE IF NOT EXISTS grants (
    id TEXT PRIMARY KEY, repository TEXT NOT NULL, task TEXT NOT NULL, by_uid INTEGER NOT NULL, at REAL NOT NULL
) STRICT""",
    """CREATE TABLE IF NOT EXISTS proposals (
    id TEXT PRIMARY KEY, grant_id TEXT NOT NULL REFERENCES grants (id), repository TEXT NOT NULL, task TEXT NOT NULL,
    base_commit TEXT NOT NULL, tree TEXT NOT NULL, rights TEXT NOT NULL, at REAL NOT NULL, size INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('judging', 'pushing', 'delivered', 'refused')),
    commit_id TEXT, verdict TEXT
) STRICT""",
)
_STEPS_AND_APPROVALS = (
    """CREATE TABLE proposals_2 (
    id TEXT PRIMARY KEY, grant_id TEXT NOT NULL, repository TEXT NOT NULL, task TEXT NOT NULL,
    base_commit TEXT NOT NULL, tree TEXT NOT NULL, rights TEXT NOT NULL, at REAL NOT NULL, size INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('judging', 'pushing', 'waiting', 'delivered', 'refused')),
    commit_id TEXT, verdict TEXT, digest TEXT NOT NULL DEFAULT '', updates INTEGER NOT NULL DEFAULT 0,
    number INTEGER, settled REAL, reason TEXT NOT NULL DEFAULT ''
) STRICT""",
    """INSERT INTO proposals_2 (id, grant_id, repository, task, base_commit, tree, rights, at, size, state, commit_id,
    verdict, number, settled)
    SELECT id, grant_id, repository, task, base_commit, tree, rights, at, size, state, commit_id, verdict,
    CASE WHEN state = 'delivered' THEN json_extract(verdict, '$.number') END,
    CASE WHEN verdict IS NOT NULL THEN at END FROM proposals""",
    "DROP TABLE proposals",
    "ALTER TABLE proposals_2 RENAME TO proposals",
    "CREATE INDEX by_task ON proposals (repository, task)",
    "CREATE INDEX by_settled ON proposals (repository, state, settled)",
    """CREATE TABLE steps (
    proposal TEXT NOT NULL, name TEXT NOT NULL, begun REAL NOT NULL, tries INTEGER NOT NULL DEFAULT 1,
    ended REAL, result TEXT, PRIMARY KEY (proposal, name)
) STRICT""",
    """CREATE TABLE approvals (
    proposal TEXT NOT NULL, digest TEXT NOT NULL, by_uid INTEGER NOT NULL, at REAL NOT NULL, note TEXT NOT NULL,
    covers TEXT NOT NULL, PRIMARY KEY (proposal, digest)
) STRICT""",
    "CREATE TABLE fence (only INTEGER PRIMARY KEY CHECK (only = 1), epoch INTEGER NOT NULL, at REAL NOT NULL) STRICT",
    "INSERT INTO fence (only, epoch, at) VALUES (1, 0, 0)",
)
_GRANTS_AND_USES = (
    "ALTER TABLE grants RENAME TO grants_1",
    """CREATE TABLE grants (
    id TEXT PRIMARY KEY, rights TEXT NOT NULL, by_whom TEXT NOT NULL, at REAL NOT NULL, expires REAL NOT NULL,
    revoked_by TEXT, revoked_at REAL
) STRICT""",
    """CREATE TABLE uses (
    grant_id TEXT NOT NULL, proposal TEXT NOT NULL, PRIMARY KEY (grant_id, proposal)
) STRICT""",
    # Of older grants only what was proposed under them is still of use: their capabilities have another format.
    """INSERT INTO grants (id, rights, by_whom, at, expires)
    SELECT g.id, min(p.rights), 'uid:' || g.by_uid, g.at, json_extract(min(p.rights), '$.expires')
    FROM grants_1 AS g JOIN proposals AS p ON p.grant_id = g.id GROUP BY g.id""",
    """INSERT INTO uses (grant_id, proposal)
    SELECT grant_id, id FROM proposals WHERE grant_id IN (SELECT id FROM grants)""",
    "DROP TABLE grants_1",
    "CREATE INDEX by_expiry ON grants (expires)",
)
_STOPS = (
    """CREATE TABLE stops (
    repository TEXT PRIMARY KEY, by_uid INTEGER NOT NULL, at REAL NOT NULL, reason TEXT NOT NULL
) STRICT""",
)
MIGRATIONS = (_FIRST, _STEPS_AND_APPROVALS, _GRANTS_AND_USES, _STOPS)


def migrate(database: sqlite3.Connection) -> None:
    """Brings the tables to the newest version, each version whole or not at all.

    Raises ConfigError for a database that a newer broker made.
    """
    for version, statements in enumerate(MIGRATIONS, start=1):
        database.execute("BEGIN IMMEDIATE")  # before the version is read: two processes may start at once
        try:
            if _version(database) < version:
                for statement in statements:
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {version}")
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
    if _version(database) > len(MIGRATIONS):
        mend = "run the newer broker, or start with another state folder"
        raise ConfigError("the outbox was made by a newer broker", mend)


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])
