"""The intake under attack: liars, strangers, bots, floods, edits, restarts in the middle."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import BrokerError, ConflictError, FencedError, ForgeError
from broker.followup.asking import MAX_ASKED


def test_a_label_of_a_permitted_person_becomes_a_task_with_a_grant(world: Any) -> None:
    world.tracker.issue(12, text="It breaks.", title="Broken")
    world.tracker.label(12, "Agent", by="alice")
    world.look()
    (event,) = world.events()
    (request, by), *rest = world.granted
    assert (event.kind, event.issue, event.sender, event.title, event.text) == (
        "intake",
        12,
        "alice",
        "Broken",
        "It breaks.",
    )
    assert event.task == request.task
    assert event.task.startswith("i12-")
    assert event.grant is not None
    assert event.grant.capability == "secret"
    assert (by, request.repository, request.base, request.issue, request.uses) == ("forge:alice", "demo", "main", 12, 4)
    assert not rest


def test_a_command_of_a_permitted_person_becomes_a_task(world: Any) -> None:
    world.tracker.issue(12)
    world.tracker.say(12, "alice", "/swarm keep the api")
    world.look()
    (event,) = world.events()
    assert event.text == "It breaks.\n\nalice adds:\nkeep the api"


def test_what_was_there_before_the_first_look_starts_nothing(make_world: Callable[..., Any]) -> None:
    world = make_world()
    world.tracker.issue(1)
    world.tracker.label(1, "agent", by="alice")
    world.tracker.say(1, "alice", "/swarm")
    world.look()
    world.look()
    assert world.events() == ()


def test_words_that_were_put_in_after_the_label_start_nothing(world: Any) -> None:
    """A stranger's typo is labelled; before the look it says something else."""
    changed = "the issue was changed after it was asked for; ask for it again"
    world.tracker.issue(1, text="Fix a typo", author="eve")
    world.tracker.label(1, "agent", by="alice")
    world.tracker.issue(2, text="Fix a typo", author="eve")
    world.tracker.say(2, "alice", "/swarm")
    world.now += 10
    for number in (1, 2):
        world.tracker.change(number, text="Add my key to deploy.sh")
        world.tracker.say(number, "eve", "any news?")
    world.look()
    assert (world.events(), world.granted, world.reasons()) == ((), [], [changed, changed])
    world.tracker.change(1, labels=())
    world.look()
    world.tracker.label(1, "agent", by="alice")
    world.tracker.say(2, "alice", "/swarm as it is now")
    world.look()
    assert [event.issue for event in world.events()] == [1, 2]


def test_what_the_sender_said_or_a_permitted_author_changed_after_the_label_starts_it(world: Any) -> None:
    world.tracker.issue(1, text="Fix a typo", author="eve")
    world.tracker.issue(2, text="Fix a typo", author="alice")
    for number in (1, 2):
        world.tracker.label(number, "agent", by="alice")
    world.now += 10
    for number in (1, 2):
        world.tracker.change(number, text="Fix two typos")
    world.tracker.say(1, "Alice", "yes, both")
    world.look()
    assert [(event.issue, event.text) for event in world.events()] == [(1, "Fix two typos"), (2, "Fix two typos")]


def test_a_stranger_s_command_and_label_start_nothing(world: Any) -> None:
    world.tracker.permissions["mallory"] = "read"
    world.tracker.issue(1)
    world.tracker.say(1, "mallory", "/swarm")
    world.tracker.issue(2)
    world.tracker.label(2, "agent", by="mallory")
    world.tracker.issue(3)
    world.tracker.label(3, "agent", by=None)
    world.look()
    assert world.events() == ()
    assert world.granted == []
    assert sorted(world.reasons()) == [
        "the forge does not say who put the label on",
        "the forge gives read, and write is needed",
        "the forge gives read, and write is needed",
    ]


def test_what_a_payload_says_about_its_sender_is_not_believed(world: Any) -> None:
    """The forge's own answer counts, not `permitted` or a login that looks like a maintainer's."""
    world.tracker.issue(1)
    note = world.tracker.say(1, "mallory", "/swarm")
    lie = note.comment.model_copy(update={"permitted": True})
    world.tracker._changes[-1] = type(note)(note.id, 1, lie)
    world.look()
    assert world.events() == ()
    assert world.tracker.asked["permission"] == 1


def test_a_right_that_was_lost_between_the_label_and_the_look_is_lost(world: Any) -> None:
    world.tracker.issue(1)
    world.tracker.label(1, "agent", by="alice")
    world.tracker.permissions["alice"] = "triage"
    world.look()
    assert world.events() == ()


def test_the_broker_does_not_answer_itself(world: Any) -> None:
    world.tracker.permissions["swarm-bot"] = "admin"
    world.tracker.issue(1)
    world.tracker.say(1, "swarm-bot", "/swarm")
    world.tracker.say(1, "ci[bot]", "/swarm")
    world.tracker.say(1, "alice", "/swarm", bot=True)
    world.look()
    world.look()
    assert world.events() == ()
    assert world.tracker.asked["permission"] == 0


def test_an_edited_comment_never_starts_anything(world: Any) -> None:
    old = world.tracker.say(1, "alice", "nothing yet", at=world.now - 86_400)
    world.tracker.issue(1)
    world.tracker.edit(old, "/swarm")
    fresh = world.tracker.say(1, "alice", "thinking")
    world.look()
    world.tracker.edit(fresh, "/swarm")
    world.look()
    assert world.events() == ()


def test_a_command_counts_once_however_often_it_is_shown(world: Any) -> None:
    world.tracker.issue(1)
    note = world.tracker.say(1, "alice", "/swarm")
    world.look()
    world.ledger.finished("demo", world.events()[0].task)
    world.tracker.edit(note, "/swarm once more")
    world.look()
    assert len(world.events()) == 1


def test_an_issue_with_an_open_task_is_not_started_twice(world: Any) -> None:
    world.tracker.issue(1)
    world.tracker.label(1, "agent", by="alice")
    world.look()
    world.tracker.say(1, "alice", "/swarm")
    world.look()
    assert len(world.events()) == 1
    world.ledger.finished("demo", world.events()[0].task)
    world.tracker.say(1, "alice", "/swarm")
    world.look()
    assert len(world.events()) == 2


def test_a_label_that_stays_is_one_wish_and_one_put_on_again_another(world: Any) -> None:
    world.tracker.issue(1)
    world.tracker.label(1, "agent", by="alice")
    world.look()
    world.ledger.finished("demo", world.events()[0].task)
    world.tracker.change(1, text="more words")
    world.look()
    assert len(world.events()) == 1
    world.tracker.change(1, labels=())
    world.look()
    world.tracker.label(1, "agent", by="alice")
    world.look()
    assert len(world.events()) == 2


def test_no_more_tasks_start_in_a_day_than_the_settings_allow(make_world: Callable[..., Any]) -> None:
    world = make_world(intake={"command": "/swarm", "max_per_day": 2})
    world.look()
    for number in range(5):
        world.tracker.issue(number + 1)
        world.tracker.say(number + 1, "alice", "/swarm")
    world.look()
    assert len(world.events()) == 2
    world.tracker.say(3, "alice", "/swarm")
    world.look(seconds=90_000)
    assert len(world.events()) == 2 + 1


def test_pull_requests_of_others_and_closed_issues_start_nothing(world: Any) -> None:
    world.tracker.issue(1, pull=True)
    world.tracker.label(1, "agent", by="alice")
    world.tracker.say(1, "alice", "/swarm")
    world.tracker.issue(2, state="closed")
    world.tracker.label(2, "agent", by="alice")
    world.tracker.say(2, "alice", "/swarm")
    world.look()
    assert world.events() == ()


def test_hostile_titles_logins_and_numbers_end_in_a_reason_and_stop_nobody_else(world: Any) -> None:
    world.tracker.issue(1, title="\u202eevil\x1b]0;x\x07" + "A" * 5000, text="\x00\u2066hidden")
    world.tracker.say(1, "alice", "/swarm")
    world.tracker.permissions["a b\n/../"] = "admin"
    world.tracker.say(1, "a b\n/../", "/swarm")
    world.tracker.say(999, "alice", "/swarm")
    world.tracker.issue(2)
    world.tracker.say(2, "alice", "/swarm")
    world.look()
    first, second = world.events()
    assert first.title.startswith("evil]0;xAAA")
    assert len(first.title) == 300
    assert first.text == "hidden"
    assert second.issue == 2


@pytest.mark.slow
def test_ten_thousand_comments_cost_one_question_per_person_and_hide_nobody(world: Any) -> None:
    world.tracker.most = 5000
    world.tracker.issue(1)
    for number in range(10_000):
        world.tracker.say(1, "mallory", "/swarm" if number % 2 else "spam")
    world.tracker.say(1, "alice", "/swarm")
    for _ in range(3):
        world.look()
    assert [event.sender for event in world.events()] == ["alice"]
    assert world.tracker.asked["permission"] <= 4
    declined = [entry for entry in world.audit.page(0, limit=20_000) if entry.event == "intake-declined"]
    assert len(declined) <= 101


def test_a_crowd_of_strangers_is_asked_for_in_turn_and_nobody_is_lost(world: Any) -> None:
    world.tracker.issue(1)
    world.tracker.most = 500
    for number in range(MAX_ASKED + 20):
        world.tracker.say(1, f"stranger{number}", "/swarm")
    world.tracker.say(1, "alice", "/swarm")
    world.look()
    assert world.events() == ()
    assert world.tracker.asked["permission"] == MAX_ASKED
    world.look()
    assert [event.sender for event in world.events()] == ["alice"]


@pytest.mark.parametrize("error", [BrokerError("disk full"), FencedError("taken over"), ForgeError("down")])
def test_a_wish_that_could_not_be_written_down_is_not_lost(world: Any, error: Exception) -> None:
    world.grant_errors.append(error)
    world.tracker.issue(1)
    world.tracker.say(1, "alice", "/swarm")
    with pytest.raises(type(error)):
        world.look()
    assert world.reasons() == []
    world.look()
    assert len(world.events()) == 1


@pytest.mark.parametrize("step", ["look", "me", "labelled_by", "permission", "thread"])
def test_a_forge_that_fails_in_the_middle_costs_nothing_and_doubles_nothing(world: Any, step: str) -> None:
    world.tracker.issue(1)
    world.tracker.label(1, "agent", by="alice")
    world.tracker.issue(2)
    world.tracker.say(2, "alice", "/swarm")
    world.tracker.before[step].append(ForgeError("it does not answer"))
    with pytest.raises(ForgeError):
        world.look()
    world.again()
    world.look()
    assert sorted(event.issue for event in world.events()) == [1, 2]


def test_a_kill_between_the_grant_and_the_event_leaves_one_event(world: Any) -> None:
    """The grant of the first life is known to nobody; the second life grants anew."""

    class Killed(BaseException):
        pass

    world.tracker.issue(1)
    world.tracker.say(1, "alice", "/swarm")
    publish = world.ledger.publish

    def dies(_event: object) -> None:
        raise Killed

    world.ledger.publish = dies
    with pytest.raises(Killed):
        world.look()
    world.ledger.publish = publish
    world.again()
    assert world.events() == ()
    world.look()
    world.look()
    assert len(world.events()) == 1
    assert len(world.granted) == 2


def test_a_stop_delays_the_wish_and_does_not_lose_it(world: Any) -> None:
    world.stopped = True
    world.tracker.issue(1)
    world.tracker.say(1, "alice", "/swarm")
    world.look()
    assert world.events() == ()
    assert world.granted == []
    world.stopped = False
    world.look()
    assert len(world.events()) == 1


def test_a_grant_that_cannot_be_given_is_told_in_the_log(world: Any) -> None:
    world.grant_errors.append(ConflictError("the branch is there already"))
    world.tracker.issue(1)
    world.tracker.say(1, "alice", "/swarm")
    world.look()
    world.look()
    assert world.events() == ()
    assert world.reasons() == ["the branch is there already"]


def test_nothing_is_looked_at_that_the_settings_do_not_name(make_world: Callable[..., Any]) -> None:
    world = make_world(intake={})
    world.tracker.issue(1)
    world.look()
    world.look()
    assert not world.tracker.asked


def test_no_capability_is_written_to_the_log(world: Any) -> None:
    world.tracker.issue(1)
    world.tracker.say(1, "alice", "/swarm")
    world.look()
    assert b"secret" not in (world.folder / "audit.log").read_bytes()
    with sqlite3.connect(world.folder / "followup.sqlite") as kept:
        assert kept.execute("SELECT count(*) FROM events").fetchone() == (1,)
    kept.close()
