"""Every request that the broker makes of GitHub is one that GitHub's own API description knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from broker.config.credential import App
from broker.config.repository import Repository
from broker.forge.base import Dressing, Order, Status
from broker.forge.github.making import github
from broker.forge.rest.pace import Paces, Tempo
from broker.gitdir import GitDir
from broker.scope import Scope
from broker.vault.app import Minter, Target
from tests.broker.vault.app_stand_in import AppForge, key_pair
from tests.broker.vault.app_stand_in import serving as app_serving
from tests.forges.bare import PEOPLE
from tests.forges.prism import Prism
from tests.forges.stand_in import TOKEN, Fault, StandIn

pytestmark = pytest.mark.forges


@contextmanager
def lend(_scope: Scope) -> Iterator[SecretStr]:
    yield SecretStr(TOKEN)


@pytest.fixture
def guard(github_guard: Callable[[str], Prism], stand_ins: Callable[[str], StandIn]) -> Prism:
    return github_guard(f"{stand_ins('github').url}/api/v3")


def test_a_request_that_is_wrong_is_noticed(guard):
    before = len(guard.violations())
    httpx.post(f"{guard.url}/repos/a/b/pulls", json={"title": 5, "head": "x"}, timeout=20)
    httpx.get(f"{guard.url}/repos/a/b/nonsense", timeout=20)
    told = guard.violations()[before:]
    assert any("base" in one for one in told)
    assert any("title" in one for one in told)
    assert any("not found" in one for one in told)
    assert guard.unknown("GET", "/repos/a/b/pulls", ["bogus"]) == "GET /repos/{owner}/{repo}/pulls has no bogus"
    assert guard.unknown("GET", "/repos/a/b/nope", []) == "there is no GET /repos/a/b/nope"


def test_every_call_of_forge_and_tracker_is_in_githubs_description(guard, stand_ins, tmp_path: Path):
    stand_in = stand_ins("github")
    project = stand_in.project()
    before = len(guard.violations())
    settings = Repository.model_validate(
        {
            "forge": "github",
            "url": f"{stand_in.url}/{project.path}",
            "api": guard.url,
            "credential": {"token": {"file": "/nowhere"}},
        }
    )
    forge, tracker = github("web", settings, lend, lend, Paces(Tempo(gap=0.0)))
    store = GitDir(tmp_path / "store.git")
    store.create()
    base = forge.fetch("main", store)
    commit = store.text("commit-tree", store.tree_of(base), "-p", base, "-m", "change", environment=PEOPLE)

    assert (forge.head("main"), forge.head("nowhere"), forge.visibility()) == (base, None, "private")
    assert {one.state for one in forge.examine("main", "swarm/")} == {"ok"}
    assert forge.push(store, commit, "swarm/t1")
    values = {"title": "T", "body": "B", "branch": "swarm/t1", "base": "main", "base_commit": base, "commit": commit}
    order = Order.model_validate({**values, "task": "t1", "proposal": "p1", "evidence": {}})
    project.faults.append(Fault("POST", r"/pulls$", 504, "lost", after=True))
    number = forge.open(order).number
    assert forge.find("swarm/t1", "main").number == number
    dressing = Dressing(labels=("agent",), reviewers=("bob", "ghost"), team_reviewers=("core",), assignees=("ann",))
    forge.dress(number, dressing)
    forge.report(commit, Status(state="success", description="passed", url="https://example.org/x"))
    forge.revise(number, "New", "Words")
    forge.diff(number, 1000)

    marks = tracker.look({}).marks
    project.issue("T", "B", "ann", ("agent",))
    project.say(number, "words")
    marks = tracker.look(marks).marks
    tracker.look(marks)
    tracker.thread(number)
    assert tracker.labelled_by(2, "agent").by == "ann"
    assert tracker.permission("bob") == "write"
    project.no_checks = True
    tracker.checks(commit)
    project.no_checks = False
    tracker.checks(commit)
    tracker.reviews(number)
    tracker.mergeable(number)
    tracker.note(number, "<!-- m -->", "one <!-- m -->")
    tracker.note(number, "<!-- m -->", "two <!-- m -->")
    forge.close(number)
    assert forge.pulls()[0].state == "closed"

    assert guard.violations()[before:] == []
    calls = [(call.method, call.path.removeprefix("/v3"), list(call.query)) for call in project.calls]
    assert [told for told in (guard.unknown(*call) for call in calls) if told] == []
    assert len({(method, path) for method, path, _ in calls}) >= 20


def test_the_exchange_of_an_apps_key_for_a_token_is_in_githubs_description(github_guard, tmp_path: Path):
    private, public = key_pair()
    key = tmp_path / "key.pem"
    key.write_bytes(private)
    key.chmod(0o600)
    app = App.model_validate({"id": "12345", "key": {"file": key}})
    with app_serving(AppForge(public)) as forge:
        guard = github_guard(forge.url)
        minter = Minter(app, Target(guard.url, "team", "web"))
        for scope in Scope:
            assert minter.revoke(minter.mint(scope))
        assert forge.tokens == {}
        assert forge.calls == ["installation", *["access_tokens", "revoke"] * len(Scope)]
    assert guard.violations() == []


def test_the_description_is_asked_for_no_path_that_is_not_called(guard):
    """The trimmed description names what the broker's documentation says its token can do, and nothing else."""
    assert not any("/merge" in path or "/git/refs" in path or "/contents" in path for path in guard.described["paths"])
