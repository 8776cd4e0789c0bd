"""A delivery as a list of steps. Each looks first whether the forge shows it done, so that all can be taken again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from broker.audit import Audit
from broker.config.settings import Identity
from broker.delivery.composing import Delivery, dressing, message, order, status
from broker.delivery.site import Site, closed, moved, taken
from broker.delivery.verdict import told
from broker.errors import BrokerError, ForgeError
from broker.forge.rest.problems import Reason
from broker.gitdir import GitDir
from broker.outbox.store import OutboxStore
from broker.wire import Finding, PullRequest, Receipt

Attest = Callable[[Delivery, PullRequest, str, tuple[Finding, ...]], str]
"""Signs and keeps what is known of a delivered commit; returns what names the record."""


T = TypeVar("T")
_TRIES = 5
_PASSES_BY = frozenset({Reason.LIMIT, Reason.UNREACHABLE})
_FOR_GOOD = frozenset({Reason.SECRET, Reason.WORKFLOWS, Reason.NO_DIFF, Reason.DUPLICATE, Reason.INVALID})
"""What a forge says of this very content, and would say again."""


@dataclass(frozen=True)
class Tools:
    """What a courier works with. ``running`` raises StoppedError or BudgetError where nothing may go out now."""

    site: Site
    store: GitDir
    outbox: OutboxStore
    audit: Audit
    running: Callable[[], None]
    attest: Attest


class Courier:
    """Brings one proposal to its forge. Knows only what it has seen there itself."""

    def __init__(self, delivery: Delivery, tools: Tools) -> None:
        self._delivery = delivery
        self._tools = tools
        self._rights = delivery.kept.rights
        self._forge = tools.site.forge
        self._done = tools.outbox.steps.results(delivery.kept.id)
        self._told = delivery.told
        self._commit = ""
        self._head = ""
        self._pull: PullRequest | None = None

    @property
    def pull(self) -> PullRequest:
        """The pull request. Raises BrokerError before that step."""
        if self._pull is None:
            raise BrokerError("there is no pull request yet")
        return self._pull

    def deliver(self) -> Receipt | Finding:
        """Takes all steps. A Finding if the branch or its pull request speaks against it by now.

        Raises ForgeError, StoppedError and BudgetError; all can then be taken again.
        """
        proposal, steps = self._delivery.kept.id, self._tools.outbox.steps
        for step in STEPS:
            if step.updates and self._delivery.number is None:
                continue
            if step.outward:
                self._tools.running()
            steps.begin(proposal, step.name)
            try:
                outcome = step.take(self)
            except ForgeError as error:
                if error.reason not in _FOR_GOOD or error.uncertain:
                    raise
                return Finding(rule="forge-refused", message=str(error), mend=error.mend)
            if isinstance(outcome, Finding):
                return outcome
            steps.end(proposal, step.name, outcome)
        return self._receipt()

    def _receipt(self) -> Receipt:
        pull = self.pull
        return Receipt(
            proposal=self._delivery.kept.id,
            pull_request=f"{self._delivery.kept.repository}#{pull.number}",
            number=pull.number,
            branch=self._rights.branch,
            commit=self._commit,
            url=pull.url,
            warnings=self._told,
        )

    # --- the steps

    def rebuild(self) -> str:
        """The one commit, in the broker's name; of the proposal only the tree and cleaned words."""
        proposal, store = self._delivery.proposal, self._tools.store
        said = self._words()
        identity = Identity(name=said["name"], email=said["email"])
        at = int(self._delivery.kept.at)
        self._commit = store.commit_tree(proposal.tree, (proposal.base_commit,), said["message"], identity, at)
        if store.tree_of(self._commit) != proposal.tree:
            raise BrokerError(f"the rebuilt commit {self._commit} does not hold the sealed tree {proposal.tree}")
        self._tools.outbox.pushing(proposal.id, self._commit)
        return json.dumps({"commit": self._commit, **said})

    def _words(self) -> dict[str, str]:
        """What was said once is said again: settings that changed meanwhile would give another commit."""
        if done := self._done.get("rebuilt"):
            return {name: str(words) for name, words in json.loads(done).items() if name != "commit"}
        identity = self._delivery.identity
        return {"message": message(self._delivery), "name": identity.name, "email": identity.email}

    def push(self) -> str | Finding:
        """The branch on that commit: created, or moved forward from the commit that the update was built on."""
        branch, site = self._rights.branch, self._tools.site
        if not branch.startswith(self._delivery.repository.branch_prefix) or branch == self._rights.base:
            prefix = self._delivery.repository.branch_prefix
            raise ForgeError(f"the branch {branch} does not start with {prefix}: nothing was pushed")
        head = site.head()
        if site.holds(head, self._commit):
            return self._commit
        expected = self._delivery.proposal.base_commit if self._delivery.proposal.update else None
        if head != expected:
            return self._lost()
        if self._delivery.number is not None and (over := site.over(self._delivery.number)):
            return over  # whatever was approved: a branch that a person is done with is left as it is
        self._tools.audit.append("push", proposal=self._delivery.kept.id, commit=self._commit, branch=branch,
                                 policy=self._delivery.policy)  # fmt: skip
        try:
            pushed = self._forge.push(self._tools.store, self._commit, branch, expected)
        except ForgeError:
            if not site.holds(site.head(), self._commit):  # the answer may be lost, yet the branch be there
                raise
            return self._commit
        return self._commit if pushed or site.holds(site.head(), self._commit) else self._lost()

    def _lost(self) -> Finding:
        branch = self._rights.branch
        return moved(branch) if self._delivery.proposal.update else taken(branch)

    def compare(self) -> str | Finding:
        """The branch read again: it is on the commit that was judged, or somebody went on from there."""
        site = self._tools.site
        head = site.head()
        if not site.holds(head, self._commit):
            return self._lost()
        self._head = head or ""
        if self._head != self._commit:
            words = f"somebody pushed to {self._rights.branch} after the broker; that was not judged"
            self._tell(Finding(rule="branch-ahead", message=words, mend="read the commits that follow the broker's"))
        return self._head

    def open(self) -> str | Finding:
        """The pull request, found or opened; one that a person closed stays closed."""
        if self._delivery.number is not None:
            return self._extended(self._delivery.number)
        found = self._found()
        if found is None:
            wanted = order(self._delivery, self._commit, self._told)
            try:
                found = self._forge.open(wanted)
            except ForgeError:
                found = self._found()  # the answer may be lost, yet the pull request be there
                if found is None:
                    raise
        if isinstance(found, Finding):
            return found
        if found.branch != self._rights.branch or found.commit not in {self._commit, self._head}:
            return taken(self._rights.branch)
        return self._joined(found)

    def _found(self) -> PullRequest | Finding | None:
        found = self._forge.find(self._rights.branch, self._rights.base)
        if found is None or (found.state != "open" and found.commit not in {self._commit, self._head}):
            return None  # other work under the same name, over and done with
        return closed(found.number) if found.state == "closed" else found

    def _extended(self, number: int) -> str | Finding:
        if over := self._tools.site.over(number):
            return over
        return self._joined(self._forge.pull(number))

    def _joined(self, pull: PullRequest) -> str:
        self._pull = pull
        if "pull-request" not in self._done:
            self._tools.audit.append("pull-request", proposal=self._delivery.kept.id, number=pull.number,
                                     repository=self._delivery.kept.repository, commit=self._commit)  # fmt: skip
        return str(pull.number)

    def revise(self) -> str:
        """New words for a pull request that was extended."""
        words = order(self._delivery, self._commit, self._told)
        self._gently("revised", "words", lambda: self._forge.revise(self.pull.number, words.title, words.body))
        return str(self.pull.number)

    def dress(self) -> str:
        """Labels, reviewers, assignees, once. What the forge does not take is told and stops nothing."""
        wear = dressing(self._delivery)
        if "dressed" in self._done:  # people may have changed it since
            refused = tuple(json.loads(self._done["dressed"]))
        elif any(wear.model_dump().values()) and self._delivery.number is None:
            refused = self._gently("dressed", "dressing", lambda: self._forge.dress(self.pull.number, wear)) or ()
        else:
            refused = ()
        for words in refused:
            self._tell(_warning("dressing", words))
        return json.dumps(refused)

    def report(self) -> str:
        """The verdict on the commit, where the policy wants it."""
        if not self._delivery.repository.policy.commit_status:
            return ""
        verdict = status(self._delivery, self._told, self.pull.url)
        self._gently("status", "status", lambda: self._forge.report(self._commit, verdict))
        return self._commit

    def _gently(self, step: str, rule: str, act: Callable[[], T]) -> T | None:
        """Does what a pull request can also be without: tried again where the forge may take it later, then told."""
        try:
            return act()
        except ForgeError as error:
            tries = self._tools.outbox.steps.tries(self._delivery.kept.id, step)
            if error.reason in _PASSES_BY and tries < _TRIES:
                raise
            self._tell(_warning(rule, str(error)))
            return None

    def attest(self) -> str:
        """The signed record that leads from the pull request to the sealed tree."""
        return self._tools.attest(self._delivery, self.pull, self._commit, self._told)

    def _tell(self, finding: Finding) -> None:
        self._told = (*self._told, *told([finding]))


def _warning(rule: str, words: str) -> Finding:
    return Finding(rule=rule, message=words[:500], mend="a person puts it right on the forge")


@dataclass(frozen=True)
class Step:
    """One of them. ``outward``: others see it, so a stop comes before it; ``updates``: only where one is extended."""

    name: str
    take: Callable[[Courier], str | Finding]
    outward: bool = False
    updates: bool = False


STEPS = (
    Step("rebuilt", Courier.rebuild),
    Step("branch", Courier.push, outward=True),
    Step("compared", Courier.compare),
    Step("pull-request", Courier.open, outward=True),
    Step("revised", Courier.revise, outward=True, updates=True),
    Step("dressed", Courier.dress),
    Step("status", Courier.report),
    Step("provenance", Courier.attest),
)
