"""Every request that the broker makes of Gitea is one that Gitea's own API description knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker.errors import ForgeError
from broker.forge.base import Dressing, Order, Status
from broker.gitdir import GitDir
from broker.wire import Receipt
from tests.forges.bare import Bare
from tests.forges.gitea_stand_in import BOT
from tests.forges.prism import Prism, guarding
from tests.forges.remote import NEW_PULL, Make
from tests.forges.stand_in import TOKEN, Fault, StandIn
from tests.forges.whole import MakeWhole

pytestmark = pytest.mark.forges
DESCRIPTION = Path(__file__).with_name("gitea-pulls.openapi.json")


@pytest.fixture(scope="module")
def guard(forge_parts: Path, tmp_path_factory: pytest.TempPathFactory, stand_ins) -> Iterator[Prism]:
    """Prism before the stand-in. The description's paths have no /api/v1, which Prism adds on its way on."""
    stand_in: StandIn = stand_ins("gitea")
    with guarding(forge_parts, tmp_path_factory.mktemp("prism"), DESCRIPTION, f"{stand_in.url}/api/v1") as prism:
        yield prism


@pytest.fixture(scope="module")
def mock(forge_parts: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prism]:
    """Prism alone, which answers what the description says an answer looks like."""
    with guarding(forge_parts, tmp_path_factory.mktemp("prism"), DESCRIPTION, "") as prism:
        yield prism


def test_a_request_that_is_wrong_is_noticed(guard):
    before = len(guard.violations())
    sign = {"Authorization": f"token {TOKEN}"}
    httpx.post(f"{guard.url}/repos/a/b/pulls", json={"title": 5, "head": "x"}, headers=sign, timeout=20)
    httpx.get(f"{guard.url}/repos/a/b/nonsense", headers=sign, timeout=20)
    assert len(guard.violations()) - before >= 2


def test_every_call_of_forge_and_tracker_is_in_giteas_description(guard, make_remote: Make, tmp_path: Path):
    here = make_remote("gitea", api=guard.url)
    project, forge, tracker = here.project, here.forge, here.tracker
    project.permissions[BOT] = "admin"
    before = len(guard.violations())
    store = GitDir(tmp_path / "store.git")
    store.create()
    base = forge.fetch("main", store)
    commit = Bare(store.path).commit({"a.txt": "new\n"}, base)

    assert (forge.head("main"), forge.head("no/where"), forge.visibility()) == (base, None, "private")
    assert forge.object_format() == "sha1"
    assert [one.name for one in forge.examine("main", "swarm/")] == ["credential", "scopes", "branch-rule"]
    assert forge.push(store, commit, "swarm/t1")
    values = {"title": "T", "body": "B", "branch": "swarm/t1", "base": "main", "base_commit": base, "commit": commit}
    order = Order.model_validate({**values, "task": "t1", "proposal": "p1", "evidence": {}})
    project.faults.append(Fault("POST", NEW_PULL, 504, "lost", after=True))
    number = forge.open(order).number
    assert (number, here.count()) == (1, 1)
    assert forge.find("swarm/t1", "main").number == number
    dressing = Dressing(labels=("agent",), reviewers=("bob", "ghost"), team_reviewers=("core",), assignees=("ann",))
    assert len(forge.dress(number, dressing)) == 2
    forge.report(commit, Status(state="success", description="passed", url="https://example.org/x"))
    forge.revise(number, "New", "Words")
    forge.diff(number, 1000)

    marks = tracker.look({}).marks
    issue = project.issue("T", "B", "ann", ("agent",))["number"]
    project.timeline[issue] = [{"type": "label", "body": "1", "label": {"name": "agent"}, "user": {"login": "ann"}}]
    project.say(issue, "words")
    tracker.look(tracker.look(marks).marks)
    assert tracker.thread(issue).comments[0].text == "words"
    assert tracker.labelled_by(issue, "agent").by == "ann"
    assert tracker.permission("bob") == "write"
    assert tracker.checks(commit) == ()
    project.reviews[number] = [
        {"id": 5, "state": "COMMENT", "body": "hm", "comments_count": 1, "user": {"login": "ann"}}
    ]
    project.review_comments[5] = [{"id": 6, "body": "here", "path": "a.txt", "position": 1, "user": {"login": "ann"}}]
    assert [note.comment.text for note in tracker.reviews(number)] == ["hm", "here"]
    tracker.mergeable(number)
    tracker.note(number, "<!-- m -->", "one <!-- m -->", pull=True)
    tracker.note(number, "<!-- m -->", "two <!-- m -->", pull=True)
    assert here.comments(number) == ["two <!-- m -->"]
    forge.close(number)
    assert forge.pulls()[0].state == "closed"

    assert guard.violations()[before:] == []
    calls = [(call.method, call.path, list(call.query)) for call in project.calls]
    assert [told for told in (guard.unknown(*call) for call in calls) if told] == []
    assert len({(method, path) for method, path, _ in calls}) >= 20


def test_a_proposal_becomes_a_pull_request_through_giteas_description(guard, make_whole: MakeWhole):
    """The whole broker, its answer to the opening lost on the way."""
    before = len(guard.violations())
    whole = make_whole("gitea", api=guard.url)
    whole.here.project.faults.append(Fault("POST", NEW_PULL, 504, after=True))
    receipt = whole.propose()
    assert isinstance(receipt, Receipt), receipt
    assert (whole.here.count(), len(whole.here.project.bare.arrived())) == (1, 1)
    assert guard.violations()[before:] == []


def test_answers_as_the_description_shows_them_can_be_read(mock, make_remote: Make):
    """Examples say nothing of this repository, so what is read is refused or left out; it never becomes a fault."""
    here = make_remote("gitea", api=mock.url)
    asked = (
        lambda: here.forge.head("main"),
        here.forge.pulls,
        lambda: here.forge.find("swarm/t1", "main"),
        lambda: here.forge.examine("main", "swarm/"),
        lambda: here.tracker.thread(1),
        lambda: here.tracker.look({"issues": "1", "comments": "1"}),
        lambda: here.tracker.reviews(1),
        lambda: here.tracker.checks("0" * 40),
        lambda: here.tracker.mergeable(1),
        lambda: here.tracker.labelled_by(1, "agent"),
        lambda: here.tracker.permission("ann"),
    )
    for ask in asked:
        try:
            ask()
        except ForgeError as error:
            assert error.reason in {"broken", "absent"}, error  # noqa: PT017 - either outcome is right
    assert mock.violations() == []


def test_without_the_token_the_description_refuses(mock, make_remote: Make):
    """The description declares its ways of authentication, and Prism insists on them."""
    assert httpx.get(f"{mock.url}/repos/a/b", timeout=20).status_code == 401
    here = make_remote("gitea", api=mock.url)
    assert here.forge.visibility() in {"private", "public", "unknown"}
