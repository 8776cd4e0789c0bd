"""Updates of an own pull request: only forward, only on what is there, only so often, and never against a person."""

from __future__ import annotations

import pytest

from broker.errors import ConflictError, ForgeError
from broker.outbox.rows import Approved
from broker.person_wire import Approval
from broker.wire import MirrorRequest, Receipt

pytestmark = pytest.mark.slow

MORE = {"src/more.py": b"more = 1\n"}


class Pausing:
    """Steps that let something else happen before one of them."""

    def __init__(self, steps, name, act):
        self._steps, self._name, self._act = steps, name, act

    def __getattr__(self, name):
        return getattr(self._steps, name)

    def begin(self, proposal, name):
        self._steps.begin(proposal, name)
        if name == self._name:
            self._act()


@pytest.fixture
def opened(forged):
    """A house with an open pull request and uses left."""
    house, forge = forged()
    house.grant(uses=9)
    return house, forge, house.offer(house.good)


def somebody_pushes(house, forge, on, message="theirs"):
    """A person's commit on the task's branch."""
    house.agent.git("fetch", "-q", str(forge.git.path), on)
    commit = house.agent.commit(house.agent.tree(on, {"NOTES": b"mine\n"}), on, message=message)
    pack = house.agent._pack(["--revs"], f"{commit}\n^{on}\n")
    forge.git.run("index-pack", "--stdin", "--fix-thin", stdin=[pack])
    forge.branches["swarm/t1"] = commit
    return commit


def test_an_update_moves_the_branch_forward_by_one_commit_and_revises_the_words(opened, updates):
    house, forge, first = opened
    receipt = updates(house, forge, MORE, first.commit, title="Fix clamp, and more", body="New words.")
    assert isinstance(receipt, Receipt)
    assert (receipt.number, forge.branches["swarm/t1"]) == (first.number, receipt.commit)
    assert forge.git.text("rev-parse", f"{receipt.commit}^@") == first.commit
    assert forge.git.run("show", f"{receipt.commit}:src/more.py") == b"more = 1\n"
    (pull,) = forge.pulls()
    assert (pull.title, "New words." in pull.body) == ("[agent] Fix clamp, and more", True)
    (own,) = house.service.desk.outbox.own("demo")
    assert (own.rounds, own.commits) == (1, {first.commit, receipt.commit})


def test_the_mirror_serves_the_branch_that_an_update_is_built_on(opened):
    house, _, first = opened
    commit, pack = house.service.reads.mirror(MirrorRequest(capability=house.grant().capability, head=True))
    pack.close()
    assert commit == first.commit


def test_the_same_update_again_is_the_same_receipt(opened, updates):
    house, forge, first = opened
    receipt = updates(house, forge, MORE, first.commit)
    assert updates(house, forge, MORE, first.commit) == receipt
    assert updates(house, forge, MORE, first.commit, id="other") == receipt
    assert len(forge.pushes) == 2


def test_only_what_the_update_itself_changes_is_judged(opened, updates):
    house, forge, first = opened
    theirs = somebody_pushes(house, forge, first.commit)
    refused = updates(house, forge, {"package.json": b"{}\n"}, theirs)
    assert house.rules(refused) >= {"protected-path"}
    assert isinstance(updates(house, forge, MORE, theirs, id="good"), Receipt)


def test_an_update_on_a_commit_that_a_person_has_passed_is_refused(opened, updates):
    house, forge, first = opened
    theirs = somebody_pushes(house, forge, first.commit)
    assert house.rules(updates(house, forge, MORE, first.commit)) == {"branch-moved"}
    assert forge.branches["swarm/t1"] == theirs
    assert isinstance(updates(house, forge, MORE, theirs, id="on-top"), Receipt)


def test_a_person_who_pushes_between_look_and_push_wins(opened, updates):
    house, forge, first = opened
    theirs = []
    forge.race = lambda: theirs.append(somebody_pushes(house, forge, first.commit))
    assert house.rules(updates(house, forge, MORE, first.commit)) == {"branch-moved"}
    assert forge.branches["swarm/t1"] == theirs[0]


def test_a_person_who_pushes_on_top_of_a_push_whose_answer_was_lost_is_respected_and_told(opened, updates):
    house, forge, first = opened
    forge.after["push"].append(ForgeError("504"))
    outbox = house.service.desk.outbox
    outbox.steps = Pausing(outbox.steps, "compared", lambda: somebody_pushes(house, forge, forge.branches["swarm/t1"]))
    receipt = updates(house, forge, MORE, first.commit)
    assert isinstance(receipt, Receipt)
    assert "branch-ahead" in {warning.rule for warning in receipt.warnings}
    assert forge.branches["swarm/t1"] != receipt.commit
    assert forge.git.succeeds("merge-base", "--is-ancestor", receipt.commit, forge.branches["swarm/t1"])


def test_an_update_cannot_be_built_on_a_commit_that_only_the_mirror_knows(opened, updates):
    house, forge, _ = opened
    assert house.rules(updates(house, forge, MORE, house.grant().base_commit)) == {"branch-moved"}


def test_a_pull_request_that_a_person_closed_is_not_pushed_to(opened, updates):
    house, forge, first = opened
    forge.close(first.number)
    assert "pull-closed" in house.rules(updates(house, forge, MORE, first.commit))
    assert forge.branches["swarm/t1"] == first.commit


def test_a_merged_pull_request_takes_no_update(opened, updates):
    house, forge, first = opened
    forge.merge(first.number, "me")
    assert "pull-merged" in house.rules(updates(house, forge, MORE, first.commit))


def test_a_task_whose_pull_request_a_person_closed_opens_no_other_under_the_same_grant(opened):
    house, forge, first = opened
    forge.close(first.number)
    del forge.branches["swarm/t1"]
    refused = house.offer(MORE, id="anew")
    assert house.rules(refused) == {"pull-closed"}
    assert len(forge.pulls()) == 1


def test_the_same_content_under_a_new_grant_is_not_answered_with_what_the_old_one_delivered(opened):
    house, forge, first = opened
    forge.close(first.number)
    del forge.branches["swarm/t1"]
    del house.grants["t1"]
    again = house.offer(house.good, id="anew")
    assert (again.number != first.number, forge.branches["swarm/t1"]) == (True, again.commit)


def test_the_id_of_what_was_delivered_opens_no_other_branch_to_explain(opened):
    house, forge, _ = opened
    main = forge.branches["main"]
    embargo = house.agent.commit(house.agent.tree(main, {"secret/plan": b"4711\n"}), main)
    forge.git.run("index-pack", "--stdin", "--fix-thin", stdin=[house.agent._pack(["--revs"], f"{embargo}\n^{main}\n")])
    forge.branches["embargo"] = embargo
    house.service.desk.wards.get("demo").mirror.refresh("embargo")
    tree = house.agent.tree(None, {"secret/plan": b"4711\n"})
    pack = house.agent.pack(tree, None)
    proposal = house.proposal(tree, update=True, base_commit=embargo)
    with pytest.raises(ConflictError, match="was used for something else"):
        house.service.proposals.explain(proposal, pack)
    fresh = house.service.proposals.explain(proposal.model_copy(update={"id": "fresh"}), pack)
    assert ({finding.rule for finding in fresh.findings}, fresh.files) == ({"branch-moved"}, ())


def test_nothing_to_update_is_told(forged, updates):
    house, forge = forged()
    base = house.grant().base_commit
    assert house.rules(updates(house, forge, MORE, base)) >= {"no-pull-request"}
    assert forge.pushes == []


def test_no_word_of_a_persons_lets_an_update_out_that_was_judged_against_nothing(opened, updates):
    house, forge, _ = opened
    updates(house, forge, MORE, house.grant().base_commit)
    house.grant("t2")
    tree = house.agent.tree(house.grant("t2").base_commit, {"package.json": b"{}\n"})
    of_nothing = house.proposal(tree, "t2", update=True)
    house.service.proposals.propose(of_nothing, house.agent.pack(tree, of_nothing.base_commit))
    for proposal, rule in (("t1-u", "branch-moved"), ("t2-p", "no-pull-request")):
        refusal = house.service.proposals.status(proposal)
        assert [(finding.rule, finding.severity) for finding in refusal.findings] == [(rule, "fatal")]
        with pytest.raises(ConflictError, match="can never be approved"):
            house.service.proposals.approve(proposal, Approval(digest=refusal.digest), by_uid=0)
        _approved_by_an_older_broker(house, refusal)
    house.service.proposals.resume("reconciled")
    assert house.rules(house.service.proposals.status("t1-u")) == {"branch-moved"}
    assert house.rules(house.service.proposals.status("t2-p")) == {"no-pull-request"}
    assert len(forge.pushes) == 1


def _approved_by_an_older_broker(house, refusal):
    covers = frozenset((finding.rule, finding.path) for finding in refusal.findings)
    house.service.desk.outbox.approve(refusal.proposal, Approved(refusal.digest, 0, 0.0, "", covers))


def test_an_approved_update_of_a_closed_pull_request_is_not_pushed_either(opened, updates):
    house, forge, first = opened
    forge.close(first.number)
    refusal = updates(house, forge, MORE, first.commit)
    again = house.service.proposals.approve("t1-u", Approval(digest=refusal.digest), by_uid=0)
    assert house.rules(again) == {"pull-closed"}
    assert forge.branches["swarm/t1"] == first.commit


def test_rounds_are_capped_and_then_a_person_decides(forged, updates):
    house, forge = forged()
    house.grant(uses=9)
    head = house.offer(house.good).commit
    for number in range(3):
        head = updates(house, forge, {"src/more.py": f"more = {number}\n".encode()}, head, id=f"u{number}").commit
    refusal = updates(house, forge, {"src/more.py": b"more = 3\n"}, head, id="u3")
    assert (house.rules(refusal), refusal.waits) == ({"needs-human"}, True)
    word = Approval(digest=refusal.digest)
    assert isinstance(house.service.proposals.approve("u3", word, by_uid=0), Receipt)


@pytest.mark.parametrize(
    ("moment", "call"),
    [("after", "push"), ("before", "push")]
    + [pytest.param(moment, call, marks=pytest.mark.slow)
       for moment in ("before", "after") for call in ("head", "revise", "report", "pull")],
)  # fmt: skip
def test_an_update_that_a_failing_forge_interrupted_is_finished_once(opened, updates, call, moment):
    house, forge, first = opened
    getattr(forge, moment)[call].append(ForgeError("the line went dead"))
    try:
        receipt = updates(house, forge, MORE, first.commit)
    except ForgeError:
        assert house.service.proposals.resume() == 1
        receipt = house.service.proposals.status("t1-u")
    assert isinstance(receipt, Receipt)
    assert [commit for _, commit in forge.pushes] == [first.commit, receipt.commit]


def test_explain_gives_an_updates_verdict_too(opened, updates):
    house, forge, first = opened
    house.agent.git("fetch", "-q", str(forge.git.path), first.commit)
    tree = house.agent.tree(first.commit, MORE)
    proposal = house.proposal(tree, id="x", update=True, base_commit=first.commit)
    explained = house.service.proposals.explain(proposal, house.agent.pack(tree, first.commit))
    assert explained.allowed
    assert explained.files == ("added src/more.py",)
    somebody_pushes(house, forge, first.commit)
    explained = house.service.proposals.explain(proposal, house.agent.pack(tree, first.commit))
    assert {finding.rule for finding in explained.findings} == {"branch-moved"}


@pytest.mark.parametrize("moved", [{"branch": "swarm/other"}, {"base": "develop"}])
def test_a_pull_request_that_leads_elsewhere_by_now_is_not_touched(opened, updates, moved):
    """Its words would be another task's, and the signed statement would name it."""
    house, forge, first = opened
    forge._pulls[first.number] = forge._pulls[first.number].model_copy(update=moved)
    refusal = updates(house, forge, MORE, first.commit)
    assert house.rules(refusal) == {"pull-moved"}
    with pytest.raises(ConflictError):
        house.service.proposals.approve("t1-u", Approval(digest=refusal.digest), by_uid=0)
    assert forge.branches["swarm/t1"] == first.commit
