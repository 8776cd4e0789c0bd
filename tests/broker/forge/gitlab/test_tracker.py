"""Conversations on GitLab: numbered apart, what is confidential left out, permissions asked of the forge."""

from __future__ import annotations

import pytest

from broker.errors import AbsentError
from broker.forge.gitlab.reading import mergeable
from tests.forges.remote import Make, Remote
from tests.forges.stand_in import Fault


@pytest.fixture
def here(make_remote: Make) -> Remote:
    return make_remote("gitlab")


def test_an_issue_and_a_merge_request_of_one_number_are_told_apart(here: Remote):
    here.opened()
    here.project.issue("the issue", "words")
    here.project.say("issues", 1, "on the issue")
    here.project.say("merge_requests", 1, "on the merge request")
    issue, merge = here.tracker.thread(1), here.tracker.thread(1, pull=True)
    assert (issue.title, issue.pull, issue.comments[0].text) == ("the issue", False, "on the issue")
    assert (merge.title, merge.pull, merge.comments[0].text) == ("Draft: T", True, "on the merge request")
    seen = here.tracker.look({"issues": "1", "merges": "1"})
    assert {(note.number, note.pull, note.comment.text) for note in seen.notes} == {
        (1, False, "on the issue"),
        (1, True, "on the merge request"),
    }
    assert {(thread.number, thread.pull) for thread in seen.threads} == {(1, False), (1, True)}


def test_the_one_comment_of_an_issue_is_not_that_of_the_merge_request(here: Remote):
    here.opened()
    here.project.issue("the issue", "words")
    on_issue = here.tracker.note(1, "<!-- m -->", "a <!-- m -->")
    on_merge = here.tracker.note(1, "<!-- m -->", "b <!-- m -->", pull=True)
    assert ("/issues/1#" in on_issue, "/merge_requests/1#" in on_merge) == (True, True)
    here.tracker.note(1, "<!-- m -->", "c <!-- m -->")
    assert [note["body"] for note in here.project.notes["issues", 1]] == ["c <!-- m -->"]
    assert here.comments(1) == ["b <!-- m -->"]


def test_what_is_confidential_or_internal_is_not_read(here: Remote):
    here.project.issue("secret", "words")["confidential"] = True
    here.project.issue("open", "words")
    here.project.say("issues", 2, "hidden", internal=True)
    here.project.say("issues", 2, "hidden too", confidential=True)
    here.project.say("issues", 2, "added ~bug label", system=True)
    here.project.say("issues", 2, "seen")
    with pytest.raises(AbsentError):
        here.tracker.thread(1)
    assert [one.text for one in here.tracker.thread(2).comments] == ["seen"]
    seen = here.tracker.look({"issues": "1", "merges": "1"})
    assert [thread.title for thread in seen.threads] == ["open"]
    assert [note.comment.text for note in seen.notes] == ["seen"]


def test_the_first_look_starts_nothing_and_the_next_finds_what_came(here: Remote):
    here.project.issue("old", "words")["updated_at"] = "2020-01-01T00:00:00Z"
    first = here.tracker.look({})
    assert (first.threads, first.notes) == ((), ())
    assert first.marks
    here.project.issue("new", "words")
    second = here.tracker.look(first.marks)
    assert [thread.title for thread in second.threads] == ["new"]
    again = here.tracker.look(second.marks)
    assert {thread.title for thread in again.threads} <= {"new"}


def test_more_than_one_look_fetches_is_found_by_the_looks_after_it(here: Remote):
    """Many changes at once: the marks stay behind what was left out."""
    for number in range(1, 260):
        issue = here.project.issue(f"i{number}", "")
        issue["updated_at"] = f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z"
    marks, found = {"issues": "1767225000", "merges": "1767225000"}, set()
    for _ in range(8):
        seen = here.tracker.look(marks)
        found |= {thread.title for thread in seen.threads}
        marks = seen.marks
    assert found == {f"i{number}" for number in range(1, 260)}


def test_who_labelled_is_the_last_who_put_it_on(here: Remote):
    here.project.issue("t", "w")
    events = here.project.label_events.setdefault(("issues", 1), [])

    def event(action: str, name: str, label: str = "agent") -> None:
        events.append({"action": action, "label": {"name": label}, "user": {"username": name}})

    assert here.tracker.labelled_by(1, "agent") is None
    event("add", "eve")
    event("remove", "ann")
    assert here.tracker.labelled_by(1, "agent") is None
    event("add", "ann")
    event("add", "eve", "other")
    assert here.tracker.labelled_by(1, "agent").by == "ann"


def test_a_label_that_is_gone_from_its_event_names_nobody(here: Remote):
    here.project.issue("t", "w")
    here.project.label_events["issues", 1] = [{"action": "add", "label": None, "user": {"username": "eve"}}]
    assert here.tracker.labelled_by(1, "agent") is None


@pytest.mark.parametrize(
    ("level", "permission"),
    [
        *[(0, "none"), (5, "none"), (10, "read"), (15, "triage"), (20, "triage"), (30, "write"), (40, "maintain")],
        *[(50, "admin"), (60, "admin"), ("50", "none"), (None, "none"), (True, "none")],
    ],
)
def test_an_access_level_is_a_permission(here: Remote, level, permission):
    here.project.levels[21] = level
    assert here.tracker.permission("ann") == permission


def test_who_is_no_member_blocked_or_waiting_may_nothing(here: Remote):
    assert here.tracker.permission("nobody") == "none"
    assert here.tracker.permission("ANN") == "maintain", "logins are compared without case"
    del here.project.levels[23]
    assert here.tracker.permission("eve") == "none"
    here.project.faults.append(Fault("GET", "/members/", 200, {"access_level": 50, "membership_state": "awaiting"}))
    assert here.tracker.permission("ann") == "none"
    here.project.faults.append(Fault("GET", "/members/", 200, {"access_level": 50, "state": "blocked"}))
    assert here.tracker.permission("ann") == "none"


@pytest.mark.parametrize(
    "login", ["../../users/1", "a b", "", "ann%2f", "x?y=z", "@ann", "..", "b\u043eb", "\u212aate"]
)
def test_an_odd_login_is_nobody(here: Remote, login):
    assert here.tracker.permission(login) == "none"


def test_checks_are_those_of_others(here: Remote):
    states = {"ci": "failed", "lint": "success", "slow": "running", "maybe": "failed", "held": "manual"}
    here.project.statuses["a" * 40] = [
        {"name": name, "status": state, "allow_failure": name == "maybe", "target_url": "javascript:alert(1)"}
        for name, state in {**states, "agent-swarm/broker": "failed"}.items()
    ]
    checks = {one.name: one.state for one in here.tracker.checks("a" * 40)}
    assert checks == {"ci": "failure", "lint": "success", "slow": "pending", "maybe": "neutral", "held": "neutral"}
    assert {one.url for one in here.tracker.checks("a" * 40)} == {""}


def test_reviews_are_the_open_remarks_on_lines(here: Remote):
    here.opened()
    place = {"new_path": "a.txt", "new_line": 3}
    here.project.say("merge_requests", 1, "just words")
    here.project.say("merge_requests", 1, "wrong", position=place, type="DiffNote")
    here.project.say("merge_requests", 1, "done", position=place, type="DiffNote", resolved=True)
    here.project.say("merge_requests", 1, "hidden", position=place, type="DiffNote", internal=True)
    (note,) = here.tracker.reviews(1)
    assert (note.comment.text, note.comment.path, note.comment.line, note.pull) == ("wrong", "a.txt", 3, True)
    seen = here.tracker.look({"issues": "1", "merges": "1"})
    assert [one.comment.text for one in seen.notes] == ["just words"], "remarks on lines are told once"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"detailed_merge_status": "mergeable"}, True),
        ({"detailed_merge_status": "conflict"}, False),
        ({"detailed_merge_status": "draft_status", "has_conflicts": False}, True),
        ({"detailed_merge_status": "draft_status", "has_conflicts": True}, False),
        ({"detailed_merge_status": "checking", "has_conflicts": True}, None),
        ({"detailed_merge_status": "unchecked"}, None),
        ({"detailed_merge_status": "not_approved"}, None),
        ({"merge_status": "cannot_be_merged"}, False),
        ({}, None),
        ({"detailed_merge_status": 7, "has_conflicts": "yes"}, None),
    ],
)
def test_only_a_conflict_that_gitlab_has_looked_for_is_one(value, told):
    assert mergeable(value) is told


def test_bots_are_known_by_their_accounts(here: Remote):
    here.project.issue("t", "w")
    here.project.users["project_7_bot_abc"] = 77
    here.project.say("issues", 1, "beep", "project_7_bot_abc")
    here.project.say("issues", 1, "hello")
    assert [one.bot for one in here.tracker.thread(1).comments] == [True, False]


def test_a_note_that_was_written_though_the_answer_was_lost_is_not_written_again(here: Remote):
    here.opened()
    here.project.faults.append(Fault("POST", "/notes", 504, after=True))
    address = here.tracker.note(1, "<!-- m -->", "a <!-- m -->", pull=True)
    assert here.comments(1) == ["a <!-- m -->"]
    assert here.tracker.note(1, "<!-- m -->", "b <!-- m -->", pull=True) == address
