"""A grant is spent once per proposal and never beyond its uses, whoever asks at once; taken back, it is over."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from broker.capability import Rights
from broker.errors import AbsentError, BrokerError, CapabilityError, FencedError
from broker.outbox.database import Database
from broker.outbox.grants import GrantStore
from broker.outbox.schema import MIGRATIONS


def rights(grant="0" * 32, **more) -> Rights:
    values = {
        "grant": grant, "repository": "demo", "base": "main", "base_commit": "a" * 40, "branch": "swarm/t1",
        "task": "t1", "uses": 2, "expires": 1000.0,
    }  # fmt: skip
    return Rights.model_validate({**values, **more})


@pytest.fixture
def store(tmp_path) -> Iterator[GrantStore]:
    database = Database(tmp_path / "outbox.sqlite")
    found = GrantStore(database)
    found.record(rights(), "uid:0", 10.0)
    yield found
    database.close()


def test_what_was_never_granted_here_is_not_good(store):
    for call in (store.require, lambda unknown: store.spend(unknown, "p1")):
        with pytest.raises(CapabilityError, match="another state folder"):
            call(rights("1" * 32))


def test_every_proposal_spends_one_use_and_only_once(store):
    for proposal in ("p1", "p1", "p2", "p1", "p2"):
        store.spend(rights(), proposal)
    with pytest.raises(CapabilityError, match="used up: it was good for 2"):
        store.spend(rights(), "p3")
    assert store.get("0" * 32).used == 2


def test_a_narrowed_capability_counts_what_others_of_the_grant_spent(store):
    store.spend(rights(), "p1")
    with pytest.raises(CapabilityError, match="good for 1"):
        store.spend(rights(uses=1), "p2")
    store.spend(rights(), "p2")


def test_a_capability_narrowed_to_no_use_is_good_for_none(store):
    with pytest.raises(CapabilityError, match="good for 0"):
        store.spend(rights().model_copy(update={"uses": 0}), "p1")


def test_what_led_to_nothing_is_given_back(store):
    store.spend(rights(uses=1), "p1")
    with pytest.raises(CapabilityError, match="used up"):
        store.spend(rights(uses=1), "p2")
    store.refund(rights(), "p1")
    store.spend(rights(uses=1), "p2")


def test_one_that_was_taken_back_is_over_and_stays_so_after_a_restart(store, tmp_path):
    store.spend(rights(), "p1")
    assert store.revoke("0" * 32, "uid:0", 20.0).revoked
    assert store.revoke("0" * 32, "uid:5", 30.0).revoked
    with closing(Database(tmp_path / "outbox.sqlite")) as database:
        again = GrantStore(database)
        for call in (again.require, lambda held: again.spend(held, "p1")):
            with pytest.raises(CapabilityError, match="took the capability back"):
                call(rights())
        assert again.good(20.0) == ()


def test_what_is_drawn_is_written_down_with_its_use_or_not_at_all(store):
    drawn = rights("1" * 32, task="t1-1")
    with pytest.raises(BrokerError, match="cannot be used"):  # SQLite turns the row down after the use was spent
        store.draw(rights(), drawn.model_copy(update={"expires": None}), "uid:0", 10.0)
    assert store.get("0" * 32).used == 0
    assert store.draw(rights(), drawn, "uid:0", 10.0) is None
    assert store.draw(rights(), drawn, "uid:0", 11.0) == store.get(drawn.grant)
    assert store.get("0" * 32).used == 1


def test_who_takes_back_takes_back_all_that_was_drawn_and_nothing_is_drawn_after(store):
    drawn = rights("1" * 32, task="t1-1")
    store.draw(rights(), drawn, "uid:0", 10.0)
    store.revoke("0" * 32, "uid:0", 20.0, lambda held, task: "1" * 32 if task == "t1-1" else "")
    assert store.get(drawn.grant).revoked
    with pytest.raises(CapabilityError, match="took the capability back"):
        store.draw(rights(), rights("3" * 32, task="t1-3"), "uid:0", 21.0)
    assert store.find("3" * 32) is None


def test_only_what_can_still_be_used_is_listed_newest_first(store):
    store.record(rights("1" * 32, uses=1), "forge:ada", 20.0)
    store.record(rights("2" * 32, expires=15.0), "uid:0", 11.0)
    assert [(one.rights.grant[0], one.by) for one in store.good(20.0)] == [("1", "forge:ada"), ("0", "uid:0")]
    store.spend(rights("1" * 32, uses=1), "p1")
    assert [one.rights.grant[0] for one in store.good(20.0)] == ["0"]


def test_what_is_not_known_cannot_be_taken_back(store):
    with pytest.raises(AbsentError):
        store.revoke("7" * 32, "uid:0", 1.0)


def test_the_oldest_that_are_over_are_forgotten_beyond_a_number_and_no_longer_good(tmp_path):
    with closing(Database(tmp_path / "outbox.sqlite")) as database:
        store = GrantStore(database, remembered=2)
        store.record(rights("0" * 32, expires=9e6), "uid:0", 10.0)
        for number in "123":
            store.record(rights(number * 32), "uid:0", 2000.0)
        assert [store.find(number * 32) is not None for number in "0123"] == [True, False, True, True]
        with pytest.raises(CapabilityError, match="another state folder"):
            store.require(rights("1" * 32))


def test_a_clock_that_once_ran_ahead_has_nothing_forgotten(store):
    store.spend(rights(), "p1")
    for number in "12":
        store.record(rights(number * 32, expires=9e9), "uid:0", 8e9)
    store.require(rights())
    assert store.get("0" * 32).used == 1


def test_of_many_at_once_no_more_than_the_uses_get_one(store):
    def spend(number: int) -> bool:
        try:
            store.spend(rights(), f"p{number}")
        except CapabilityError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(spend, range(40))) == 2


def test_a_broker_that_another_took_over_from_grants_spends_and_takes_back_nothing(store, tmp_path):
    with closing(Database(tmp_path / "outbox.sqlite")) as database:
        newer = GrantStore(database)
        for call in (
            lambda: store.spend(rights(), "p1"),
            lambda: store.record(rights("1" * 32), "uid:0", 1.0),
            lambda: store.revoke("0" * 32, "uid:0", 1.0),
            lambda: store.refund(rights(), "p1"),
        ):
            with pytest.raises(FencedError):
                call()
        newer.spend(rights(), "p1")
        assert [(one.used, one.revoked) for one in newer.good(20.0)] == [(1, False)]


def test_what_a_former_version_kept_is_still_under_its_grant(tmp_path):
    path = tmp_path / "old.sqlite"
    kept = {**rights().model_dump(mode="json", exclude={"issue", "reads"}), "verbs": ["mirror", "propose", "explain"]}
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        for statement in MIGRATIONS[0]:
            old.execute(statement)
        for name in ("0", "1"):  # of the second nothing was proposed
            old.execute("INSERT INTO grants VALUES (?, 'demo', 't1', 7, 5.0)", (name * 32,))
        row = ("p1", "0" * 32, "demo", "t1", "a" * 40, "b" * 40, json.dumps(kept), 6.0, 0, "refused")
        old.execute("INSERT INTO proposals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", row)
    with closing(Database(path)) as database:
        found = GrantStore(database)
        [only] = found.good(10.0)
        assert (only.rights.verbs, only.rights.issue) == (("mirror", "propose", "explain"), None)
        assert (only.rights.grant, only.rights.uses, only.by, only.used) == ("0" * 32, 2, "uid:7", 1)
        found.require(only.rights)


def test_the_file_holds_no_capability_and_is_the_brokers_own(store, tmp_path):
    store.spend(rights(), "p1")
    assert b"swc" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.slow
def test_a_store_that_cannot_be_written_is_told_and_spends_nothing(store, tmp_path):
    with closing(sqlite3.connect(tmp_path / "outbox.sqlite", isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(BrokerError, match="cannot be used"):
            store.spend(rights(), "p1")
        blocker.execute("ROLLBACK")
    assert store.get("0" * 32).used == 0
    store.spend(rights(), "p1")
