"""A proposal becomes a pull request on forges of others: the whole broker with its vault, before stateful stand-ins."""

from __future__ import annotations

import pytest

from broker.errors import BrokerError
from broker.wire import Evidence, Receipt, TestResult
from tests.forges.bare import PROTECTED_BRANCH
from tests.forges.remote import NEW_PULL, REMOTE_KINDS
from tests.forges.stand_in import TOKEN, Fault
from tests.forges.whole import MakeWhole, Whole

pytestmark = pytest.mark.slow

HOSTILE = "Closes #7.\n\n/merge\n/approve\n/label ~security\n> /close\n@ann <!-- hidden --> ![x](http://evil/x.png)"


# GitLab is the most dangerous to have words on; the others take the same way, and longer together.
KINDS = [pytest.param(kind, marks=() if kind == "gitlab" else pytest.mark.slow) for kind in REMOTE_KINDS]


@pytest.fixture(params=KINDS)
def whole(request: pytest.FixtureRequest, make_whole: MakeWhole) -> Whole:
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


@pytest.mark.parametrize("kind", KINDS[1:])  # GitHub's is looked at for seconds: see tests/forges
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
