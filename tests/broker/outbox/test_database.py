"""One outbox, two brokers: the newer acts, the other is told and can do nothing any more."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker.errors import BrokerError, ConfigError, FencedError
from broker.outbox.database import Database
from broker.outbox.schema import MIGRATIONS
from broker.outbox.steps import Steps


@pytest.fixture
def opened(tmp_path):
    databases = []

    def again():
        databases.append(Database(tmp_path / "outbox.sqlite"))
        return databases[-1]

    yield again
    for database in databases:
        database.close()


def test_each_process_takes_the_next_epoch(opened):
    assert [opened().epoch for _ in range(3)] == [1, 2, 3]


def test_who_opened_first_can_write_no_more_and_reads_what_the_other_wrote(opened):
    first, second = opened(), opened()
    Steps(second).begin("p", "branch")
    with pytest.raises(FencedError, match=r"epoch 2, ours is 1"):
        Steps(first).begin("p", "pull-request")
    with pytest.raises(FencedError), first.writing():
        pytest.fail("a transaction was opened")
    assert Steps(first).begun("p") == ("branch",)


def test_a_write_that_was_begun_before_the_other_came_is_not_lost(opened, tmp_path):
    first = opened()
    with first.writing():
        first.write("INSERT INTO steps (proposal, name, begun) VALUES ('p', 'branch', 1)")
    second = opened()
    assert Steps(second).begun("p") == ("branch",)


def test_a_failed_transaction_leaves_nothing(opened):
    database = opened()

    def fail() -> None:
        with database.writing():
            Steps(database).begin("p", "branch")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert Steps(database).begun("p") == ()


def test_many_threads_write_one_after_another(opened):
    steps = Steps(opened())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: steps.begin(f"p{number % 4}", f"s{number}"), range(40)))
    assert sum(len(steps.begun(f"p{number}")) for number in range(4)) == 40


def test_a_step_that_is_begun_again_keeps_its_row_and_its_result_is_the_last(opened):
    steps = Steps(opened(), clock=iter([1.0, 2.0, 3.0, 4.0]).__next__)
    steps.begin("p", "branch")
    assert steps.results("p") == {}
    steps.begin("p", "branch")
    steps.end("p", "branch", "one")
    steps.end("p", "branch", "two")
    assert (steps.begun("p"), steps.results("p")) == (("branch",), {"branch": "two"})


def test_a_full_disk_is_told_in_words(opened):
    database = opened()
    database.rows("PRAGMA query_only=1")
    with pytest.raises(BrokerError, match="the outbox cannot be used"):
        database.write("DELETE FROM steps")


def test_an_outbox_of_a_newer_broker_is_not_touched(tmp_path):
    path = tmp_path / "outbox.sqlite"
    Database(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    raw.close()
    with pytest.raises(ConfigError, match="newer broker"):
        Database(path)


def test_a_damaged_outbox_is_told_with_its_place(tmp_path):
    path = tmp_path / "outbox.sqlite"
    path.write_bytes(b"this is no database at all, only words\n" * 100)
    with pytest.raises(ConfigError, match=r"outbox\.sqlite cannot be opened: file is not a database"):
        Database(path)
