"""The follow-up's memory: what belongs together is written together, and a restart loses nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.errors import BrokerError
from broker.followup import ledger
from broker.followup.ledger import Ledger, Watched
from broker.wire import Comment, Event


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path)
    yield made
    made.close()


def event(task: str = "t1") -> Event:
    return Event(number=0, at=1.0, repository="demo", kind="check", task=task)


def test_numbers_grow_over_restarts_and_caps(tmp_path: Path, kept: Ledger) -> None:
    assert kept.page(0).last == 0
    assert [kept.publish(event()).number for _ in range(3)] == [1, 2, 3]
    kept._run("DELETE FROM events")
    again = Ledger(tmp_path)
    assert again.publish(event()).number == 4
    assert again.page(0).last == 4
    assert again.page(4).last == 4
    assert again.page(99).last == 4  # whoever asks for what never was sees that its numbers are another broker's
    again.close()


def test_the_oldest_events_go_and_pages_are_bounded(kept: Ledger) -> None:
    with kept.together():
        for number in range(ledger.MAX_EVENTS + 50):
            kept.publish(event(f"t{number}"))
    first = kept.page(0)
    assert len(first.events) == ledger.MAX_PAGE
    assert first.events[0].number == 51
    assert kept.page(first.last).events[0].number == first.last + 1


def test_what_is_not_finished_is_not_written(kept: Ledger) -> None:
    def breaks() -> None:
        with kept.together():
            kept.see("demo", {"note:1": 1.0})
            kept.publish(event())
            raise KeyError

    with pytest.raises(KeyError):
        breaks()
    assert not kept.is_seen("demo", "note:1")
    assert kept.page(0).events == ()


def test_forgotten_ids_leave_a_floor_behind(kept: Ledger) -> None:
    kept.see("demo", {"label:1": 0.0})
    kept.see("demo", {f"note:{number}": float(number) for number in range(ledger.MAX_SEEN + 10)})
    assert kept.floor("demo") == 9.0
    assert not kept.is_seen("demo", "note:9")
    assert kept.is_seen("demo", "note:10")
    assert kept.is_seen("demo", "label:1")
    assert kept.floor("other") is None
    kept.raise_floor("demo", 3.0)
    assert kept.floor("demo") == 9.0


def test_words_that_wait_are_bounded_and_come_once(kept: Ledger) -> None:
    said = {str(number): Comment(author="a", permitted=True, at=0, text=str(number)) for number in range(300)}
    kept.ask("demo", 7, said)
    kept.ask("demo", 7, said)
    assert [comment.text for comment in kept.pending("demo", 7)] == [str(n) for n in range(ledger.MAX_PENDING)]
    assert kept.pending("demo", 8) == ()
    kept.told("demo", 7)
    assert kept.pending("demo", 7) == ()


def test_repositories_are_kept_apart(kept: Ledger) -> None:
    kept.watch("one", Watched(7, "t", "h", 1.0, over=True))
    kept.started("one", 1, "t", "alice", 5.0)
    kept.set_marks("one", {"a": "1"})
    assert kept.over("two") == frozenset()
    assert kept.open_task("two", 1) is None
    assert kept.marks("two") == {}
    assert kept.watched("one", 7) == Watched(7, "t", "h", 1.0, over=True)


def test_a_memory_of_a_newer_broker_is_not_touched(tmp_path: Path) -> None:
    Ledger(tmp_path).close()
    with sqlite3.connect(tmp_path / "followup.sqlite") as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(BrokerError, match="newer broker"):
        Ledger(tmp_path)


def test_a_closed_memory_is_a_plain_error(tmp_path: Path) -> None:
    made = Ledger(tmp_path)
    made.close()
    with pytest.raises(BrokerError, match="cannot be used"):
        made.marks("demo")
