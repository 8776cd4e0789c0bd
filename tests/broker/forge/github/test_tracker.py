"""GitHub's conversations: nothing skipped between looks, nobody believed but the forge, one comment of the broker's."""

from __future__ import annotations

import pytest

from broker.errors import AbsentError, ForgeError
from broker.forge.github import looking
from broker.forge.rest.door import Page
from broker.scope import Scope
from tests.forges.github_stand_in import BOT, refused
from tests.forges.stand_in import Fault

MARKER = "<!-- swarm:status=t1 -->"


def test_the_first_look_starts_nothing(site):
    site.project.issue("Old", "words")
    site.project.say(1, "/swarm")
    seen = site.tracker.look({})
    assert (seen.threads, seen.notes) == ((), ())
    assert set(seen.marks) == {"issues", "comments"}


def test_an_issue_and_a_comment_are_seen_and_a_look_at_nothing_new_is_a_conditional_request(site):
    marks = site.tracker.look({}).marks
    site.project.issue("Mend it", None, "ann", ("agent",))
    site.project.say(1, "/swarm", "bob")
    seen = site.tracker.look(marks)
    assert [(one.number, one.author, one.labels, one.pull) for one in seen.threads] == [(1, "ann", ("agent",), False)]
    assert [(note.number, note.comment.author, note.comment.text) for note in seen.notes] == [(1, "bob", "/swarm")]
    site.project.calls.clear()
    quiet = site.tracker.look(seen.marks)
    assert (quiet.threads, quiet.notes, dict(quiet.marks)) == ((), (), dict(seen.marks))
    assert all(call.headers.get("if-none-match") for call in site.project.calls)
    assert len(site.project.calls) == 2


def test_a_comment_on_a_pull_request_is_told_from_one_on_an_issue(site):
    number = site.opened()
    marks = site.tracker.look({}).marks
    site.project.issue("T", "B")
    site.project.say(number, "one")
    site.project.say(2, "two")
    assert [(note.number, note.pull) for note in site.tracker.look(marks).notes] == [(number, True), (2, False)]


def test_nothing_is_skipped_where_there_is_more_than_one_look_fetches(site):
    marks = dict.fromkeys(("issues", "comments"), "2020-01-01T00:00:00Z")
    for number in range(730):
        one = site.project.issue(f"n{number}", "")
        one["updated_at"] = f"2020-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    found: set[int] = set()
    for _ in range(3):
        seen = site.tracker.look(marks)
        found |= {one.number for one in seen.threads}
        marks = dict(seen.marks)
    assert found == set(range(1, 731))


def test_an_issue_that_moves_while_pages_are_turned_hides_no_other(site):
    """Sorted by update, an item that changes leaves its page and pulls the next page's first one over the edge."""
    marks = dict(site.tracker.look({}).marks)
    for number in range(150):
        site.project.issue(f"n{number}", "")["updated_at"] = f"2099-01-01T00:{number // 60:02}:{number % 60:02}Z"
    asked = []

    class Moving(list):
        def __iter__(self):
            asked.append(1)
            if len(asked) == 2:
                self[0]["updated_at"] = "2099-01-01T01:00:00Z"
            return super().__iter__()

    site.project.things = Moving(site.project.things)
    assert {one.number for one in site.tracker.look(marks).threads} == set(range(1, 151))


def test_more_of_one_second_than_a_look_reads_hides_nothing_behind_it(site):
    """As after an import, a transfer, a change of many at once."""
    marks = site.tracker.look({}).marks
    site.project.issue("T", "B")
    for number in range(701):
        site.project.say(1, f"c{number}", "eve")["updated_at"] = "2099-01-01T00:00:00Z"
    site.project.comments[-1] |= {"body": "/swarm", "updated_at": "2099-01-01T00:00:05Z"}
    seen = site.tracker.look({**marks, "comments": "2020-01-01T00:00:00Z"})
    assert len({note.id for note in seen.notes}) == 701
    assert seen.notes[-1].comment.text == "/swarm"


def test_a_second_without_an_end_holds_no_look_up_for_good(site):
    class Endless:
        asked = 0

        def page(self, _path, asked, **_more):
            self.asked += 1
            return Page([{"id": self.asked, "updated_at": "2020-01-01T00:00:00Z"}], {**asked, "page": 2})

    place, marks, endless = (
        site.tracker._place,
        dict.fromkeys(("issues", "comments"), "2020-01-01T00:00:00Z"),
        Endless(),
    )
    seen = looking.look(endless, place, marks)
    assert endless.asked == 200
    assert seen.marks["issues"] == seen.marks["comments"] == "2020-01-01T00:00:01Z"


def test_a_thread_is_told_with_its_newest_comments(site):
    site.project.issue("T", "B", "ann", ("agent",))
    for number in range(230):
        site.project.say(1, f"c{number}", "bot[bot]" if number == 229 else "bob")
    thread = site.tracker.thread(1)
    assert (thread.title, thread.text, thread.author, thread.pull) == ("T", "B", "ann", False)
    assert len(thread.comments) == 200
    assert (thread.comments[-1].text, thread.comments[-1].bot) == ("c229", True)
    assert not any(comment.permitted for comment in thread.comments)
    with pytest.raises(AbsentError):
        site.tracker.thread(99)


def test_a_huge_issue_is_cut(site):
    site.project.issue("T" * 2000, "x" * 200_000)
    thread = site.tracker.thread(1)
    assert (len(thread.title), len(thread.text)) == (500, 65_536)


def test_who_labelled_last_is_told(site):
    site.project.issue("T", "B")
    site.project.labelled(1, "agent", "eve")
    site.project.labelled(1, "agent", "eve", "unlabeled")
    site.project.labelled(1, "agent", "ann")
    site.project.labelled(1, "bug", "eve")
    assert site.tracker.labelled_by(1, "agent").by == "ann"
    assert site.tracker.labelled_by(1, "other") is None


def test_nobody_labelled_what_was_taken_off_or_lies_behind_more_events_than_are_read(site):
    """An issue's author may rename it as often as they like."""
    site.project.issue("T", "B", "eve")
    site.project.labelled(1, "agent", "ann")
    assert site.tracker.labelled_by(1, "agent").by == "ann"
    events = site.project.events[1]
    events.extend({**events[0], "event": "renamed", "label": None, "actor": {"login": "eve"}} for _ in range(2000))
    site.project.labelled(1, "agent", "tri")
    assert site.tracker.labelled_by(1, "agent") is None
    del events[1:]
    site.project.labelled(1, "agent", "tri", "unlabeled")
    assert site.tracker.labelled_by(1, "agent") is None


def test_who_labelled_is_told_with_the_last_that_they_did_there(site):
    site.project.issue("T", "B", "eve")
    site.project.labelled(1, "agent", "ann")
    one = site.project.events[1][0]
    one["created_at"] = "2026-01-01T00:00:00Z"
    for second, kind, by in ((10, "milestoned", "ann"), (20, "referenced", "ann"), (30, "renamed", "eve")):
        act = {**one, "event": kind, "label": None, "actor": {"login": by}, "created_at": f"2026-01-01T00:00:{second}Z"}
        site.project.events[1].append(act)
    assert site.tracker.labelled_by(1, "agent").at == 1_767_225_610


@pytest.mark.parametrize(
    ("login", "held"),
    [
        ("ann", "admin"),
        ("bob", "write"),
        ("tri", "triage"),
        ("eve", "read"),
        ("nobody", "none"),
        ("own", "read"),
        ("../../user", "none"),
        ("a b", "none"),
        ("", "none"),
    ],
)
def test_a_permission_is_the_forges_word(site, login, held):
    site.project.roles["own"] = "release-helper"  # a role of the organisation's own
    assert site.tracker.permission(login) == held


def test_an_answer_about_somebody_else_gives_nobody_a_permission(site):
    body = {"permission": "admin", "role_name": "admin", "user": {"login": "ann"}}
    site.project.faults.append(Fault("GET", r"/collaborators/eve/", 200, body))
    assert site.tracker.permission("eve") == "none"


def test_a_permission_that_cannot_be_asked_is_an_error_and_no_permission(site):
    site.project.faults.append(Fault("GET", r"/collaborators/", 403, refused(403, "Resource not accessible").body))
    with pytest.raises(ForgeError) as caught:
        site.tracker.permission("ann")
    assert caught.value.reason == "scope"


def run(name: str, status: str, conclusion: str | None) -> dict[str, object]:
    output = {"title": "1 failed", "summary": "test_a"}
    return {
        "name": name,
        "status": status,
        "conclusion": conclusion,
        "output": output,
        "html_url": "https://ci.example/1",
    }


@pytest.mark.parametrize("fine_grained", [False, True])
def test_checks_are_runs_and_statuses_without_the_brokers_own(site, fine_grained):
    site.project.no_checks = fine_grained
    site.project.runs["a" * 40] = [
        run("unit", "completed", "failure"),
        run("lint", "in_progress", None),
        run("docs", "completed", "success"),
        run("old", "completed", "cancelled"),
    ]
    site.project.statuses["a" * 40] = [
        {"context": "agent-swarm/broker", "state": "failure", "description": "", "target_url": None},
        {"context": "jenkins", "state": "error", "description": "red", "target_url": "javascript:alert(1)"},
    ]
    told = {check.name: (check.state, check.url) for check in site.tracker.checks("a" * 40)}
    assert told == {
        "unit": ("failure", "https://ci.example/1"),
        "lint": ("pending", "https://ci.example/1"),
        "docs": ("success", "https://ci.example/1"),
        "old": ("neutral", "https://ci.example/1"),
        "jenkins": ("failure", ""),
    }


def test_reviews_are_lines_and_summaries_oldest_first(site):
    number = site.opened()
    ann = {"login": "ann", "type": "User"}
    site.project.reviews[number] = [
        {
            "id": 1,
            "user": ann,
            "body": "Please mend",
            "state": "COMMENTED",
            "submitted_at": "2026-01-02T00:00:00Z",
        },
        {"id": 2, "user": ann, "body": "", "state": "COMMENTED", "submitted_at": "2026-01-02T00:00:01Z"},
        {"id": 3, "user": ann, "body": "draft", "state": "PENDING", "submitted_at": None},
    ]
    site.project.review_comments[number] = [
        {
            "id": 1,
            "user": ann,
            "body": "here",
            "path": "a.txt",
            "line": None,
            "original_line": 3,
            "created_at": "2026-01-01T00:00:00Z",
        }
    ]
    notes = site.tracker.reviews(number)
    assert [(note.comment.text, note.comment.path, note.comment.line) for note in notes] == [
        ("here", "a.txt", 3),
        ("Please mend", None, None),
    ]
    assert len({note.id for note in notes}) == 2


def test_a_merge_is_unknown_until_the_forge_has_said(site):
    number = site.opened()
    for told in (None, True, False):
        site.project.mergeable = told
        assert site.tracker.mergeable(number) is told
    with pytest.raises(AbsentError):
        site.tracker.mergeable(99)


def test_one_comment_is_written_and_rewritten(site):
    site.project.issue("T", "B")
    site.lent.clear()
    first = site.tracker.note(1, MARKER, f"one {MARKER}")
    assert site.tracker.note(1, MARKER, f"two {MARKER}") == first
    assert [one["body"] for one in site.project.comments] == [f"two {MARKER}"]
    assert set(site.lent) == {Scope.ISSUES}


def test_a_comment_on_a_pull_request_needs_the_right_for_pull_requests(site):
    number = site.opened()
    site.lent.clear()
    site.tracker.note(number, MARKER, f"one {MARKER}", pull=True)
    assert site.lent == [Scope.PULLS]


def test_a_comment_of_somebody_else_with_the_marker_is_left_alone(site):
    site.project.issue("T", "B")
    site.project.say(1, f"mine {MARKER}", "eve")
    site.tracker.note(1, MARKER, f"one {MARKER}")
    assert [(one["user"]["login"], one["body"]) for one in site.project.comments] == [
        ("eve", f"mine {MARKER}"),
        (BOT, f"one {MARKER}"),
    ]


def test_a_comment_whose_answer_was_lost_is_not_written_twice(site):
    site.project.issue("T", "B")
    site.project.faults.append(Fault("POST", r"/comments$", 502, "lost", after=True))
    site.tracker.note(1, MARKER, f"one {MARKER}")
    assert len(site.project.comments) == 1


def test_a_removed_comment_is_written_anew(site):
    site.project.issue("T", "B")
    site.tracker.note(1, MARKER, f"one {MARKER}")
    site.project.comments.clear()
    site.tracker.note(1, MARKER, f"two {MARKER}")
    assert [one["body"] for one in site.project.comments] == [f"two {MARKER}"]


MARKS = {"issues": "2026-01-01T00:00:00Z", "comments": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("answer", ['{"a": 1}', "nonsense", "[" * 50_000])
def test_an_answer_that_is_no_list_is_an_error(site, answer):
    site.project.faults.append(Fault("GET", r"/issues$", 200, answer))
    with pytest.raises(ForgeError) as caught:
        site.tracker.look(MARKS)
    assert caught.value.reason == "broken"


@pytest.mark.parametrize("answer", ["[1, null, {}]", '[{"number": "x"}]', '[{"number": -1}, {"number": true}]'])
def test_what_is_no_issue_in_a_list_is_left_out(site, answer):
    site.project.faults.append(Fault("GET", r"/issues$", 200, answer))
    assert site.tracker.look(MARKS).threads == ()
