"""Each operation does with the permissions of the one scope that it asks for, and each of these is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
from pydantic import SecretStr

from broker.config.repository import Repository
from broker.errors import ForgeError
from broker.forge.base import Dressing, Status
from broker.forge.github.making import github
from broker.forge.rest.pace import Paces, Tempo
from broker.scope import Scope
from broker.vault.app import PERMISSIONS
from tests.broker.forge.github.conftest import Site
from tests.forges.github_stand_in import GitHubStandIn
from tests.forges.stand_in import TOKEN

pytestmark = pytest.mark.slow

MARKER = "<!-- swarm:status=t1 -->"
DRESSING = Dressing(labels=("agent",), reviewers=("bob",), assignees=("ann",))


@pytest.fixture
def narrow(github_stand_in: GitHubStandIn, site: Site) -> Callable[[Mapping[Scope, Mapping[str, str]]], Site]:
    """The site with a token for each scope that can do what these permissions say, and nothing else."""
    number = site.opened()
    site.project.app = True
    site.project.things[number - 1]["user"] = {"login": "swarm-bot[bot]", "type": "Bot"}

    def of(permissions: Mapping[Scope, Mapping[str, str]]) -> Site:
        github_stand_in.scoped = {f"{site.project.path}-{scope}": permissions[scope] for scope in Scope}

        @contextmanager
        def lend(scope: Scope) -> Iterator[SecretStr]:
            yield SecretStr(f"{site.project.path}-{scope}")

        @contextmanager
        def push_lend(_scope: Scope) -> Iterator[SecretStr]:
            yield SecretStr(TOKEN)

        settings = Repository.model_validate(
            {
                "forge": "github",
                "url": f"{github_stand_in.url}/{site.project.path}",
                "credential": {"token": {"file": "/nowhere"}},
            }
        )
        forge, tracker = github("web", settings, lend, push_lend, Paces(Tempo(gap=0.0)))
        return Site(site.project, forge, tracker, site.git, site.folder)

    return of


def doings(site: Site) -> Mapping[str, Callable[[], object]]:
    """Everything that the broker does by the API."""
    base, head = site.project.base, site.project.bare.head("swarm/t1")
    site.project.bare.git("update-ref", "refs/heads/swarm/t2", head)
    order = site.order(head, "swarm/t2")
    return {
        "head": lambda: site.forge.head("main"),
        "visibility": site.forge.visibility,
        "find": lambda: site.forge.find("swarm/t1", "main"),
        "pull": lambda: site.forge.pull(1),
        "diff": lambda: site.forge.diff(1, 100),
        "examine": lambda: site.forge.examine("main", "swarm/"),
        "open": lambda: site.forge.open(order),
        "dress": lambda: site.forge.dress(1, DRESSING),
        "revise": lambda: site.forge.revise(1, "T", "B"),
        "report": lambda: site.forge.report(base, Status(state="success")),
        "look": lambda: site.tracker.look(site.tracker.look({}).marks),
        "thread": lambda: site.tracker.thread(1),
        "labelled": lambda: site.tracker.labelled_by(1, "agent"),
        "permission": lambda: site.tracker.permission("ann"),
        "checks": lambda: site.tracker.checks(base),
        "reviews": lambda: site.tracker.reviews(1),
        "mergeable": lambda: site.tracker.mergeable(1),
        "note on an issue": lambda: site.tracker.note(1, MARKER, MARKER),
        "note on a pull request": lambda: site.tracker.note(1, MARKER, MARKER, pull=True),
    }


def test_every_operation_does_with_what_its_scope_gives(narrow):
    site = narrow(PERMISSIONS)
    assert site.tracker.me() == "swarm-bot[bot]"
    for name, act in doings(site).items():
        assert act() not in (None, (), ("",)) or name in {"revise", "report", "labelled", "checks", "reviews", "dress"}
    assert site.forge.dress(1, DRESSING) == ()
    assert site.project.things[0]["labels"] == [{"name": "agent"}]
    assert [one["context"] for one in site.project.statuses[site.project.base]] == ["agent-swarm/broker"]


# Contents: write of a push is git's, which the API's stand-in does not see; every token has metadata: read.
NEEDED = [
    (scope, name)
    for scope in Scope
    for name in PERMISSIONS[scope]
    if name != "metadata" and (scope, name) != (Scope.PUSH, "contents")
]


@pytest.mark.parametrize(("scope", "name"), NEEDED)
def test_every_permission_of_a_scope_is_needed(narrow, scope, name):
    less = {**PERMISSIONS, scope: {key: level for key, level in PERMISSIONS[scope].items() if key != name}}
    refused = []
    for doing, act in doings(narrow(less)).items():
        try:
            told = act()
        except ForgeError as error:
            refused.append((doing, error.reason))
        else:
            refused += [(doing, "scope")] if doing == "dress" and told else []
    assert refused
    assert {reason for _, reason in refused} == {"scope"}
