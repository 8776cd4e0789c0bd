"""Pure: what a delivery says. The commit's message, the pull request's words, what it bears, the commit's status."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.repository import Repository
from broker.config.settings import Identity
from broker.forge.base import Dressing, Order, Status
from broker.outbox.rows import Approved, Kept
from broker.wire import Finding, Proposal
from broker.words.clean import title
from broker.words.dialect import dialect_of
from broker.words.message import commit_message
from broker.words.pull_request import Page, pull_request_body

STATUS_LENGTH = 140  # GitHub's limit; the shortest of all


@dataclass(frozen=True)
class Delivery:
    """A proposal that may be delivered. ``told`` are the findings that passed, ``policy`` names what it was judged by.

    ``number`` is the pull request that it extends; None if it opens one.
    """

    kept: Kept
    proposal: Proposal
    repository: Repository
    identity: Identity
    policy: str
    told: tuple[Finding, ...] = ()
    approved: Approved | None = None
    template: str = ""
    number: int | None = None


def headline(delivery: Delivery) -> str:
    """The title of the commit and of the pull request."""
    policy = delivery.repository.policy
    return title(delivery.proposal.title, dialect_of(delivery.repository), policy.title_prefix)


def message(delivery: Delivery) -> str:
    """The commit's message; the only trailers are the broker's own."""
    proposal = delivery.proposal
    trailers = {"Swarm-Task": proposal.task, "Swarm-Proposal": proposal.id}
    return commit_message(headline(delivery), proposal.body, trailers, dialect_of(delivery.repository))


def order(delivery: Delivery, commit: str, told: tuple[Finding, ...]) -> Order:
    """The pull request in cleaned words."""
    rights, proposal, policy = delivery.kept.rights, delivery.proposal, delivery.repository.policy
    page = Page(
        body=proposal.body,
        evidence=proposal.evidence,
        proposal=proposal.id,
        warnings=told,
        facts=_facts(delivery),
        digest=delivery.kept.digest,
        template=delivery.template,
        closes=rights.issue if policy.closes_issue else None,
        task=proposal.task,
        base=rights.base_commit,
    )
    return Order(
        title=headline(delivery),
        body=pull_request_body(page, dialect_of(delivery.repository)),
        branch=rights.branch,
        base=rights.base,
        base_commit=rights.base_commit,
        commit=commit,
        task=proposal.task,
        proposal=proposal.id,
        evidence=proposal.evidence,
        draft=policy.draft,
    )


def _facts(delivery: Delivery) -> dict[str, str]:
    approved = delivery.approved
    return {
        "base": delivery.proposal.base_commit,
        "tree": delivery.proposal.tree,
        "policy": delivery.policy,
        "proposal": delivery.proposal.id,
        "digest": delivery.kept.digest,
        "approved by": f"uid {approved.by_uid}" if approved else "",
    }


def dressing(delivery: Delivery) -> Dressing:
    """What the policy wants the pull request to bear."""
    policy = delivery.repository.policy
    return Dressing(
        labels=policy.labels,
        reviewers=policy.reviewers,
        team_reviewers=policy.team_reviewers,
        assignees=policy.assignees,
    )


def status(delivery: Delivery, told: tuple[Finding, ...], url: str) -> Status:
    """The broker's verdict on the commit."""
    words = "within policy" if delivery.approved is None else f"approved by uid {delivery.approved.by_uid}"
    words += f", {len(told)} to look at" if told else ""
    return Status(state="success", description=f"{words}; policy {delivery.policy}"[:STATUS_LENGTH], url=url)
