"""The same over forges of others: the broker dies at every row, answers get lost, and there is one pull request."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from broker.config.settings import BrokerConfig
from broker.errors import ForgeError
from broker.server import build
from broker.service.service import Service
from broker.wire import Grant, GrantRequest, Proposal, Receipt, Refusal
from tests.broker.service.dying import MOMENTS, Fatal, Killed
from tests.forges.bare import Bare
from tests.forges.remote import NEW_PULL, REMOTE_KINDS, Remote
from tests.forges.stand_in import Fault


@dataclass
class Afar:
    """A broker on a project of a stand-in, and an agent that offers to it."""

    config: BrokerConfig
    remote: Remote
    agent: Bare
    service: Service
    granted: Grant | None = None

    def grant(self) -> Grant:
        """Asked once."""
        if self.granted is None:
            request = GrantRequest(repository="demo", task="t1", uses=5)
            self.granted = self.service.grants.grant(request, by="uid:0")
        return self.granted

    def offer(self, text: str = "new\n", *, on: str = "", **more: Any) -> Receipt | Refusal:
        """One changed file."""
        grant = self.grant()
        base = on or grant.base_commit
        if on:
            self.agent.take(self.remote.project.bare.path)
        tree = self.agent.git("rev-parse", f"{self.agent.commit({'new.txt': text}, base)}^{{tree}}")
        words = {"id": "p", "capability": grant.capability, "task": "t1", "base_commit": base, "tree": tree}
        proposal = Proposal.model_validate({**words, "title": "T", **more})
        return self.service.proposals.propose(proposal, self.agent.packed(tree, base))

    def again(self) -> Service:
        """Another broker on the same state."""
        self.service = build(self.config, {"demo": self.remote.forge}, {"demo": self.remote.tracker})
        self.service.proposals.resume("reconciled")
        return self.service

    def assert_once(self, receipt: Receipt | Refusal) -> None:
        """One branch on the one commit, one pull request."""
        assert isinstance(receipt, Receipt)
        assert self.remote.project.bare.head("swarm/t1") == receipt.commit
        assert self.remote.count() == 1
        assert self.remote.forge.pull(receipt.number).commit == receipt.commit


@pytest.fixture(params=REMOTE_KINDS)
def afar(request: pytest.FixtureRequest, make_remote: Any, tmp_path: Any, settings_for: Any) -> Iterator[Afar]:
    """For each kind of forge."""
    labels = {"labels": ["agent"], "allowed_paths": [], "tests_deleted": "allow"}
    remote = make_remote(request.param, policy={**labels, "max_files": 50})
    config = settings_for(tmp_path).model_copy(update={"repositories": {"demo": remote.settings}})
    config.state.mkdir(mode=0o700)
    agent = Bare.create(tmp_path / "agents.git")
    agent.take(remote.project.bare.path)
    service = build(config, {"demo": remote.forge}, {"demo": remote.tracker})
    made = Afar(config, remote, agent, service)
    yield made
    made.service.close()


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS, ids="-".join)
def test_a_kill_at_any_row_is_finished_by_the_next_start(afar, moment):
    outbox = afar.service.desk.outbox
    outbox.steps = Fatal(outbox.database)
    outbox.steps.moment = moment
    with pytest.raises(Killed):
        afar.offer()
    old = afar.service
    service = afar.again()
    afar.assert_once(service.proposals.status("p"))
    afar.assert_once(afar.offer())
    old.close()


@pytest.mark.slow
@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_pull_request_that_was_opened_although_the_answer_was_an_error_is_found(afar, status):
    afar.grant()
    afar.remote.project.faults.append(Fault(method="POST", path=NEW_PULL, status=status, after=True))
    with contextlib.suppress(ForgeError):
        afar.offer()
    afar.assert_once(afar.offer(id="under-another-id"))


@pytest.mark.slow
@pytest.mark.parametrize("status", [408, 429, 503])
def test_a_passing_word_of_gits_is_no_verdict(afar, status):
    afar.grant()
    afar.remote.project.push_faults.append(status)
    with pytest.raises(ForgeError) as caught:
        afar.offer()
    assert (caught.value.when is not None) == (status == 429)
    afar.assert_once(afar.offer())


@pytest.mark.slow
def test_a_pull_request_that_is_said_to_be_there_and_not_shown_is_looked_for_again(afar):
    """Lists lag behind: it may be the broker's own, whose answer was lost."""
    afar.grant()
    words = {
        "message": "Validation Failed",
        "errors": [{"message": "A pull request already exists for team:swarm/t1."}],
    }
    afar.remote.project.faults.append(Fault(method="POST", path=NEW_PULL, status=422, body=words))
    with pytest.raises(ForgeError) as caught:
        afar.offer()
    assert (caught.value.reason, caught.value.uncertain) == ("duplicate", True)
    afar.assert_once(afar.offer())


@pytest.mark.slow
def test_an_update_moves_the_one_pull_request_forward_and_gives_it_new_words(afar):
    first = afar.offer()
    second = afar.offer("newer\n", on=first.commit, id="u", update=True, title="Better", body="Because.")
    afar.assert_once(second)
    afar.agent.take(afar.remote.project.bare.path)
    assert afar.agent.git("rev-parse", f"{second.commit}^") == first.commit
    pull = afar.remote.forge.pull(second.number)
    assert ("Better" in pull.title, "Because." in pull.body) == (True, True)
    assert afar.remote.forge.find("swarm/t1", "main").number == second.number


@pytest.mark.slow
def test_a_pull_request_that_a_person_closed_stays_closed(afar):
    first = afar.offer()
    afar.remote.forge.close(first.number)
    refused = afar.offer("newer\n", on=first.commit, id="u", update=True)
    assert {finding.rule for finding in refused.findings} >= {"pull-closed"}
    assert (afar.remote.count(), afar.remote.project.bare.head("swarm/t1")) == (1, first.commit)


@pytest.mark.slow
def test_a_person_who_pushed_to_the_branch_is_respected(afar):
    first = afar.offer()
    bare = afar.remote.project.bare
    theirs = bare.commit({"theirs.txt": "x\n"}, first.commit, branch="swarm/t1")
    refused = afar.offer("newer\n", on=first.commit, id="u", update=True)
    assert {finding.rule for finding in refused.findings} >= {"branch-moved"}
    on_top = afar.offer("newer\n", on=theirs, id="v", update=True)
    afar.assert_once(on_top)
