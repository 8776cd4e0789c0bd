"""An outbox that an older broker left opens, with all that was in it."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest

from broker.outbox.database import Database
from broker.outbox.digest import digest
from broker.outbox.schema import MIGRATIONS
from broker.outbox.store import OutboxStore
from broker.wire import Finding, Proposal, Receipt, Refusal, encode_proposal

COMMIT, TREE = "a" * 40, "b" * 40
# As version 1 made it, word for word.
FIRST = """
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
OLD_RIGHTS = {
    "grant": "0" * 32, "repository": "demo", "base": "main", "base_commit": COMMIT, "branch": "swarm/t1", "task": "t1",
    "uses": 1, "expires": 1e12, "verbs": ["mirror", "propose", "explain"], "tree": None, "proposal": None,
}  # fmt: skip


def words(name: str) -> Proposal:
    return Proposal(id=name, capability="", task="t1", base_commit=COMMIT, tree=TREE, title="T", body="B")


@pytest.fixture
def old_state(settings_for, tmp_path):
    """A state folder as version 1 left it: one delivered, one refused, one interrupted."""
    config = settings_for(tmp_path)
    (config.state / "outbox").mkdir(parents=True)
    receipt = Receipt(proposal="done", pull_request="demo#7", number=7, branch="swarm/t1", commit=COMMIT)
    refusal = Refusal(proposal="no", findings=(Finding(rule="secret", message="a secret"),))
    with contextlib.closing(sqlite3.connect(config.state / "outbox.sqlite")) as raw, raw:
        raw.executescript(FIRST)
        raw.execute("INSERT INTO grants VALUES (?, 'demo', 't1', 0, 1.0)", ("0" * 32,))
        for name, state, verdict in (
            ("done", "delivered", receipt),
            ("no", "refused", refusal),
            ("cut", "pushing", None),
        ):
            old = verdict.model_dump_json(exclude={"digest", "waits", "url", "warnings"}) if verdict else None
            body = encode_proposal(words(name), b"pack")
            size = 0 if state == "delivered" else len(body)
            raw.execute(
                "INSERT INTO proposals VALUES (?, ?, 'demo', 't1', ?, ?, ?, 5.0, ?, ?, ?, ?)",
                (name, "0" * 32, COMMIT, TREE, json.dumps(OLD_RIGHTS), size, state, COMMIT, old),
            )  # fmt: skip
            if size:
                (config.state / "outbox" / f"{name}.proposal").write_bytes(body)
    return config


def test_what_version_1_kept_is_all_there(old_state):
    with contextlib.closing(OutboxStore(old_state.state, old_state)) as store:
        assert {name: store.get(name).state for name in ("done", "no", "cut")} == {
            "done": "delivered", "no": "refused", "cut": "pushing",
        }  # fmt: skip
        assert [kept.id for kept in store.unfinished()] == ["cut"]
        assert store.content(store.get("no")) == (words("no"), b"pack")
        (own,) = store.own("demo")
        assert (own.number, own.task, own.branch, own.commits) == (7, "t1", "swarm/t1", {COMMIT})


def test_what_version_1_refused_can_be_approved_by_its_digest(old_state):
    with contextlib.closing(OutboxStore(old_state.state, old_state)) as store:
        kept = store.get("no")
        assert kept.digest == digest("demo", words("no")) == kept.verdict.digest
        assert kept.verdict.findings[0].severity == "block"


def test_a_migration_that_a_kill_interrupted_is_done_again(old_state):
    path = old_state.state / "outbox.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("CREATE TABLE fence (left_over INTEGER)")  # as if half of it had been written
    with pytest.raises(Exception, match="cannot be opened: table fence already exists"):
        Database(path)
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        assert raw.execute("SELECT count(*) FROM proposals").fetchone() == (3,)
        raw.execute("DROP TABLE fence")
    with contextlib.closing(OutboxStore(old_state.state, old_state)) as store:
        assert store.get("done").number == 7


def test_opening_again_changes_nothing(old_state):
    for _ in range(2):
        OutboxStore(old_state.state, old_state).close()
    with contextlib.closing(sqlite3.connect(old_state.state / "outbox.sqlite")) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert raw.execute("SELECT count(*) FROM proposals").fetchone() == (3,)
