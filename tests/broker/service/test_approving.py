"""A person's word binds to one content and to what he was shown; whoever else wants to use it gets nothing by it."""

from __future__ import annotations

import contextlib

import pytest

from broker.errors import AbsentError, BrokerError, ConflictError, ForgeError
from broker.outbox.digest import digest
from broker.person_wire import Approval
from broker.server import build
from broker.testing import PretendTracker
from broker.wire import Receipt, Refusal

pytestmark = pytest.mark.slow

PROTECTED = {"package.json": b"{}\n"}


def approve(house, refusal, by_uid=7, **more):
    word = Approval.model_validate({"digest": refusal.digest, "note": "looked at it", **more})
    return house.service.proposals.approve(refusal.proposal, word, by_uid=by_uid)


def with_policy(house, **policy):
    """The same settings with another policy, as after a change of broker.toml."""
    demo = house.config.repositories["demo"]
    new = demo.policy.model_copy(update=policy)
    return house.config.model_copy(update={"repositories": {"demo": demo.model_copy(update={"policy": new})}})


def test_an_approved_proposal_is_delivered_and_says_by_whom(forged):
    house, forge = forged()
    refusal = house.offer(PROTECTED)
    assert (refusal.waits, forge.pushes) == (False, [])
    receipt = approve(house, refusal)
    assert isinstance(receipt, Receipt)
    assert "protected-path" in {warning.rule for warning in receipt.warnings}
    assert {warning.severity for warning in receipt.warnings} == {"warn"}
    (pull,) = forge.pulls()
    assert "uid 7" in pull.body
    assert forge.statuses[receipt.commit].description.startswith("approved by uid 7")
    entry = next(entry for entry in house.service.log(0).entries if entry.event == "approve")
    assert (entry.fields["uid"], entry.fields["digest"]) == ("7", refusal.digest)


def test_a_policy_that_wants_a_person_makes_every_proposal_wait(forged):
    house, forge = forged(policy={"approval": True})
    refusal = house.offer(house.good)
    assert refusal.waits
    assert house.rules(refusal) >= {"approval"}
    assert forge.pushes == []
    assert isinstance(approve(house, refusal), Receipt)


def test_an_approval_is_used_once_and_again_is_no_harm(forged):
    house, forge = forged()
    refusal = house.offer(PROTECTED)
    assert approve(house, refusal) == approve(house, refusal)
    assert house.offer(PROTECTED) == approve(house, refusal)
    assert len(forge.pushes) == len(forge.pulls()) == 1


def test_the_digest_names_every_word_and_every_byte(house):
    tree = house.agent.tree(house.grant().base_commit, house.good)
    proposal = house.proposal(tree)
    others = (
        proposal.model_copy(update={"title": "Fix clamp "}),
        proposal.model_copy(update={"body": "x"}),
        proposal.model_copy(update={"tree": "0" * 40}),
        proposal.model_copy(update={"base_commit": "0" * 40}),
        proposal.model_copy(update={"task": "t2"}),
        proposal.model_copy(update={"update": True}),
        proposal.model_copy(update={"evidence": proposal.evidence.model_copy(update={"model": "m"})}),
    )
    names = {digest("demo", one) for one in (proposal, *others)} | {digest("other", proposal)}
    assert len(names) == len(others) + 2
    same = proposal.model_copy(update={"id": "another", "capability": "other"})
    assert digest("demo", same) == digest("demo", proposal)


def test_a_word_for_other_content_approves_nothing(forged):
    house, forge = forged()
    house.grant(uses=2)
    first, second = house.offer(PROTECTED), house.offer({"package.json": b"{ }\n"}, id="second")
    with pytest.raises(ConflictError, match="names other content"):
        approve(house, second, digest=first.digest)
    assert forge.pushes == []


def test_content_that_was_swapped_on_disk_after_the_approval_is_not_delivered(forged):
    house, forge = forged()
    refusal = house.offer(PROTECTED)
    (file,) = (house.config.state / "outbox").iterdir()
    file.write_bytes(file.read_bytes().replace(b'"title":"Fix clamp"', b'"title":"Fix CLAMP"'))
    with pytest.raises(BrokerError, match="is not what arrived"):
        approve(house, refusal)
    assert forge.pushes == []


def test_what_is_fatal_is_never_approved(forged):
    house, forge = forged()
    tree = house.agent.raw_tree(("100644", b".git", house.agent.blob(b"x")))
    refusal = house.service.proposals.propose(house.proposal(tree), house.agent.pack_of(tree))
    assert {finding.severity for finding in refusal.findings} >= {"fatal"}
    with pytest.raises(ConflictError, match="can never be approved"):
        approve(house, refusal)
    assert forge.pushes == []


def test_an_approval_covers_what_was_shown_and_not_what_a_stricter_policy_finds_later(forged):
    house, forge = forged()
    refusal = house.offer({**PROTECTED, "src/more.py": b"more = 1\n"})
    house.service.close()
    stricter = with_policy(house, allowed_paths=("package.json",))
    with contextlib.closing(build(stricter, {"demo": forge}, {"demo": PretendTracker()})) as service:
        house.service = service
        again = approve(house, refusal)
        assert isinstance(again, Refusal)
        assert ("path-not-allowed", "src/more.py") in {(finding.rule, finding.path) for finding in again.findings}
        assert (again.digest, forge.pushes) == (refusal.digest, [])
        assert isinstance(approve(house, again), Receipt)


def test_an_approval_is_carried_over_a_kill(forged):
    house, forge = forged()
    refusal = house.offer(PROTECTED)
    forge.before["push"].append(ForgeError("down"))
    with pytest.raises(ForgeError):
        approve(house, refusal)
    with contextlib.closing(build(house.config, {"demo": forge}, {"demo": PretendTracker()})) as service:
        house.service = service
        service.proposals.resume("reconciled")
        assert isinstance(service.proposals.status("t1-p"), Receipt)
        assert "uid 7" in forge.pulls()[0].body


def test_a_discarded_or_unknown_proposal_is_not_approved(forged):
    house, _ = forged()
    refusal = house.offer(PROTECTED)
    house.service.proposals.discard("t1-p", by_uid=0)
    with pytest.raises(AbsentError, match="no longer kept"):
        approve(house, refusal)
    with pytest.raises(AbsentError, match="no proposal"):
        house.service.proposals.approve("nothing", Approval(digest=refusal.digest), by_uid=0)


def test_what_is_not_refused_is_not_approved(forged):
    house, forge = forged()
    forge.before["push"].append(ForgeError("down"))
    with pytest.raises(ForgeError):
        house.offer(house.good)
    kept = house.service.proposals.kept("t1-p")
    with pytest.raises(ConflictError, match="is not refused"):
        house.service.proposals.approve("t1-p", Approval(digest=kept.digest), by_uid=0)


def test_a_branch_that_stood_in_the_way_can_be_removed_and_the_same_content_approved(forged):
    house, forge = forged()
    house.grant()
    forge.branches["swarm/t1"] = forge.branches["main"]
    refusal = house.offer(house.good)
    assert house.rules(refusal) == {"branch-taken"}
    again = approve(house, refusal)  # nothing has changed yet
    assert house.rules(again) == {"branch-taken"}
    del forge.branches["swarm/t1"]
    assert isinstance(approve(house, again), Receipt)


def test_a_grant_that_was_taken_back_leaves_its_proposals_to_a_person(forged):
    house, forge = forged()
    grant = house.grant()
    forge.before["push"].append(ForgeError("down"))
    with pytest.raises(ForgeError):
        house.offer(house.good)
    house.service.grants.revoke(grant.id, by_uid=0)
    house.service.proposals.resume()
    refusal = house.service.proposals.status("t1-p")
    assert (house.rules(refusal), forge.pushes) == ({"grant-withdrawn"}, [])
    assert isinstance(approve(house, refusal), Receipt)
