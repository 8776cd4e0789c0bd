"""What every forge does, the pretend one included. A new forge joins by one more entry in KINDS.

The remote ones run against stateful stand-ins over real sockets, with git's own server behind every fetch and push.
"""

from __future__ import annotations

import re
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from broker.config.settings import Identity
from broker.errors import AbsentError, ConflictError, ForgeError
from broker.forge.base import Dressing, Forge, Order, Status, Tracker
from broker.forge.local import LocalForge
from broker.forge.local_tracker import LocalTracker
from broker.gitdir import GitDir
from broker.scope import Scope
from broker.testing import PretendForge, PretendTracker, copy
from broker.wire import Evidence, PullRequest, TestResult
from broker.words.marker import proposal_marker
from tests.forges.bare import Bare
from tests.forges.remote import NEW_PULL, REMOTE_KINDS, Make, Remote
from tests.forges.stand_in import TOKEN, Fault

KINDS = ("local", "pretend", *REMOTE_KINDS)
TRANSPORT = ("gitea", *(pytest.param(kind, marks=pytest.mark.slow) for kind in REMOTE_KINDS if kind != "gitea"))
MARKER = "<!-- swarm:status=t1 -->"
# GitHub's own tests attack it in the same ways.
AWAY = [pytest.param(kind, marks=pytest.mark.slow if kind == "github" else ()) for kind in REMOTE_KINDS]


class Bench:
    """A forge with a main branch of one commit, and a store to push from."""

    forge: Forge
    tracker: Tracker

    def __init__(self, folder: Path) -> None:
        self.source = GitDir(folder / "source.git")
        self.source.create()
        self.base = ""

    def commit(self, files: dict[str, str], *parents: str) -> str:
        """A commit of exactly these files in the source store."""
        return Bare(self.source.path).commit(files, *parents)

    def put(self, commit: str, branch: str = "main") -> None:
        """Somebody else pushes, by force if need be."""
        raise NotImplementedError

    def end(self, number: int) -> None:
        """Somebody merges a pull request."""
        self.forge.merge(number, "ann")

    def change(self, text: str = "ONE\n", parent: str = "") -> str:
        """A commit that changes a.txt, on the base or another parent."""
        return self.commit({"a.txt": text, "b.txt": "two\n"}, parent or self.base)

    def order(self, commit: str, branch: str = "swarm/t1", **more: Any) -> Order:
        """A pull request for a pushed commit."""
        task = branch.rsplit("/", 1)[-1]
        values = {
            "title": "T",
            "body": f"B\n\n{proposal_marker('p', task=task, base=self.base)}",
            "branch": branch,
            "base": "main",
            "base_commit": self.base,
            "commit": commit,
            "task": task,
            "proposal": "p",
            "evidence": Evidence(after=TestResult(command="pytest", exit_code=0), model="m"),
        }
        return Order.model_validate({**values, **more})

    def opened(self, commit: str, branch: str = "swarm/t1") -> PullRequest:
        """Opens one for a commit that is on the branch by then, however it came there."""
        self.put(commit, branch)
        return self.forge.open(self.order(commit, branch))

    def turned_away(self, commit: str, branch: str, expected: str | None = None) -> bool:
        """Whether a push is refused, by a value or by an error; either leaves the branch."""
        before = self.forge.head(branch)
        try:
            refused = not self.forge.push(self.source, commit, branch, expected)
        except ForgeError:
            refused = True
        return refused and self.forge.head(branch) == before


class LocalBench(Bench):
    """The embedded forge."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.bare = Bare.create(folder / "forge.git")
        self.base = self.commit({"a.txt": "one\n", "b.txt": "two\n"})
        self.put(self.base)
        forge = LocalForge("demo", self.bare.path, folder / "records", Identity(), lambda _scope: nullcontext(None))
        self.forge, self.tracker = forge, LocalTracker(forge)

    def put(self, commit: str, branch: str = "main") -> None:
        self.bare.take(self.source.path)
        self.bare.set(branch, commit)


class PretendBench(Bench):
    """The one in memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.base = self.commit({"a.txt": "one\n", "b.txt": "two\n"})
        self.pretend = PretendForge("demo", folder / "pretend.git")
        self.forge, self.tracker = self.pretend, PretendTracker()
        self.put(self.base)

    def put(self, commit: str, branch: str = "main") -> None:
        copy(self.source, self.pretend.git, commit)
        self.pretend.branches[branch] = commit


class RemoteBench(Bench):
    """A stand-in's project."""

    def __init__(self, folder: Path, remote: Remote) -> None:
        super().__init__(folder)
        self.remote = remote
        self.forge, self.tracker, self.bare = remote.forge, remote.tracker, remote.project.bare
        self.base = remote.project.base
        Bare(self.source.path).take(self.bare.path)

    def put(self, commit: str, branch: str = "main") -> None:
        self.bare.take(self.source.path)
        self.bare.set(branch, commit)

    def end(self, number: int) -> None:
        self.remote.merge(number)


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path, make_remote: Make) -> Bench:
    if request.param in REMOTE_KINDS:
        return RemoteBench(tmp_path, make_remote(request.param))
    return {"local": LocalBench, "pretend": PretendBench}[request.param](tmp_path)


@pytest.fixture(params=AWAY)
def away(request: pytest.FixtureRequest, tmp_path: Path, make_remote: Make) -> RemoteBench:
    """Forges that are elsewhere: answers get lost, other people are there too."""
    return RemoteBench(tmp_path, make_remote(request.param))


@pytest.fixture(params=["local", "pretend", *TRANSPORT])
def branchy(request: pytest.FixtureRequest, tmp_path: Path, make_remote: Make) -> Bench:
    """The same as bench, for what goes through git: one remote kind stands for all, which share one transport."""
    if request.param in REMOTE_KINDS:
        return RemoteBench(tmp_path, make_remote(request.param))
    return {"local": LocalBench, "pretend": PretendBench}[request.param](tmp_path)


@pytest.fixture(params=TRANSPORT)
def afar(request: pytest.FixtureRequest, tmp_path: Path, make_remote: Make) -> RemoteBench:
    """The same as away, for what goes through git or the one door to every API."""
    return RemoteBench(tmp_path, make_remote(request.param))


@pytest.fixture(params=["local", "pretend"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """Forges that merge for the person who asks the broker."""
    return {"local": LocalBench, "pretend": PretendBench}[request.param](tmp_path)


# --- branches


def test_a_head_is_told_and_an_absent_branch_is_none(branchy):
    assert branchy.forge.head("main") == branchy.base
    assert branchy.forge.head("nowhere") is None
    assert branchy.forge.head("no/where") is None


def test_a_branch_is_fetched_with_its_history(branchy, tmp_path):
    second = branchy.commit({"a.txt": "1\n"}, branchy.base)
    branchy.put(second)
    into = GitDir(tmp_path / "into.git")
    into.create(branchy.forge.object_format())
    assert branchy.forge.fetch("main", into) == second
    assert into.run("rev-list", second).split() == [second.encode(), branchy.base.encode()]
    assert branchy.forge.fetch("nowhere", into) is None


def test_a_branch_that_was_rewound_is_fetched(branchy, tmp_path):
    into = GitDir(tmp_path / "into.git")
    into.create()
    branchy.forge.fetch("main", into)
    other = branchy.commit({"z": "z\n"})
    branchy.put(other)
    assert branchy.forge.fetch("main", into) == other


def test_a_push_creates_a_branch_once_and_never_moves_it(branchy):
    commit, other = branchy.change(), branchy.change("TWO\n")
    assert branchy.forge.push(branchy.source, commit, "swarm/t1")
    assert branchy.turned_away(other, "swarm/t1")
    assert branchy.turned_away(branchy.change("3\n", commit), "swarm/t1"), "a fast-forward is no creation either"
    assert branchy.turned_away(commit, "main")


def test_an_update_moves_a_branch_forward_from_exactly_the_expected_commit(branchy):
    first = branchy.change()
    branchy.forge.push(branchy.source, first, "swarm/t1")
    second = branchy.change("TWO\n", first)
    assert branchy.turned_away(second, "swarm/t1", expected=branchy.base), "another commit is there"
    assert branchy.forge.push(branchy.source, second, "swarm/t1", expected=first)
    assert branchy.forge.head("swarm/t1") == second


def test_a_commit_of_somebody_else_on_the_branch_is_never_thrown_away(branchy):
    first = branchy.change()
    branchy.forge.push(branchy.source, first, "swarm/t1")
    theirs = branchy.change("theirs\n", first)
    branchy.put(theirs, "swarm/t1")
    assert branchy.turned_away(branchy.change("ours\n", first), "swarm/t1", expected=first)
    assert branchy.turned_away(branchy.change("ours\n", first), "swarm/t1", expected=theirs), "not built on it"
    assert branchy.turned_away(branchy.base, "swarm/t1", expected=theirs), "a rewind"
    assert branchy.forge.head("swarm/t1") == theirs


def test_an_update_of_a_branch_that_was_removed_does_not_bring_it_back(branchy):
    first = branchy.change()
    assert branchy.turned_away(branchy.change("x\n", first), "swarm/gone", expected=first)


def test_a_push_is_one_branch_without_force_tags_or_options(afar):
    first = afar.change()
    Bare(afar.source.path).git("tag", "-a", "-m", "x", "v1", first)
    afar.forge.push(afar.source, first, "swarm/t1")
    second = afar.change("2\n", first)
    afar.forge.push(afar.source, second, "swarm/t1", expected=first)
    pushes = afar.bare.arrived()
    assert [[(one.ref, one.old, one.new) for one in push.updates] for push in pushes] == [
        [("refs/heads/swarm/t1", "0" * 40, first)],
        [("refs/heads/swarm/t1", first, second)],
    ]
    assert [push.options for push in pushes] == [0, 0]
    assert not [ref for ref in afar.bare.refs() if ref.startswith("refs/tags/")]


def test_a_push_outside_the_prefix_does_not_even_leave(afar):
    for branch in ("main", "feature", "swarm", "refs/for/main", "swarms/x"):
        with pytest.raises(ForgeError, match="nothing was pushed"):
            afar.forge.push(afar.source, afar.change(), branch)
    assert afar.bare.arrived() == []


def test_a_refusal_by_the_forges_own_rule_is_told_in_words_without_the_token(afar):
    afar.bare.refuse(f"error: GH013: Repository rule violations found\n your token {TOKEN} was seen\n")
    with pytest.raises(ForgeError) as caught:
        afar.forge.push(afar.source, afar.change(), "swarm/t1")
    assert caught.value.reason == "protected"
    assert TOKEN not in f"{caught.value} {caught.value.mend}"


def test_each_operation_asks_for_the_least_right(afar):
    commit = afar.change()
    lent = afar.remote.lent
    lent.clear()
    afar.forge.head("main")
    afar.forge.pulls()
    assert set(lent) == {Scope.READ}
    lent.clear()
    afar.forge.push(afar.source, commit, "swarm/t1")
    assert set(lent) == {Scope.PUSH}
    lent.clear()
    afar.forge.open(afar.order(commit))
    assert set(lent) == {Scope.PULLS}
    lent.clear()
    afar.forge.report(commit, Status(state="success"))
    assert set(lent) == {Scope.STATUS}


# --- pull requests


def test_a_pull_request_is_opened_once(bench):
    pull = bench.opened(bench.change())
    assert (pull.number, pull.state, pull.branch, pull.base) == (1, "open", "swarm/t1", "main")
    assert (pull.task, pull.proposal, pull.base_commit, pull.draft) == ("t1", "p", bench.base, True)
    again = bench.forge.open(bench.order(bench.change("X\n")))
    assert (again.number, again.commit) == (1, pull.commit)
    assert [(one.number, one.commit, one.task, one.proposal) for one in bench.forge.pulls()] == [
        (1, pull.commit, "t1", "p")
    ]


def test_a_draft_is_one_and_a_ready_one_is_none(bench):
    commit = bench.change()
    bench.put(commit, "swarm/t1")
    assert bench.forge.open(bench.order(commit)).draft
    other = bench.change("2\n")
    bench.put(other, "swarm/t2")
    assert not bench.forge.open(bench.order(other, "swarm/t2", draft=False)).draft
    assert [bench.forge.pull(number).title for number in (1, 2)] == ["T", "T"]


def test_a_pull_request_is_found_by_its_branches(bench):
    assert bench.forge.find("swarm/t1", "main") is None
    pull = bench.opened(bench.change())
    found = bench.forge.find("swarm/t1", "main")
    assert (found.number, found.commit) == (1, pull.commit)
    assert bench.forge.find("swarm/t", "main") is None
    assert bench.forge.find("swarm/t1", "other") is None


def test_closed_and_merged_are_told_apart_and_an_open_one_comes_first(bench):
    first = bench.opened(bench.change())
    bench.forge.close(1)
    assert bench.forge.pull(1).state == "closed"
    assert bench.forge.open(bench.order(first.commit)).number == 1, "a person closed it: it stays closed"
    assert bench.forge.find("swarm/t1", "main").state == "closed"
    other = bench.change("X\n", first.commit)
    bench.put(other, "swarm/t1")
    assert bench.forge.open(bench.order(other)).number == 2
    assert bench.forge.find("swarm/t1", "main").number == 2
    bench.end(2)
    assert [pull.state for pull in bench.forge.pulls()] == ["merged", "closed"]
    merged = bench.forge.pull(2)
    assert (merged.merged_commit, merged.merged_by) == (other, "ann")


def test_other_work_on_the_branch_of_a_merged_pull_request_gets_its_own(bench):
    first = bench.opened(bench.change())
    bench.end(1)
    again = bench.forge.open(bench.order(first.commit))
    assert (again.number, again.state) == (1, "merged")
    other = bench.change("X\n", first.commit)
    bench.put(other, "swarm/t1")
    assert bench.forge.open(bench.order(other)).number == 2


def test_pull_requests_are_numbered_and_listed_newest_first(bench):
    for number in (1, 2, 3):
        assert bench.opened(bench.change(f"{number}\n"), f"swarm/t{number}").number == number
    assert [pull.number for pull in bench.forge.pulls()] == [3, 2, 1]


def test_a_pull_request_shows_the_branch_as_it_is_now(bench):
    first = bench.opened(bench.change())
    theirs = bench.change("theirs\n", first.commit)
    bench.put(theirs, "swarm/t1")
    assert bench.forge.pull(1).commit == theirs


def test_long_and_odd_words_survive(bench):
    commit = bench.change()
    bench.put(commit, "swarm/t1")
    title = "[agent] \"Quotes\" 'and' \\ back, 100 % & <b> ünïcödé 漢字"
    body = "line\n\n" + '漢字 ünï & <x> \\ %20 + "q"\n' * 1500 + proposal_marker("p")
    assert len(body) > 30_000
    bench.forge.open(bench.order(commit, title=title, body=body))
    shown = bench.forge.pull(1)
    assert (shown.title, shown.body) == (title, body)


def test_new_words_replace_the_old_and_a_draft_stays_one(bench):
    bench.opened(bench.change())
    bench.forge.revise(1, "New", "Words")
    shown = bench.forge.pull(1)
    assert (shown.title, shown.body, shown.draft) == ("New", "Words", True)


def test_words_of_a_closed_pull_request_stay(away):
    away.opened(away.change())
    away.forge.close(1)
    away.forge.close(1)
    with pytest.raises(ConflictError):
        away.forge.revise(1, "New", "Words")


def test_dressing_twice_is_the_same_as_once(bench):
    bench.opened(bench.change())
    wanted = Dressing(labels=("agent",), reviewers=("bob",), assignees=("ann",))
    assert bench.forge.dress(1, wanted) == bench.forge.dress(1, wanted)


def test_dressing_twice_puts_nothing_on_twice(away):
    away.opened(away.change())
    wanted = Dressing(labels=("agent",), reviewers=("bob",), assignees=("ann",))
    names, seen = ("agent", "bob", "ann"), []
    for _ in range(2):
        assert away.forge.dress(1, wanted) == ()
        shown = str(away.remote.pull(1))
        seen.append([shown.count(name) for name in names])
    assert seen[0] == seen[1]
    assert all(seen[0])


def test_what_a_forge_will_not_put_on_is_told_and_the_rest_is_put_on(away):
    away.opened(away.change())
    wanted = Dressing(labels=("agent",), reviewers=("bob", "swarm-nobody"), assignees=("ann", "swarm-nobody"))
    told = away.forge.dress(1, wanted)
    assert any("swarm-nobody" in words for words in told), told
    assert not any(re.search(r"\b(ann|bob|agent)\b", words) for words in told), told
    shown = str(away.remote.pull(1))
    assert all(name in shown for name in ("agent", "bob", "ann"))
    assert "swarm-nobody" not in shown


def test_a_status_may_be_set_again_and_changed(bench):
    commit = bench.change()
    bench.opened(commit)
    for state in ("pending", "pending", "success", "success"):
        bench.forge.report(commit, Status(state=state, description="d" * 300))
    assert bench.tracker.checks(commit) == (), "the broker's own is no check of others"


def test_an_unknown_pull_request_is_absent(bench):
    for asked in (lambda: bench.forge.pull(7), lambda: bench.forge.diff(7, 100), lambda: bench.forge.merge(7, "me")):
        with pytest.raises((AbsentError, ForgeError)):
            asked()
    with pytest.raises(AbsentError):
        bench.forge.pull(7)


def test_a_diff_shows_the_change_and_can_be_cut(bench):
    bench.opened(bench.change())
    diff, cut = bench.forge.diff(1, 10_000)
    assert "-one\n+ONE\n" in diff
    assert not cut
    short, cut = bench.forge.diff(1, 20)
    assert (len(short), cut) == (20, True)


def test_who_can_read_is_told(bench):
    assert bench.forge.visibility() in {"private", "unknown"}


def test_a_private_repository_and_a_public_one_are_told_apart(away):
    assert away.forge.visibility() == "private"
    away.remote.project.private = False
    assert away.forge.visibility() == "public"


def test_the_one_comment_is_rewritten_not_repeated(bench):
    bench.opened(bench.change())
    if isinstance(bench.tracker, PretendTracker):
        bench.tracker.issue(1, pull=True)
    first = bench.tracker.note(1, MARKER, f"queued\n\n{MARKER}", pull=True)
    assert bench.tracker.note(1, MARKER, f"working\n\n{MARKER}", pull=True) == first
    if isinstance(bench, RemoteBench):
        assert bench.remote.comments(1) == [f"working\n\n{MARKER}"]


# --- other people, and answers that get lost


def test_a_comment_of_somebody_else_with_the_marker_is_left_alone(away):
    away.opened(away.change())
    away.remote.say(1, f"mine {MARKER}", "ann")
    away.tracker.note(1, MARKER, f"ours {MARKER}", pull=True)
    assert away.remote.comments(1) == [f"mine {MARKER}", f"ours {MARKER}"]


def test_a_pull_request_of_somebody_else_is_never_touched(away):
    away.opened(away.change())
    away.remote.give_to(1, "ann")
    assert away.forge.pulls() == ()
    for touch in (
        lambda: away.forge.revise(1, "x", "y"),
        lambda: away.forge.close(1),
        lambda: away.forge.dress(1, Dressing(labels=("agent",))),
        lambda: away.forge.pull(1),
    ):
        with pytest.raises(AbsentError):
            touch()
    with pytest.raises(ForgeError, match="somebody else's"):
        away.forge.open(away.order(away.forge.head("swarm/t1")))
    assert [call for call in away.remote.project.written() if call.method != "POST"] == []


@pytest.mark.parametrize("status", [500, 502, 504])
def test_an_answer_that_was_lost_ends_in_exactly_one_pull_request(away, status):
    commit = away.change()
    away.put(commit, "swarm/t1")
    away.remote.project.faults.append(Fault("POST", NEW_PULL, status, {"message": "upstream timed out"}, after=True))
    pull = away.forge.open(away.order(commit))
    assert (pull.number, pull.commit, away.remote.count()) == (1, commit, 1)
    assert away.forge.open(away.order(commit)).number == 1
    assert away.remote.count() == 1


def test_a_refusal_for_the_pace_opens_nothing_and_says_when_to_come_again(afar):
    commit = afar.change()
    afar.put(commit, "swarm/t1")
    fault = Fault("POST", NEW_PULL, 429, {"message": "Too many requests"}, headers={"Retry-After": "3600"})
    afar.remote.project.faults.append(fault)
    with pytest.raises(ForgeError) as caught:
        afar.forge.open(afar.order(commit))
    assert (caught.value.reason, afar.remote.count()) == ("limit", 0)
    assert caught.value.when is not None
    assert not caught.value.uncertain


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, {"message": f"Bad credentials: {TOKEN}"}, "token"),
        (403, {"message": "Resource not accessible by this token"}, "scope"),
        (404, {"message": "Not Found"}, "absent"),
        (422, {"message": {"title": ["is odd"]}}, "invalid"),
        (400, {"error": "title is missing"}, "unclear"),
        (423, {"message": "Repo is archived"}, "archived"),
    ],
)
def test_a_refusal_is_told_with_its_reason_and_without_the_token(afar, status, body, reason):
    commit = afar.change()
    afar.put(commit, "swarm/t1")
    afar.remote.project.faults.append(Fault("POST", NEW_PULL, status, body))
    with pytest.raises(ForgeError) as caught:
        afar.forge.open(afar.order(commit))
    assert (caught.value.reason, afar.remote.count()) == (reason, 0)
    assert TOKEN not in f"{caught.value!r} {caught.value} {caught.value.mend}"


def test_an_answer_that_is_nonsense_never_becomes_a_commit(afar):
    for nonsense in ({"message": "hi"}, [], "not json", {"number": "1", "iid": "1"}):
        fault = Fault("GET", r"/(branches/|ref/heads%2F)", 200, nonsense)
        afar.remote.project.faults.append(fault)
        with suppress(ForgeError):
            assert afar.forge.head("main") is None


# --- merging, where the broker does it


def test_a_merge_moves_the_base_forward(home):
    commit = home.change()
    home.opened(commit)
    merged = home.forge.merge(1, "uid 7")
    assert (merged.state, merged.merged_commit, merged.merged_by) == ("merged", commit, "uid 7")
    assert home.forge.head("main") == commit
    assert home.forge.pull(1) == merged


def test_a_merge_joins_a_base_that_moved_elsewhere(home, tmp_path):
    home.opened(home.change())
    home.put(home.commit({"a.txt": "one\n", "b.txt": "TWO\n"}, home.base))
    home.forge.merge(1, "me")
    into = GitDir(tmp_path / "into.git")
    into.create()
    head = home.forge.fetch("main", into)
    assert into.run("show", f"{head}:a.txt", f"{head}:b.txt") == b"ONE\nTWO\n"
    assert len(into.text("rev-parse", f"{head}^@").split()) == 2


def test_a_merge_that_conflicts_is_refused_and_changes_nothing(home):
    home.opened(home.change())
    theirs = home.commit({"a.txt": "other\n", "b.txt": "two\n"}, home.base)
    home.put(theirs)
    with pytest.raises(ConflictError):
        home.forge.merge(1, "me")
    assert home.forge.head("main") == theirs
    assert home.forge.pull(1).state == "open"


def test_a_second_merge_is_refused(home):
    home.opened(home.change())
    home.forge.merge(1, "me")
    with pytest.raises(ConflictError):
        home.forge.merge(1, "me")


def test_evidence_is_kept_with_the_pull_request(home):
    home.opened(home.change())
    assert home.forge.pull(1).evidence.after == TestResult(command="pytest", exit_code=0)


def test_the_broker_merges_nothing_on_a_forge_of_others(away):
    away.opened(away.change())
    with pytest.raises((ConflictError, ForgeError)):
        away.forge.merge(1, "me")
    assert away.forge.pull(1).state == "open"
    assert away.forge.head("main") == away.base
