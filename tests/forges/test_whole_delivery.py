"""The whole broker over parts of others: git behind nginx, a stateful GitHub, GitHub's description between them.

A proposal is judged, rebuilt and delivered by the service with its real vault; what is lost on the way, and a broker
that is opened anew on the same state, end in one branch and one pull request.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.config.settings import BrokerConfig
from broker.errors import BrokerError
from broker.server import build
from broker.service.service import Service
from broker.wire import Grant, GrantRequest, Proposal, Receipt, Refusal
from tests.forges.bare import Bare
from tests.forges.git_server import GitServer
from tests.forges.prism import Prism
from tests.forges.replica import Replica

pytestmark = pytest.mark.forges
CREATE = "github.pulls.create"


@dataclass
class Whole:
    """A broker on a replica, and the store of the agent that proposes to it."""

    config: BrokerConfig
    service: Service
    replica: Replica
    agent: Bare
    guard: Prism
    already: int
    grants: dict[str, Grant] = field(default_factory=dict)

    def grant(self, task: str = "t1") -> Grant:
        """A person's; asked once."""
        if task not in self.grants:
            self.grants[task] = self.service.grants.grant(GrantRequest(repository="web", task=task), by="uid:0")
        return self.grants[task]

    def propose(self, task: str = "t1", **more: object) -> Receipt | Refusal:
        """One changed file on the granted base."""
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

    def pulls(self) -> list[dict[str, object]]:
        """What the replica holds."""
        state = self.replica.state()
        return [{**pull, **state["issues"][number]} for number, pull in state["pulls"].items()]


@pytest.fixture
def whole(
    make_replica: Callable[..., Replica], github_guard: Callable[[str], Prism], git_server: GitServer, tmp_path: Path
) -> Iterator[Whole]:
    replica = make_replica()
    guard = github_guard(replica.api)
    for name, secret in (("api", replica.token), ("git", git_server.password)):
        (tmp_path / name).write_text(f"{secret}\n")
        (tmp_path / name).chmod(0o600)
    agent = Bare.create(tmp_path / "agent.git")
    agent.git("fetch", "-q", str(replica.bare.path), "refs/heads/main:refs/heads/main")
    (tmp_path / "state").mkdir(mode=0o700)
    config = BrokerConfig.model_validate(
        {
            "socket": tmp_path / "broker.sock",
            "state": tmp_path / "state",
            "roles": {"person": [os.getuid()], "coordinator": [os.getuid()]},
            "repositories": {
                "web": {
                    "forge": "github",
                    "url": f"{git_server.url}/{replica.path}",
                    "api": guard.url,
                    "credential": {"token": {"file": tmp_path / "api"}},
                    "push_credential": {"token": {"file": tmp_path / "git"}},
                    "policy": {"labels": ["agent"], "reviewers": ["ann"]},
                }
            },
        }
    )
    one = Whole(config, build(config), replica, agent, guard, len(guard.violations()))
    yield one
    one.service.close()
    assert guard.violations()[one.already :] == []


def test_a_proposal_becomes_a_dressed_draft_on_one_branch(whole):
    receipt = whole.propose()
    assert isinstance(receipt, Receipt), receipt
    [pull] = whole.pulls()
    assert (pull["number"], pull["draft"], pull["title"]) == (receipt.number, True, "[agent] Mend it")
    assert (pull["labels"], pull["requested_reviewers"]) == (["agent"], ["ann"])
    assert whole.replica.bare.head("swarm/t1") == receipt.commit
    contexts = [status["context"] for status in whole.replica.state()["statuses"][receipt.commit]]
    assert contexts == ["agent-swarm/broker"]
    assert len(whole.replica.bare.arrived()) == 1


def test_a_timeout_after_the_commit_ends_in_exactly_one_pull_request(whole):
    whole.replica.fail({"tool": CREATE, "kind": "timeout_after_commit", "on_call": 1})
    receipt = whole.propose()
    assert isinstance(receipt, Receipt), receipt
    assert [pull["number"] for pull in whole.pulls()] == [receipt.number]
    assert whole.propose() == receipt
    assert len(whole.pulls()) == 1
    assert len(whole.replica.bare.arrived()) == 1


@pytest.mark.parametrize("kind", ["bad_gateway", "timeout", "rate_limit"])
def test_a_forge_that_fails_is_finished_by_the_next_broker_once(whole, kind):
    whole.replica.fail({"tool": CREATE, "kind": kind, "on_call": 1})
    with pytest.raises(BrokerError):
        whole.propose()
    assert whole.pulls() == []
    whole.again()
    receipt = whole.service.proposals.status("t1-p")
    assert isinstance(receipt, Receipt), receipt
    assert [pull["number"] for pull in whole.pulls()] == [receipt.number]
    assert len(whole.replica.bare.arrived()) == 1


def test_two_tasks_are_two_pull_requests_and_neither_touches_the_other(whole):
    first, second = whole.propose("t1"), whole.propose("t2")
    assert isinstance(first, Receipt)
    assert isinstance(second, Receipt)
    assert {pull["number"] for pull in whole.pulls()} == {first.number, second.number}
    heads = whole.replica.bare.refs()
    assert heads == {
        "refs/heads/main": whole.replica.base,
        "refs/heads/swarm/t1": first.commit,
        "refs/heads/swarm/t2": second.commit,
    }
