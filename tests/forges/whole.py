"""The whole broker with its vault before a stand-in, and the store of an agent that proposes to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.config.settings import BrokerConfig
from broker.server import build
from broker.service.service import Service
from broker.wire import Grant, GrantRequest, Proposal, Receipt, Refusal
from tests.forges.bare import Bare
from tests.forges.remote import Make, Remote
from tests.forges.stand_in import TOKEN


@dataclass
class Whole:
    """Both, and what the forge holds."""

    config: BrokerConfig
    service: Service
    here: Remote
    agent: Bare
    grants: dict[str, Grant] = field(default_factory=dict)

    def grant(self, task: str) -> Grant:
        """A person's; asked once."""
        if task not in self.grants:
            self.grants[task] = self.service.grants.grant(GrantRequest(repository="web", task=task), by="uid:0")
        return self.grants[task]

    def propose(self, task: str = "t1", **more: object) -> Receipt | Refusal:
        """One changed file on the granted base, under a person's grant."""
        grant = self.grant(task)
        commit = self.agent.commit({"a.txt": f"{task}\n", "b.txt": "two\n"}, grant.base_commit)
        tree = self.agent.git("rev-parse", f"{commit}^{{tree}}")
        values = {"id": f"{task}-p", "capability": grant.capability, "task": task, "base_commit": grant.base_commit}
        proposal = Proposal.model_validate({**values, "tree": tree, "title": "Mend it", **more})
        return self.service.proposals.propose(proposal, self.agent.packed(tree, grant.base_commit))

    def again(self) -> None:
        """The broker ends and another opens the same state."""
        self.service.close()
        self.service = build(self.config)
        self.service.proposals.resume("reconciled")


MakeWhole = Callable[..., Whole]


@pytest.fixture
def make_whole(make_remote: Make, tmp_path: Path) -> Iterator[MakeWhole]:
    """Makes one: ``make_whole("gitlab", api=...)``; what is named goes to the repository's settings."""
    made: list[Whole] = []

    def make(kind: str, **more: object) -> Whole:
        here = make_remote(kind)
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        (tmp_path / "token").chmod(0o600)
        (tmp_path / "state").mkdir(mode=0o700)
        agent = Bare.create(tmp_path / "agent.git")
        agent.take(here.project.bare.path)
        repository = {
            "forge": kind,
            "url": here.settings.url,
            "credential": {"token": {"file": tmp_path / "token"}},
            "policy": {"labels": ["agent"], "reviewers": ["bob"], "assignees": ["ann"]},
            **more,
        }
        config = BrokerConfig.model_validate(
            {
                "socket": tmp_path / "broker.sock",
                "state": tmp_path / "state",
                "roles": {"person": [os.getuid()], "coordinator": [os.getuid()]},
                "repositories": {"web": repository},
            }
        )
        made.append(Whole(config, build(config), here, agent))
        return made[-1]

    yield make
    for one in made:
        one.service.close()
