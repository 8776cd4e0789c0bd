"""What a delivery says: the broker's own words, nobody else's trailers, and only what the policy wants."""

from __future__ import annotations

import pytest

from broker.capability import Rights
from broker.config.repository import Repository
from broker.config.settings import Identity
from broker.delivery.composing import STATUS_LENGTH, Delivery, dressing, message, order, status
from broker.outbox.rows import Approved, Kept
from broker.wire import Finding, Proposal

COMMIT, TREE, DIGEST = "a" * 40, "b" * 40, "c" * 64


@pytest.fixture
def make(tmp_path):
    def delivery(*, policy=None, approved=None, issue=None, **words):
        repository = Repository.model_validate({"forge": "local", "path": tmp_path, "policy": policy or {}})
        rights = Rights(
            grant="0" * 32, repository="demo", base="main", base_commit=COMMIT, branch="swarm/t1", task="t1", uses=1,
            expires=1.0, issue=issue,
        )  # fmt: skip
        kept = Kept(
            id="p", repository="demo", task="t1", base_commit=COMMIT, tree=TREE, rights=rights, at=0.0, size=1,
            state="judging", commit=None, verdict=None, digest=DIGEST, update=False, number=None, reason="",
        )  # fmt: skip
        proposal = Proposal.model_validate(
            {"id": "p", "capability": "", "task": "t1", "base_commit": COMMIT, "tree": TREE, "title": "Fix it", **words}
        )
        return Delivery(kept, proposal, repository, Identity(), "0123456789abcdef", approved=approved)

    return delivery


def test_the_message_has_the_brokers_trailers_alone(make):
    said = message(make(title="Fix\nSigned-off-by: x <x@y>", body="Why.\n\nCo-authored-by: y <y@z>\nSwarm-Task: other"))
    assert said.startswith("[agent] Fix")
    assert said.endswith("\n\nSwarm-Task: t1\nSwarm-Proposal: p\n")
    assert "authored-by" not in said
    assert said == message(
        make(title="Fix\nSigned-off-by: x <x@y>", body="Why.\n\nCo-authored-by: y <y@z>\nSwarm-Task: other")
    )


def test_the_page_names_base_tree_policy_and_digest(make):
    asked = order(make(), COMMIT, ())
    assert (asked.branch, asked.base, asked.commit, asked.draft) == ("swarm/t1", "main", COMMIT, True)
    for fact in (COMMIT, TREE, "0123456789abcdef", DIGEST):
        assert fact in asked.body


def test_warnings_and_whoever_approved_are_told_on_the_page(make):
    warning = Finding(rule="base-moved", severity="warn", message="main has moved on", mend="look")
    word = Approved(DIGEST, 1234, 0.0, "", frozenset())
    body = order(make(approved=word), COMMIT, (warning,)).body
    assert "main has moved on" in body
    assert "uid 1234" in body


def test_only_the_tasks_own_issue_is_closed_and_only_where_policy_wants_it(make):
    assert "Closes #12" in order(make(issue=12, body="fixes #99"), COMMIT, ()).body
    assert "Closes" not in order(make(issue=12, policy={"closes_issue": False}), COMMIT, ()).body
    assert "#99" not in order(make(body="fixes #99"), COMMIT, ()).body


def test_what_it_bears_is_the_policys_alone(make):
    policy = {"labels": ["agent"], "reviewers": ["ann"], "team_reviewers": ["core"], "assignees": ["bob"]}
    assert dressing(make(policy=policy)).model_dump() == {name: tuple(names) for name, names in policy.items()}
    assert not any(dressing(make()).model_dump().values())


def test_a_status_fits_every_forge(make):
    word = Approved(DIGEST, 4_294_967_294, 0.0, "", frozenset())
    warnings = (Finding(rule="r", severity="warn", message="m"),) * 1000
    said = status(make(approved=word), warnings, "")
    assert said.state == "success"
    assert said.description.startswith("approved by uid 4294967294, 1000 to look at")
    assert len(said.description) <= STATUS_LENGTH
