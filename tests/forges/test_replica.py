"""The broker's GitHub against a GitHub of others over real git: faults on demand end in exactly one pull request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from broker.config.repository import Repository
from broker.errors import ForgeError
from broker.forge.base import Dressing, Order, Status
from broker.forge.github.forge import GitHubForge
from broker.forge.github.making import github
from broker.forge.github.tracker import GitHubTracker
from broker.forge.rest.pace import Paces, Tempo
from broker.gitdir import GitDir
from broker.scope import Scope
from tests.forges.bare import PEOPLE
from tests.forges.git_server import GitServer
from tests.forges.replica import Replica

pytestmark = pytest.mark.forges
CREATE = "github.pulls.create"


@dataclass
class Site:
    """A repository on the replica, and what the broker has of it."""

    replica: Replica
    forge: GitHubForge
    tracker: GitHubTracker
    store: GitDir

    def pushed(self, text: str = "new\n", branch: str = "swarm/t1") -> str:
        """A commit of one changed file, on a branch of the broker's."""
        blob = self.store.text("hash-object", "-w", "--stdin", stdin=[text.encode()])
        tree = self.store.text("mktree", stdin=[f"100644 blob {blob}\ta.txt\n".encode()])
        commit = self.store.text("commit-tree", tree, "-p", self.replica.base, "-m", "change", environment=PEOPLE)
        assert self.forge.push(self.store, commit, branch)
        return commit

    def order(self, commit: str, **more: object) -> Order:
        """A pull request for it."""
        values = {"title": "T", "body": "B", "branch": "swarm/t1", "base": "main", "base_commit": self.replica.base}
        return Order.model_validate(
            {**values, "commit": commit, "task": "t1", "proposal": "p1", "evidence": {}, **more}
        )

    def pulls(self) -> int:
        """How many the replica holds."""
        return len(self.replica.state()["pulls"])


@pytest.fixture
def site(make_replica: Callable[..., Replica], git_server: GitServer, tmp_path: Path) -> Site:
    replica = make_replica()

    @contextmanager
    def lend(_scope: Scope) -> Iterator[SecretStr]:
        yield SecretStr(replica.token)

    @contextmanager
    def push_lend(_scope: Scope) -> Iterator[SecretStr]:
        yield SecretStr(git_server.password)

    settings = Repository.model_validate(
        {
            "forge": "github",
            "url": f"{git_server.url}/{replica.path}",
            "api": replica.api,
            "credential": {"token": {"file": "/nowhere"}},
        }
    )
    forge, tracker = github("web", settings, lend, push_lend, Paces(Tempo(gap=0.0)))
    store = GitDir(tmp_path / "store.git")
    store.create()
    forge.fetch("main", store)
    return Site(replica, forge, tracker, store)


def test_a_delivery_is_one_branch_and_one_draft_that_is_dressed_and_reported(site):
    commit = site.pushed()
    pull = site.forge.open(site.order(commit))
    assert (pull.number, pull.draft, pull.state, pull.commit) == (1, True, "open", commit)
    told = site.forge.dress(1, Dressing(labels=("agent",), reviewers=("ann", "ghost")))
    site.forge.report(commit, Status(state="success", description="passed"))
    state = site.replica.state()
    assert state["issues"]["1"]["labels"] == ["agent"]
    assert state["pulls"]["1"]["requested_reviewers"] == ["ann"]
    assert [line.split(":")[0] for line in told] == ["reviewer ghost"]
    assert {"context": "agent-swarm/broker", "state": "success", "description": "passed"} in state["statuses"][commit]
    assert site.forge.open(site.order(commit)) == pull
    assert site.forge.pulls()[0].commit == commit
    assert [push.user for push in site.replica.bare.arrived()] == ["x-access-token"]


def test_a_timeout_after_the_commit_ends_in_exactly_one_pull_request(site):
    commit = site.pushed()
    site.replica.fail({"tool": CREATE, "kind": "timeout_after_commit", "on_call": 1})
    pull = site.forge.open(site.order(commit))
    assert (pull.number, site.pulls()) == (1, 1)
    assert site.forge.open(site.order(commit)).number == 1
    assert site.pulls() == 1


@pytest.mark.parametrize("kind", ["timeout", "bad_gateway", "unavailable", "transport_error"])
def test_a_call_that_was_lost_before_it_did_anything_is_told_and_the_next_one_delivers(site, kind):
    commit = site.pushed()
    site.replica.fail({"tool": CREATE, "kind": kind, "on_call": 1})
    with pytest.raises(ForgeError) as caught:
        site.forge.open(site.order(commit))
    assert caught.value.uncertain
    assert site.pulls() == 0
    assert site.forge.open(site.order(commit)).number == 1
    assert site.pulls() == 1


def test_an_answer_that_breaks_off_ends_in_exactly_one_pull_request(site):
    commit = site.pushed()
    site.replica.fail({"tool": CREATE, "kind": "truncated", "on_call": 1})
    assert site.forge.open(site.order(commit)).number == 1
    assert site.pulls() == 1


def test_a_rate_limit_is_a_time_to_come_back_and_no_pull_request(site):
    commit = site.pushed()
    site.replica.fail({"tool": CREATE, "kind": "rate_limit", "on_call": 1})
    with pytest.raises(ForgeError) as caught:
        site.forge.open(site.order(commit))
    assert (caught.value.reason, caught.value.uncertain) == ("limit", False)
    assert caught.value.when is not None
    assert site.pulls() == 0


def test_reads_live_through_a_bad_gateway(site):
    site.replica.fail({"tool": "github.git.getRef", "kind": "bad_gateway", "on_call": 1})
    assert site.forge.head("main") == site.replica.base


def test_a_missing_base_and_no_difference_are_told_apart(site):
    commit = site.pushed()
    with pytest.raises(ForgeError) as caught:
        site.forge.open(site.order(commit, base="gone"))
    assert caught.value.reason == "branch"
    site.replica.bare.git("update-ref", "refs/heads/swarm/t1", site.replica.base)
    with pytest.raises(ForgeError) as caught:
        site.forge.open(site.order(site.replica.base))
    assert caught.value.reason == "no-diff"


def test_a_wrong_token_is_told(site, git_server):
    site.replica.fail()
    object.__setattr__(site.replica, "token", "wrong")
    with pytest.raises(ForgeError) as caught:
        site.forge.head("main")
    assert caught.value.reason == "token"


def test_checks_are_the_replicas_own_ci(site):
    commit = site.pushed()
    site.forge.report(commit, Status(state="failure"))
    site.replica.as_person("POST", f"/statuses/{commit}", {"state": "pending", "context": "ci"})
    assert [(check.name, check.state) for check in site.tracker.checks(commit)] == [("ci", "pending")]


def test_reviews_and_mergeability_are_read(site):
    site.forge.open(site.order(site.pushed(), draft=False))
    review = {"body": "Please mend", "event": "COMMENT", "comments": [{"path": "a.txt", "line": 1, "body": "here"}]}
    site.replica.as_person("POST", "/pulls/1/reviews", review)
    assert sorted(note.comment.text for note in site.tracker.reviews(1)) == ["Please mend", "here"]
    assert site.tracker.mergeable(1) is True
    assert site.tracker.me() == "swarm-bot"


def test_an_issue_is_read_with_its_comments_and_labels(site):
    site.replica.as_person("POST", "/issues", {"title": "T", "body": "B"})
    site.replica.as_person("POST", "/issues/1/comments", {"body": "one"})
    thread = site.tracker.thread(1)
    assert (thread.title, thread.text, [one.text for one in thread.comments]) == ("T", "B", ["one"])


def test_an_own_pull_request_is_revised_and_closed(site):
    site.forge.open(site.order(site.pushed()))
    site.forge.revise(1, "New", "Words")
    site.forge.close(1)
    pull = site.forge.pull(1)
    assert (pull.title, pull.body, pull.state) == ("New", "Words", "closed")


def test_an_update_moves_the_branch_forward_and_the_pull_request_shows_it(site):
    first = site.pushed()
    site.forge.open(site.order(first))
    tree = site.store.tree_of(first)
    second = site.store.text("commit-tree", tree, "-p", first, "-m", "more", environment=PEOPLE)
    assert site.forge.push(site.store, second, "swarm/t1", first)
    assert site.forge.pull(1).commit == second
