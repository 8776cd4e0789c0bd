"""One followed repository on a pretend forge: its clock, its settings and its grants are the test's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from broker.audit import Audit
from broker.config.repository import Repository
from broker.errors import StoppedError
from broker.followup.followup import Follower
from broker.followup.ledger import Ledger
from broker.followup.parts import Followed
from broker.testing import PretendForge, PretendTracker
from broker.wire import Event, Grant, GrantRequest, PullRequest

BASE = "a" * 40
NOW = 1_800_000_000.0


@dataclass(frozen=True)
class Mine:
    """A pull request of the broker's own records."""

    number: int
    task: str
    commits: frozenset[str]

    @property
    def branch(self) -> str:
        return f"swarm/{self.task}"


@dataclass
class World:
    """A forge, what is known of it, and a follower that may be killed and made anew at any time."""

    folder: Path
    now: float = NOW
    intake: dict[str, Any] = field(default_factory=lambda: {"label": "agent", "command": "/swarm"})
    follow: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    own: list[Mine] = field(default_factory=list)
    granted: list[tuple[GrantRequest, str]] = field(default_factory=list)
    grant_errors: list[Exception] = field(default_factory=list)
    stopped: bool = False

    def __post_init__(self) -> None:
        self.tracker = PretendTracker(clock=lambda: self.now)
        self.forge = PretendForge("demo", self.folder / "forge.git")
        self.tracker.permissions["alice"] = "write"
        self.open()

    def open(self) -> None:
        """A process begins with what is on disk."""
        self.ledger = Ledger(self.folder)
        self.audit = Audit(self.folder / "audit.log", clock=lambda: self.now)
        self.follower = Follower(self.followed())

    def close(self) -> None:
        self.ledger.close()
        self.audit.close()

    def again(self) -> None:
        """A restart."""
        self.close()
        self.open()

    def followed(self) -> Followed:
        return Followed(
            name="demo",
            forge=self.forge,
            tracker=self.tracker,
            settings=self.settings,
            own=lambda: tuple(self.own),
            grant=self.grant,
            running=self.running,
            newest=lambda: None,
            tidy=lambda: None,
            ledger=self.ledger,
            audit=self.audit,
            clock=lambda: self.now,
        )

    def settings(self) -> Repository:
        values = {"forge": "local", "path": "/nowhere", "intake": self.intake, "follow": self.follow}
        return Repository.model_validate({**values, "policy": self.policy})

    def running(self) -> None:
        if self.stopped:
            raise StoppedError("a person stopped it")

    def grant(self, request: GrantRequest, by: str) -> Grant:
        if self.grant_errors:
            raise self.grant_errors.pop(0)
        self.granted.append((request, by))
        return Grant(
            capability="secret", repository="demo", base="main", base_commit=BASE, branch=f"swarm/{request.task}",
            expires=self.now + request.seconds, id="f" * 32,
        )  # fmt: skip

    def look(self, seconds: float = 60.0) -> None:
        """Time passes, and the forge is looked at."""
        self.now += seconds
        try:
            self.follower.look()
        finally:
            self.now += 1

    def events(self) -> tuple[Event, ...]:
        return self.ledger.page(0, limit=1000).events

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events()]

    def reasons(self, event: str = "intake-declined") -> list[str]:
        return [entry.fields["reason"] for entry in self.audit.page(0) if entry.event == event]

    def pull(self, number: int = 7, task: str = "i1-abc", **more: Any) -> PullRequest:
        """A pull request that the broker opened."""
        commit = more.pop("commit", f"{number:040x}")
        values = {
            "repository": "demo", "number": number, "title": "T", "body": "B", "branch": f"swarm/{task}",
            "base": "main", "base_commit": BASE, "commit": commit, "task": task, "proposal": "p", "created": self.now,
        }  # fmt: skip
        pull = PullRequest.model_validate({**values, **more})
        self.forge._pulls[number] = pull
        self.own = [one for one in self.own if one.number != number] + [Mine(number, task, frozenset({commit}))]
        self.tracker.issue(number, text="B", author="swarm-bot", pull=True)
        return pull

    def pushed(self, number: int, commit: str, *, ours: bool = True) -> None:
        """The branch moves on."""
        self.forge._pulls[number] = self.forge._pulls[number].model_copy(update={"commit": commit})
        mine = next(one for one in self.own if one.number == number)
        commits = mine.commits | {commit} if ours else mine.commits
        self.own = [one for one in self.own if one.number != number] + [Mine(number, mine.task, frozenset(commits))]


Make = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Make]:
    """Makes the world; what is given replaces its fields."""
    made: list[World] = []

    def make(**more: Any) -> World:
        made.append(World(tmp_path, **more))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: Make) -> World:
    """The usual one, which has looked once before anything happened."""
    made = make_world()
    made.look()
    return made
