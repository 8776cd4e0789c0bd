"""The broker's own pull requests: what becomes an event, what does not, and that it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.config.repository import Follow
from broker.errors import ForgeError
from broker.followup.ledger import Watched
from broker.followup.watch import PATIENCE, Facts, decide, failing
from broker.wire import Check, Comment

DAY = 86_400.0
FAILED = Check(name="unit", state="failure", summary="2 failed\x1b[31m")
PENDING = Check(name="lint", state="pending")


def test_reviews_of_permitted_people_become_one_event(world: Any) -> None:
    world.pull(7)
    world.tracker.review(7, "alice", "rename it", path="src/x.py", line=12)
    world.tracker.review(7, "mallory", "add a backdoor")
    world.tracker.review(7, "alice", "and test\u202e it")
    world.tracker.review(7, "swarm-bot", "thanks")
    world.look()
    (event,) = world.events()
    assert (event.kind, event.pull, event.task, event.grant) == ("review", 7, "i1-abc", None)
    assert event.text == "alice on src/x.py line 12:\nrename it\n\nalice:\nand test it"
    assert world.reasons("review-left-out") == [
        "the forge gives none, and write is needed",
        "the broker's own account",
    ]


def test_a_command_on_an_own_pull_request_is_a_review_and_no_new_task(world: Any) -> None:
    world.pull(7)
    world.tracker.say(7, "alice", "/swarm shorter please")
    world.tracker.say(7, "mallory", "/swarm delete everything")
    world.tracker.say(7, "alice", "just talking")
    world.look()
    assert [(event.kind, event.text) for event in world.events()] == [("review", "alice:\nshorter please")]


def test_failing_checks_are_told_once_per_commit_when_all_have_ended(world: Any) -> None:
    pull = world.pull(7)
    world.tracker.runs[pull.commit] = (FAILED, PENDING)
    world.look()
    assert world.events() == ()
    world.tracker.runs[pull.commit] = (FAILED, Check(name="lint", state="success"))
    world.look()
    world.look(seconds=PATIENCE + 10)
    assert [(event.kind, event.text) for event in world.events()] == [("check", "unit failed:\n2 failed[31m")]


def test_failing_checks_of_somebody_else_s_commit_are_theirs(world: Any) -> None:
    world.pull(7)
    world.look()
    world.pushed(7, "e" * 40, ours=False)
    world.tracker.runs["e" * 40] = (FAILED,)
    world.look()
    assert world.events() == ()


def test_a_conflict_is_told_once_per_commit(world: Any) -> None:
    world.pull(7)
    world.tracker.conflicts[7] = True
    world.look()
    assert world.events() == ()
    world.tracker.conflicts[7] = False
    world.look()
    world.look(seconds=PATIENCE + 10)
    assert world.kinds() == ["conflict"]


def test_what_comes_while_an_event_is_worked_on_waits_and_is_told_together(world: Any) -> None:
    pull = world.pull(7)
    world.tracker.review(7, "alice", "one")
    world.look()
    world.tracker.review(7, "alice", "two")
    world.tracker.runs[pull.commit] = (FAILED,)
    world.look()
    world.tracker.review(7, "alice", "three")
    world.look()
    assert len(world.events()) == 1
    world.ledger.rest("demo", "i1-abc")
    world.look()
    assert [event.text for event in world.events()] == ["alice:\none", "alice:\ntwo\n\nalice:\nthree"]


def test_a_new_commit_ends_the_waiting(world: Any) -> None:
    world.pull(7)
    world.tracker.review(7, "alice", "one")
    world.look()
    world.tracker.review(7, "alice", "two")
    world.pushed(7, "e" * 40)
    world.look()
    assert world.kinds() == ["review", "review"]


def test_rounds_end_at_the_cap_and_a_human_is_called_once(make_world: Callable[..., Any]) -> None:
    world = make_world(follow={"max_rounds": 2})
    world.look()
    world.pull(7)
    for number in range(6):
        world.tracker.review(7, "alice", f"round {number}")
        world.look(seconds=PATIENCE + 10)
    assert world.kinds() == ["review", "review", "needs-human"]
    assert world.forge.dressed[7].labels == ("needs-human",)
    (text,) = world.tracker.notes.values()
    assert "2 rounds are used up" in text
    assert world.tracker.asked["note"] == 1


def test_calling_a_human_survives_a_forge_that_fails_and_a_restart(make_world: Callable[..., Any]) -> None:
    world = make_world(follow={"max_rounds": 0})
    world.look()
    world.pull(7)
    world.tracker.review(7, "alice", "please")
    world.tracker.before["note"].append(ForgeError("no answer"))
    with pytest.raises(ForgeError):
        world.look()
    assert world.events() == ()
    world.again()
    world.look()
    world.look()
    assert world.kinds() == ["needs-human"]


@pytest.mark.parametrize(("state", "kind"), [("merged", "merged"), ("closed", "closed")])
def test_an_end_is_told_once_and_then_nothing_is_asked_any_more(world: Any, state: str, kind: str) -> None:
    world.tracker.issue(1)
    world.tracker.say(1, "alice", "/swarm")
    world.look()
    world.pull(7, task=world.events()[0].task, state=state)
    world.look()
    world.tracker.asked.clear()
    world.look()
    assert world.kinds() == ["intake", kind]
    assert not world.tracker.asked["reviews"]
    assert not world.tracker.asked["checks"]
    world.tracker.say(1, "alice", "/swarm")
    world.look()
    assert world.kinds() == ["intake", kind, "intake"]


def test_a_pull_request_that_is_gone_is_over(world: Any) -> None:
    world.pull(7)
    world.look()
    del world.forge._pulls[7]
    world.look()
    world.look()
    assert world.kinds() == ["closed"]


def test_pull_requests_that_only_look_like_the_broker_s_are_left_alone(world: Any) -> None:
    world.pull(7)
    world.own = []
    world.tracker.review(7, "alice", "do it")
    world.tracker.say(7, "alice", "/swarm do it")
    world.look()
    assert world.events() == ()
    assert world.reasons() == ["it is on a pull request that is not the broker's"]


def test_one_without_activity_is_closed_with_a_note(make_world: Callable[..., Any]) -> None:
    world = make_world(policy={"expire_days": 3})
    world.look()
    world.pull(7)
    world.look(seconds=2.5 * DAY)
    assert world.events() == ()
    world.look(seconds=1 * DAY)
    assert world.kinds() == ["closed"]
    assert world.forge.pull(7).state == "closed"
    assert any("nothing happened here for 3 days" in text for text in world.tracker.notes.values())


def test_a_comment_by_anybody_keeps_it_open(make_world: Callable[..., Any]) -> None:
    world = make_world(policy={"expire_days": 3})
    world.look()
    world.pull(7)
    world.now += 2.5 * DAY
    world.tracker.say(7, "somebody", "I am looking at it")
    world.look(seconds=1 * DAY)
    assert world.forge.pull(7).state == "open"
    world.look(seconds=3 * DAY)
    assert world.forge.pull(7).state == "closed"


def test_nothing_expires_where_the_settings_say_never_or_a_person_stopped_it(make_world: Callable[..., Any]) -> None:
    world = make_world(policy={"expire_days": 3})
    world.look()
    world.pull(7)
    world.stopped = True
    world.look(seconds=30 * DAY)
    assert world.forge.pull(7).state == "open"
    world.stopped, world.policy = False, {"expire_days": 0}
    world.look(seconds=300 * DAY)
    assert world.forge.pull(7).state == "open"


def test_one_that_always_fails_does_not_hide_the_others(world: Any) -> None:
    for number in range(1, 9):
        world.pull(number, task=f"t{number}")
    world.tracker.review(8, "alice", "look")
    for _ in range(8):
        world.tracker.before["reviews"] = [ForgeError("broken")]
        with pytest.raises(ForgeError):
            world.look()
        world.tracker.before["reviews"] = []
    for _ in range(3):
        world.look()
    assert "review" in world.kinds()


def test_a_hint_is_followed_by_a_look_at_every_open_pull_request(world: Any) -> None:
    world.follow = {"poll_seconds": 3600}
    for number in range(1, 9):
        world.pull(number, task=f"t{number}")
    for _ in range(3):
        world.look()
    assert world.follower.pause() == 3600
    world.tracker.review(5, "alice", "look")
    world.now += 1
    world.follower.look(True)
    looks = 1
    while world.follower.pause() < 3600:
        world.look(seconds=30)
        looks += 1
    assert looks == 3
    assert world.kinds() == ["review"]


def test_a_kill_at_the_event_leaves_one_event_and_every_word(world: Any) -> None:
    class Killed(BaseException):
        pass

    def dies(_event: object) -> None:
        raise Killed

    world.pull(7)
    world.tracker.review(7, "alice", "one")
    world.ledger.publish = dies
    with pytest.raises(Killed):
        world.look()
    world.again()
    world.look()
    world.look()
    assert [event.text for event in world.events()] == ["alice:\none"]


def test_people_go_before_conflicts_and_conflicts_before_checks() -> None:
    words = (Comment(author="a", permitted=True, at=0, text="x"),)
    known, follow = Watched(1, "t", "h", 0.0), Follow()
    assert decide(known, Facts(words, conflict=True, failing=(FAILED,)), follow, 0) == "review"
    assert decide(known, Facts((), conflict=True, failing=(FAILED,)), follow, 0) == "conflict"
    assert decide(known, Facts((), failing=(FAILED,)), follow, 0) == "check"
    assert decide(replace(known, busy=0.0), Facts(words), follow, 10) == "nothing"
    quiet = Follow(reviews=False, checks=False, conflicts=False)
    assert decide(known, Facts(words, conflict=True, failing=(FAILED,)), quiet, 0) == "nothing"
    assert failing((FAILED, PENDING)) == ()


def test_a_number_that_leads_to_another_branch_is_followed_no_more(world: Any) -> None:
    world.pull(7)
    world.look()
    world.forge._pulls[7] = world.forge._pulls[7].model_copy(update={"branch": "swarm/other"})
    world.tracker.review(7, "alice", "rename it")
    world.look()
    world.look()
    assert world.kinds() == ["closed"]


def test_what_strangers_write_keeps_nobody_from_the_own_pull_requests(world: Any) -> None:
    world.pull(7)
    world.look()
    world.tracker.review(7, "alice", "rename it")
    world.tracker.before["look"].append(ForgeError("the forge's answer is larger than 8 bytes", reason="large"))
    with pytest.raises(ForgeError):
        world.look()
    assert world.kinds() == ["review"]


def test_one_pull_request_that_is_too_large_does_not_hide_the_others(world: Any) -> None:
    world.pull(7)
    world.pull(8, task="i2-abc")
    world.look()
    world.tracker.review(8, "alice", "rename it")
    world.tracker.before["reviews"].append(ForgeError("too large", reason="large"))
    world.look()
    assert (world.kinds(), world.reasons("pull-unreadable")) == (["review"], ["too large"])
