"""A proposal becomes a pull request on forges of others: the whole broker with its vault, before stateful stand-ins."""

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
from broker.wire import Evidence, Grant, GrantRequest, Proposal, Receipt, Refusal, TestResult
from tests.forges.bare import PROTECTED_BRANCH, Bare
from tests.forges.remote import NEW_PULL, REMOTE_KINDS, Make, Remote
from tests.forges.stand_in import TOKEN, Fault

HOSTILE = "Closes #7.\n\n/merge\n/approve\n/label ~security\n> /close\n@ann <!-- hidden --> ![x](http://evil/x.png)"


@dataclass
class Whole:
    """A broker on a stand-in, and the store of an agent that proposes to it."""

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
        self.service.reconcile()


@pytest.fixture
def make_whole(make_remote: Make, tmp_path: Path) -> Iterator[Callable[[str], Whole]]:
    made: list[Whole] = []

    def make(kind: str) -> Whole:
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


@pytest.fixture(params=REMOTE_KINDS)
def whole(request: pytest.FixtureRequest, make_whole: Callable[[str], Whole]) -> Whole:
    return make_whole(request.param)


def shown(whole: Whole) -> str:
    """All that the forge holds of pull requests, as text."""
    return str([whole.here.pull(number) for number in range(1, whole.here.count() + 1)])


def test_a_proposal_becomes_a_dressed_draft_on_one_branch(whole):
    evidence = Evidence(after=TestResult(command="pytest\n/merge", exit_code=0, passed=3), model="/approve")
    receipt = whole.propose(body=HOSTILE, evidence=evidence)
    assert isinstance(receipt, Receipt), receipt
    pull = whole.here.forge.pull(receipt.number)
    assert (pull.state, pull.draft, pull.title, pull.task) == ("open", True, "[agent] Mend it", "t1")
    assert (pull.commit, pull.base_commit, pull.proposal) == (receipt.commit, whole.here.project.base, "t1-p")
    assert all(name in shown(whole) for name in ("agent", "bob", "ann"))
    assert len(whole.here.project.statuses[receipt.commit]) == 1
    [push] = whole.here.project.bare.arrived()
    assert [update.ref for update in push.updates] == ["refs/heads/swarm/t1"]
    assert whole.here.project.bare.head("main") == whole.here.project.base


def test_hostile_words_do_nothing_on_gitlab(make_whole):
    """The stand-in executes quick actions wherever it finds them."""
    whole = make_whole("gitlab")
    receipt = whole.propose(title="/merge", body=HOSTILE, evidence=Evidence(fixed=("\n/merge\n",), model="\n/close"))
    assert isinstance(receipt, Receipt), receipt
    assert whole.here.project.actions == []
    assert whole.here.forge.pull(receipt.number).state == "open"
    assert "security" not in whole.here.project.labels


def test_an_answer_that_was_lost_ends_in_one_pull_request(whole):
    whole.here.project.faults.append(Fault("POST", NEW_PULL, 504, after=True))
    receipt = whole.propose()
    assert isinstance(receipt, Receipt), receipt
    assert whole.propose() == receipt
    assert (whole.here.count(), len(whole.here.project.bare.arrived())) == (1, 1)


@pytest.mark.parametrize("kind", ["gitea", "gitlab"])  # GitHub's is looked at for seconds: see tests/forges
def test_a_forge_that_fails_is_finished_by_the_next_broker_once(make_whole, kind):
    whole = make_whole(kind)
    whole.here.project.faults.append(Fault("POST", NEW_PULL, 500))
    with pytest.raises(BrokerError):
        whole.propose()
    assert whole.here.count() == 0
    whole.again()
    receipt = whole.service.proposals.status("t1-p")
    assert isinstance(receipt, Receipt), receipt
    assert (whole.here.count(), len(whole.here.project.bare.arrived())) == (1, 1)


def test_the_forges_own_refusal_is_told_and_neither_it_nor_the_log_holds_the_token(whole):
    whole.here.project.bare.refuse(PROTECTED_BRANCH.format(branch="swarm/t1") + f"{TOKEN}\n")
    with pytest.raises(BrokerError) as caught:
        whole.propose()
    assert "protects" in str(caught.value)
    assert TOKEN not in f"{caught.value} {caught.value.mend}"
    assert whole.here.count() == 0
    whole.service.close()
    kept = [file for file in whole.config.state.rglob("*") if file.is_file()]
    assert kept
    assert not [file for file in kept if TOKEN.encode() in file.read_bytes()]
