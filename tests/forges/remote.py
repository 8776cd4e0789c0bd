"""A project on a stand-in with what the broker's settings make of it, and what other people do there, for all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr

from broker.config.repository import Repository
from broker.forge.base import Forge, Order, Tracker
from broker.forge.gitea.making import gitea
from broker.forge.github.making import github
from broker.forge.gitlab.making import gitlab
from broker.forge.rest.pace import Paces, Tempo
from broker.scope import Scope
from tests.forges.gitea_stand_in import GiteaStandIn
from tests.forges.github_stand_in import GitHubStandIn
from tests.forges.gitlab_stand_in import GitLabStandIn
from tests.forges.stand_in import TOKEN, Project, StandIn, serving, stamp

_KINDS: dict[str, tuple[Callable[..., StandIn[Any]], Callable[..., tuple[Forge, Tracker]]]] = {
    "github": (GitHubStandIn, github),
    "gitea": (GiteaStandIn, gitea),
    "gitlab": (GitLabStandIn, gitlab),
}
REMOTE_KINDS = tuple(_KINDS)
NEW_PULL = r"/(pulls|merge_requests)\Z"  # the path of a fault


@dataclass
class Remote:
    """One project; ``lent`` are the scopes that were asked for, in order."""

    kind: str
    project: Any
    forge: Forge
    tracker: Tracker
    settings: Repository
    lent: list[Scope] = field(default_factory=list)

    def order(self, commit: str, branch: str = "swarm/t1", **more: Any) -> Order:
        """A pull request for a commit that is on the branch."""
        values = {"title": "T", "body": "B", "branch": branch, "base": "main", "base_commit": self.project.base}
        told = {"task": branch.rpartition("/")[2], "proposal": "p1", "evidence": {}}
        return Order.model_validate({**values, **told, "commit": commit, **more})

    def opened(self, branch: str = "swarm/t1", **more: Any) -> int:
        """A branch with one commit and its pull request."""
        commit = self.project.bare.commit({"a.txt": f"{branch}\n"}, self.project.base, branch=branch)
        return self.forge.open(self.order(commit, branch, **more)).number

    def again(self, token: str = TOKEN) -> Remote:
        """The same project for a broker that was made anew, perhaps with another token."""
        url = str(self.settings.url).removesuffix(f"/{self.project.path}")
        return _on(self.kind, self.project, url, token, {})

    def pull(self, number: int) -> dict[str, Any]:
        """The pull request as the forge keeps it; a test may change it."""
        kept: list[dict[str, Any]] = self.project.merges if self.kind == "gitlab" else self.project.things
        return kept[number - 1]

    def count(self) -> int:
        """How many pull requests there are."""
        if self.kind == "gitlab":
            return len(self.project.merges)
        return sum(1 for one in self.project.things if one.get("pull_request") is not None)

    def merge(self, number: int) -> None:
        """A person merges it: the base is on its commit then."""
        one = self.pull(number)
        base, head = one.get("target_branch") or one["base"]["ref"], one.get("sha") or one["head"]["sha"]
        self.project.bare.set(base, head)
        merged: dict[str, dict[str, Any]] = {
            "gitlab": {"state": "merged", "merge_commit_sha": head, "merge_user": {"username": "ann"}},
            "gitea": {"state": "closed", "merged": True, "merge_commit_sha": head, "merged_by": {"login": "ann"}},
            "github": {"state": "closed", "merged_at": one["created_at"], "merge_commit_sha": head}
            | {"merged": True, "merged_by": {"login": "ann"}},
        }
        one.update(merged[self.kind])

    def give_to(self, number: int, login: str) -> None:
        """As if somebody else had opened it."""
        self.pull(number)["author" if self.kind == "gitlab" else "user"] = {"login": login, "username": login, "id": 21}

    def say(self, number: int, text: str, author: str = "ann") -> None:
        """Somebody comments on a pull request."""
        if self.kind == "gitlab":
            self.project.say("merge_requests", number, text, author)
        else:
            self.project.say(number, text, author)

    def comments(self, number: int) -> list[str]:
        """What was said on a pull request."""
        if self.kind == "gitlab":
            return [note["body"] for note in self.project.notes.get(("merge_requests", number), [])]
        said = ((one["body"], one["issue_url"] or one["pull_request_url"]) for one in self.project.comments)
        return [body for body, about in said if about.endswith(f"/{number}")]


def label(kind: str, project: Any, number: int, name: str, by: str) -> None:
    """Somebody puts a label on an issue."""
    one = (project.issues if kind == "gitlab" else project.things)[number - 1]
    one["labels"].append(name if kind == "gitlab" else {"name": name})
    one["updated_at"] = stamp()
    if kind == "gitlab":
        event = {"action": "add", "label": {"name": name}, "user": {"username": by}, "created_at": stamp()}
        project.label_events.setdefault(("issues", number), []).append(event)
    elif kind == "gitea":
        event = {"type": "label", "body": "1", "label": {"name": name}, "user": {"login": by}, "created_at": stamp()}
        project.timeline.setdefault(number, []).append(event)
    else:
        project.labelled(number, name, by)


def say(kind: str, project: Any, number: int, text: str, by: str) -> None:
    """Somebody comments on an issue."""
    if kind == "gitlab":
        project.say("issues", number, text, by)
    else:
        project.say(number, text, by)


Make = Callable[..., Remote]


def _redact(text: str) -> str:
    """As the vault's: it knows what it lends."""
    return text.replace(TOKEN, "[hidden]")


def remote(kind: str, stand_in: StandIn[Project], group: str = "team", token: str = TOKEN, **more: Any) -> Remote:
    """A new project of a stand-in, with the forge and tracker that its settings (``more``) make."""
    return _on(kind, stand_in.project(group), stand_in.url, token, more)


def _on(kind: str, project: Project, url: str, token: str, more: Mapping[str, Any]) -> Remote:
    lent: list[Scope] = []

    @contextmanager
    def lend(scope: Scope) -> Iterator[SecretStr]:
        lent.append(scope)
        yield SecretStr(token)

    settings = Repository.model_validate(
        {"forge": kind, "url": f"{url}/{project.path}", "credential": {"token": {"file": "/nowhere"}}, **more}
    )
    forge, tracker = _KINDS[kind][1]("demo", settings, lend, lend, Paces(Tempo(gap=0.0, first=1.0)), _redact)
    return Remote(kind, project, forge, tracker, settings, lent)


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], StandIn[Any]]]:
    """The stand-in of a kind; each is started when it is first asked for, once a worker."""
    running: dict[str, StandIn[Any]] = {}
    with ExitStack() as ends:

        def of(kind: str) -> StandIn[Any]:
            if kind not in running:
                folder = tmp_path_factory.mktemp(kind)
                running[kind] = ends.enter_context(serving(_KINDS[kind][0](folder)))
            return running[kind]

        yield of


@pytest.fixture
def make_remote(stand_ins: Callable[[str], StandIn[Any]]) -> Make:
    """Makes a project of a kind: ``make_remote("gitlab", group="team/sub")``."""

    def make(kind: str, **more: Any) -> Remote:
        return remote(kind, stand_ins(kind), **more)

    return make
