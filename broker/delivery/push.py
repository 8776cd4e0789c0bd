"""From a judged tree to a pull request: one commit of the broker's own, one new branch, one pull request.

Every step can be repeated: the commit's id follows from its input, the branch is only created, the forge opens once.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.capability import Rights
from broker.config.repository import Repository
from broker.config.settings import Identity
from broker.errors import ForgeError
from broker.forge.base import Forge, Order
from broker.gitdir import GitDir
from broker.wire import Finding, Proposal, PullRequest
from broker.words.text import commit_message, pull_request_body, title


@dataclass(frozen=True)
class Delivery:
    """A proposal to be delivered: what was granted, what is offered, when it was first seen (s since the epoch)."""

    rights: Rights
    proposal: Proposal
    at: float


def rebuild(store: GitDir, delivery: Delivery, repository: Repository, identity: Identity) -> str:
    """The one commit, on the granted base, in the broker's name; of the proposal only the tree and cleaned words."""
    proposal = delivery.proposal
    trailers = {"Swarm-Task": proposal.task, "Swarm-Proposal": proposal.id}
    message = commit_message(title(proposal.title, repository.policy.title_prefix), proposal.body, trailers)
    return store.commit_tree(proposal.tree, (delivery.rights.base_commit,), message, identity, int(delivery.at))


def deliver(forge: Forge, store: GitDir, commit: str, order: Order, prefix: str) -> PullRequest | Finding:
    """Creates the branch and opens the pull request. A Finding if the branch or the base speaks against it.

    Raises ForgeError; the call may then be repeated.
    """
    if not order.branch.startswith(prefix) or order.branch == order.base:
        raise ForgeError(f"the branch {order.branch} does not start with {prefix}: nothing was pushed")
    if forge.head(order.base) is None:
        return Finding(
            rule="base-gone", message=f"the branch {order.base} is gone", mend="submit the task on another base"
        )
    if forge.head(order.branch) is None:
        forge.push(store, commit, order.branch)
    if forge.head(order.branch) != commit:
        message = f"the branch {order.branch} is there already, on another commit"
        return Finding(rule="branch-taken", message=message, mend="remove it, or submit the task under another name")
    pull = forge.open(order)
    if pull.commit != commit:
        message = f"pull request {pull.number} of the branch {order.branch} is open on another commit"
        return Finding(rule="branch-taken", message=message, mend="merge it, or submit the task under another name")
    return pull


def order(delivery: Delivery, commit: str, repository: Repository, facts: dict[str, str]) -> Order:
    """The pull request in cleaned words."""
    rights, proposal = delivery.rights, delivery.proposal
    return Order(
        title=title(proposal.title, repository.policy.title_prefix),
        body=pull_request_body(proposal.body, proposal.evidence, facts),
        branch=rights.branch,
        base=rights.base,
        base_commit=rights.base_commit,
        commit=commit,
        task=proposal.task,
        proposal=proposal.id,
        evidence=proposal.evidence,
    )
