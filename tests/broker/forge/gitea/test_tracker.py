"""Conversations on Gitea and Forgejo: what changed, who labelled, who may do what, what reviewers say."""

from __future__ import annotations

import pytest

from broker.errors import AbsentError, ForgeError
from tests.forges.gitea_stand_in import BOT, LESSER
from tests.forges.remote import Make, Remote
from tests.forges.stand_in import Fault

SINCE = {"issues": "1", "comments": "1"}


@pytest.fixture
def here(make_remote: Make) -> Remote:
    return make_remote("gitea")


def test_the_first_look_starts_nothing_and_the_next_finds_what_came(here: Remote):
    here.project.issue("old", "words")["updated_at"] = "2020-01-01T00:00:00Z"
    first = here.tracker.look({})
    assert (first.threads, first.notes) == ((), ())
    here.project.issue("new", "words", labels=("agent",))
    here.project.say(2, "a comment")
    seen = here.tracker.look(first.marks)
    assert [(thread.number, thread.title, thread.labels, thread.pull) for thread in seen.threads] == [
        (2, "new", ("agent",), False)
    ]
    assert [(note.number, note.comment.author, note.comment.text) for note in seen.notes] == [(2, "ann", "a comment")]


def test_more_than_one_look_fetches_is_found_by_the_looks_after_it(here: Remote):
    for number in range(1, 620):
        issue = here.project.issue(f"i{number}", "")
        issue["updated_at"] = f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z"
    marks, found = {"issues": "1767225000", "comments": "1767225000"}, set()
    for _ in range(8):
        seen = here.tracker.look(marks)
        found |= {thread.title for thread in seen.threads}
        marks = seen.marks
    assert found == {f"i{number}" for number in range(1, 620)}


@pytest.mark.parametrize("address", ["", "http://forge/team/web/issues/", "http://x/7x", "http://x/-1", 5, None])
def test_a_comment_of_no_issue_is_left_out(here: Remote, address):
    here.project.issue("t", "w")
    here.project.say(1, "lost")["issue_url"] = address or ""
    here.project.comments[0]["issue_url"] = address
    here.project.faults.append(Fault("GET", "/issues/comments", 200, here.project.comments))
    assert here.tracker.look(SINCE).notes == ()


def test_who_labelled_is_the_last_who_put_it_on(here: Remote):
    here.project.issue("t", "w")
    events = here.project.timeline.setdefault(1, [])

    def event(body: str, login: str, label: str = "agent", kind: str = "label") -> None:
        events.append({"type": kind, "body": body, "label": {"name": label}, "user": {"login": login}})

    assert here.tracker.labelled_by(1, "agent") is None
    event("1", "eve")
    event("", "ann")
    assert here.tracker.labelled_by(1, "agent") is None, "it was taken off again"
    event("1", "ann")
    event("1", "eve", "other")
    event("1", "eve", kind="comment")
    assert here.tracker.labelled_by(1, "agent").by == "ann"


def test_a_timeline_of_many_pages_is_read_to_its_end(here: Remote):
    here.project.issue("t", "w")
    chatter = [{"type": "comment", "body": "x"}] * 120
    last = {"type": "label", "body": "1", "label": {"name": "agent"}, "user": {"login": "bob"}}
    here.project.timeline[1] = [*chatter, {**last, "user": {"login": "ann"}}, *chatter, last]
    assert here.tracker.labelled_by(1, "agent").by == "bob"


@pytest.mark.parametrize(("login", "told"), [("ann", "admin"), ("bob", "write"), ("eve", "read"), ("out", "none")])
def test_an_administrator_is_told_of_everybody(here: Remote, login, told):
    here.project.permissions[BOT] = "admin"
    assert here.tracker.permission(login) == told
    assert here.tracker.permission("nobody") == "none"


@pytest.mark.parametrize(("login", "told"), [("ann", "write"), ("BOB", "write"), ("eve", "none"), ("out", "none")])
def test_a_lesser_account_knows_who_may_write_by_who_may_be_assigned(here: Remote, login, told):
    assert here.tracker.permission(login) == told


@pytest.mark.parametrize(
    "login", ["../../../user", "a b", "ann/permission?x=", "%2e%2e", "..", ".", "", "\u212aate", "ann\u200b"]
)
def test_an_odd_login_is_nobody(here: Remote, login):
    here.project.permissions["kate"] = "admin"
    assert here.tracker.permission(login) == "none"
    here.project.permissions[BOT] = "admin"
    assert here.tracker.permission(login) == "none"


def test_checks_are_the_newest_of_each_context_without_the_brokers_own(here: Remote):
    states = [("ci", "failure"), ("ci", "success"), ("lint", "warning"), ("agent-swarm/broker", "failure")]
    here.project.statuses["a" * 40] = [{"context": name, "status": state} for name, state in states]
    assert {one.name: one.state for one in here.tracker.checks("a" * 40)} == {"ci": "success", "lint": "neutral"}


def test_reviews_are_words_and_open_remarks_oldest_first(here: Remote):
    here.opened()
    ann = {"login": "ann"}
    here.project.reviews[1] = [
        {"id": 1, "state": "REQUEST_CHANGES", "body": "no", "submitted_at": "2026-01-01T00:00:02Z", "user": ann}
        | {"comments_count": 2},
        {"id": 2, "state": "APPROVED", "body": " ", "submitted_at": "2026-01-01T00:00:03Z", "user": ann},
        {"id": 3, "state": "PENDING", "body": "not sent", "user": ann},
    ]
    here.project.review_comments[1] = [
        {"id": 8, "body": "here", "path": "a.txt", "position": 4, "created_at": "2026-01-01T00:00:01Z", "user": ann},
        {"id": 9, "body": "done", "path": "a.txt", "position": 4, "resolver": {"login": "bob"}, "user": ann},
    ]
    notes = here.tracker.reviews(1)
    assert [(note.id, note.comment.text, note.comment.line, note.pull) for note in notes] == [
        ("remark-8", "here", 4, True),
        ("review-1", "no", None, True),
    ]


def test_a_conflict_is_believed_when_it_is_told_twice_and_never_of_a_draft(here: Remote):
    here.opened()
    assert here.tracker.mergeable(1) is None, "Gitea says no to every draft"
    here.pull(1)["title"] = "T"
    assert here.tracker.mergeable(1) is True
    here.project.mergeable = False
    assert here.tracker.mergeable(1) is None, "it may still be looking"
    assert here.tracker.mergeable(1) is False
    here.project.bare.commit({"a.txt": "3\n"}, here.pull(1)["head"]["sha"], branch="swarm/t1")
    assert here.tracker.mergeable(1) is None, "another commit is another question"


def test_a_token_that_may_not_read_its_account_writes_no_comment(here: Remote):
    """Else it could not tell its own comment from somebody else's."""
    here.opened()
    lesser = here.again(token=LESSER)
    assert lesser.tracker.me() is None
    with pytest.raises(ForgeError, match="which account") as caught:
        lesser.tracker.note(1, "<!-- m -->", "a <!-- m -->", pull=True)
    assert "read:user" in caught.value.mend
    assert here.comments(1) == []
    assert [pull.number for pull in lesser.forge.pulls()] == [1], "branches of its prefix are still known"


def test_an_absent_issue_is_absent(here: Remote):
    with pytest.raises(AbsentError):
        here.tracker.thread(7)
    with pytest.raises((AbsentError, ForgeError)):
        here.tracker.mergeable(7)
