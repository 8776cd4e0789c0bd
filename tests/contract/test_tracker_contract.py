"""What every tracker does, the pretend one included, and a whole follow-up on each of them.

The remote ones run against stateful stand-ins over real sockets. A new kind joins by one more entry in KINDS.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.audit import Audit
from broker.config.repository import Repository
from broker.errors import AbsentError
from broker.followup.followup import Follower
from broker.followup.ledger import Ledger
from broker.followup.parts import Followed
from broker.followup.status import Place, Sticky
from broker.forge.base import Forge, Tracker
from broker.outbox.rows import Own
from broker.testing import PretendForge, PretendTracker
from broker.wire import Event, Grant, GrantRequest, PullRequest
from broker.words.notes import StatusPage, status_marker
from tests.forges.remote import REMOTE_KINDS, Make, Remote, say
from tests.forges.remote import label as put_label

KINDS = ("pretend", *REMOTE_KINDS)
MARKER = status_marker("t1")


class Bench:
    """A tracker, and people who do something on its forge: ann and bob may write, eve may read."""

    tracker: Tracker
    forge: Forge

    def issue(self, title: str = "Broken", body: str = "It breaks.", author: str = "eve") -> int:
        raise NotImplementedError

    def label(self, number: int, label: str, by: str) -> None:
        raise NotImplementedError

    def say(self, number: int, text: str, author: str, *, pull: bool = False) -> None:
        raise NotImplementedError

    def opened(self) -> PullRequest:
        """A pull request of the broker's own."""
        raise NotImplementedError

    def said(self, number: int) -> list[str]:
        """All comments on an issue."""
        return [comment.text for comment in self.tracker.thread(number).comments]


class PretendBench(Bench):
    """The one in memory."""

    def __init__(self, folder: Path) -> None:
        self.tracker = self.pretend = PretendTracker()
        self.pretend.permissions = {"ann": "admin", "bob": "write", "eve": "read"}
        self.forge = PretendForge("demo", folder / "pretend.git")

    def issue(self, title: str = "Broken", body: str = "It breaks.", author: str = "eve") -> int:
        return self.pretend.issue(len(self.pretend.threads) + 1, body, author, title=title).number

    def label(self, number: int, label: str, by: str) -> None:
        self.pretend.label(number, label, by)

    def say(self, number: int, text: str, author: str, *, pull: bool = False) -> None:
        self.pretend.say(number, author, text)

    def opened(self) -> PullRequest:
        number = self.issue()
        self.pretend.change(number, pull=True)
        values = {"title": "T", "body": "B", "branch": "swarm/t1", "base": "main", "base_commit": "a" * 40}
        told = {"commit": "b" * 40, "task": "t1", "proposal": "p", "created": time.time(), "repository": "demo"}
        pull = PullRequest.model_validate({"number": number, **values, **told})
        assert isinstance(self.forge, PretendForge)
        self.forge._pulls[number] = pull
        return pull


class RemoteBench(Bench):
    """A stand-in's project."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.tracker, self.forge, self.project = remote.tracker, remote.forge, remote.project

    def issue(self, title: str = "Broken", body: str = "It breaks.", author: str = "eve") -> int:
        one: dict[str, Any] = self.project.issue(title, body, author)
        return int(one.get("number") or one["iid"])

    def label(self, number: int, label: str, by: str) -> None:
        put_label(self.remote.kind, self.project, number, label, by)

    def say(self, number: int, text: str, author: str, *, pull: bool = False) -> None:
        if pull:
            self.remote.say(number, text, author)
        else:
            say(self.remote.kind, self.project, number, text, author)

    def opened(self) -> PullRequest:
        return self.forge.pull(self.remote.opened())


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path, make_remote: Make) -> Bench:
    if request.param == "pretend":
        return PretendBench(tmp_path)
    return RemoteBench(make_remote(request.param))


# --- the protocol


def test_the_first_look_gives_marks_and_nothing_else(bench: Bench) -> None:
    number = bench.issue()
    bench.say(number, "/swarm", "ann")
    seen = bench.tracker.look({})
    assert (tuple(seen.threads), tuple(seen.notes)) == ((), ())
    assert seen.marks
    assert all(isinstance(value, str) for value in seen.marks.values())


def test_a_look_brings_every_item_at_least_once_and_marks_go_on(bench: Bench) -> None:
    marks = bench.tracker.look({}).marks
    numbers = {bench.issue(f"i{count}") for count in range(30)}
    for number in sorted(numbers):
        bench.say(number, f"word {number}", "bob")
    threads, words = set(), set()
    for _ in range(4):
        seen = bench.tracker.look(marks)
        threads |= {thread.number for thread in seen.threads}
        words |= {(note.number, note.comment.author, note.comment.text) for note in seen.notes}
        marks = seen.marks
    assert numbers <= threads
    assert {(number, "bob", f"word {number}") for number in numbers} <= words


def test_a_comment_keeps_its_id_and_nothing_in_it_is_permitted(bench: Bench) -> None:
    marks = bench.tracker.look({}).marks
    number = bench.issue()
    bench.say(number, "one", "ann")
    bench.say(number, "two", "ann")
    first, second = bench.tracker.look(marks).notes, bench.tracker.look(marks).notes
    assert [note.id for note in first] == [note.id for note in second]
    assert len({note.id for note in first}) == 2
    assert not any(note.comment.permitted for note in first)


def test_a_thread_is_told_whole(bench: Bench) -> None:
    number = bench.issue("Broken", "It breaks.", "eve")
    bench.label(number, "agent", "ann")
    bench.say(number, "I see it too", "bob")
    thread = bench.tracker.thread(number)
    assert (thread.number, thread.title, thread.text, thread.author) == (number, "Broken", "It breaks.", "eve")
    assert (thread.state, thread.labels, thread.pull) == ("open", ("agent",), False)
    assert [(one.author, one.text, one.permitted) for one in thread.comments] == [("bob", "I see it too", False)]


def test_an_unknown_thread_is_absent(bench: Bench) -> None:
    with pytest.raises(AbsentError):
        bench.tracker.thread(4711)


def test_the_last_who_labelled_is_told(bench: Bench) -> None:
    number = bench.issue()
    assert bench.tracker.labelled_by(number, "agent") is None
    bench.label(number, "agent", "bob")
    told = bench.tracker.labelled_by(number, "agent")
    assert told.by == "bob"
    assert abs(told.at - bench.tracker.thread(number).updated) < 5
    assert bench.tracker.labelled_by(number, "bug") is None


def test_permissions_are_the_forge_s_word_and_a_stranger_has_none(bench: Bench) -> None:
    assert bench.tracker.permission("ann") in {"admin", "maintain", "write"}  # Gitea tells no more to who is no admin
    assert bench.tracker.permission("bob") == "write"
    assert bench.tracker.permission("eve") in {"read", "none"}
    assert bench.tracker.permission("nobody-at-all") == "none"


def test_the_account_of_the_broker_is_known(bench: Bench) -> None:
    assert bench.tracker.me() == "swarm-bot"


def test_one_comment_is_written_and_rewritten_and_nobody_else_s_is_touched(bench: Bench) -> None:
    number = bench.issue()
    bench.say(number, f"mine\n{MARKER}", "eve")
    bench.tracker.note(number, MARKER, f"first\n{MARKER}")
    bench.tracker.note(number, MARKER, f"second\n{MARKER}")
    said = bench.said(number)
    assert sum("mine" in text for text in said) == 1
    assert any("second" in text for text in said)
    if not isinstance(bench, PretendBench):
        assert not any("first" in text for text in said)
        assert len(said) == 2


def test_a_pull_request_has_no_reviews_and_no_checks_of_others_at_first(bench: Bench) -> None:
    pull = bench.opened()
    assert bench.tracker.reviews(pull.number) == ()
    assert bench.tracker.checks(pull.commit) == ()
    assert bench.tracker.mergeable(pull.number) in {True, None}


# --- a whole follow-up


class World:
    """A repository that is followed for real; only the grants are the test's."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.own: tuple[Own, ...] = ()
        self.granted: list[str] = []
        self.ledger = Ledger(folder)
        self.audit = Audit(folder / "audit.log")
        values = {"forge": "local", "path": "/nowhere", "intake": {"label": "agent", "command": "/swarm"}}
        settings = Repository.model_validate(values)
        self.followed = Followed(
            name="demo",
            forge=bench.forge,
            tracker=bench.tracker,
            settings=lambda: settings,
            own=lambda: self.own,
            grant=self.grant,
            running=lambda: None,
            newest=lambda: None,
            tidy=lambda: None,
            ledger=self.ledger,
            audit=self.audit,
            clock=time.time,
        )
        self.follower = Follower(self.followed)

    def grant(self, request: GrantRequest, by: str) -> Grant:
        self.granted.append(by)
        return Grant(
            capability="c", repository="demo", base="main", base_commit="a" * 40, branch="swarm/x", expires=time.time()
        )

    def look(self) -> tuple[Event, ...]:
        self.follower.look()
        self.follower.look()
        return self.ledger.page(0).events

    def keep(self, pull: PullRequest) -> None:
        """The broker's own record of a pull request."""
        told = {"branch": pull.branch, "base": pull.base, "grant": "g", "rounds": 0, "at": time.time()}
        self.own = (Own(number=pull.number, task="t1", commits=frozenset({pull.commit}), **told),)


@pytest.fixture
def world(bench: Bench, tmp_path: Path) -> Iterator[World]:
    (tmp_path / "state").mkdir()
    made = World(bench, tmp_path / "state")
    made.look()
    yield made
    made.ledger.close()
    made.audit.close()


def test_labels_and_commands_of_permitted_people_alone_become_tasks(world: World) -> None:
    first, second, third, fourth = (world.bench.issue(f"i{count}") for count in range(4))
    world.bench.label(first, "agent", "bob")
    world.bench.say(second, "/swarm be quick", "ann")
    world.bench.label(third, "agent", "eve")
    world.bench.say(fourth, "/swarm", "eve")
    world.bench.say(fourth, "> /swarm\n\nno", "ann")
    events = world.look()
    assert {(event.kind, event.issue, event.sender) for event in events} == {
        ("intake", first, "bob"),
        ("intake", second, "ann"),
    }
    assert sorted(world.granted) == ["forge:ann", "forge:bob"]
    assert len(world.look()) == 2


def test_a_command_on_the_broker_s_own_pull_request_goes_on_with_it(world: World) -> None:
    pull = world.bench.opened()
    world.keep(pull)
    world.look()
    world.bench.say(pull.number, "/swarm shorter", "bob", pull=True)
    world.bench.say(pull.number, "/swarm longer", "eve", pull=True)
    events = world.look()
    assert [(event.kind, event.pull, event.text) for event in events] == [("review", pull.number, "bob:\nshorter")]


def test_the_status_comment_is_written_where_the_task_is_and_starts_nothing(world: World) -> None:
    number = world.bench.issue()
    world.look()
    sticky = Sticky(world.followed)
    sticky.say(Place(number), StatusPage(task="t1", state="working", text="/swarm\n@ann"))
    sticky.say(Place(number), StatusPage(task="t1", state="delivered"))
    assert any("is delivered" in text for text in world.bench.said(number))
    assert world.look() == ()


def test_a_closed_pull_request_is_over(world: World) -> None:
    pull = world.bench.opened()
    world.keep(pull)
    world.look()
    world.bench.forge.close(pull.number)
    assert [event.kind for event in world.look()] == ["closed"]
