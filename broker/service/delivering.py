"""Lets a judged proposal out: whether it may go now, by which steps, and what is signed about it."""

from __future__ import annotations

from dataclasses import dataclass

from broker.capability import Rights
from broker.config.repository import Repository
from broker.config.settings import Identity
from broker.delivery.composing import Delivery
from broker.delivery.courier import Courier, Tools
from broker.delivery.site import Site
from broker.delivery.verdict import left, told
from broker.errors import AbsentError, StoppedError
from broker.gitdir import GitDir
from broker.judge.budgets import DAY, Usage, closed
from broker.judge.inspection import Inspection
from broker.judge.policy import fingerprint
from broker.outbox.rows import Approved, Kept
from broker.provenance.statement import Attested
from broker.service.grants import Grants
from broker.service.judging import Case
from broker.service.stops import Stops
from broker.service.ward import Desk, Ward
from broker.wire import Finding, PullRequest, Receipt
from broker.words.templates import find_template

_FULL_SECONDS = 120.0


@dataclass(frozen=True)
class Outgoing:
    """A case that passed, with what it takes to bring it out."""

    case: Case
    site: Site
    kept: Kept
    store: GitDir
    seen: Inspection
    approved: Approved | None
    identity: Identity


class Delivering:
    """The way out."""

    def __init__(self, desk: Desk, grants: Grants, stops: Stops) -> None:
        self._desk = desk
        self._grants = grants
        self._stops = stops
        self._over: dict[str, set[int]] = {}  # by repository: pull requests that were seen closed or merged
        self._full: dict[str, float] = {}  # by repository: until when it counts as full

    def require_running(self, ward: Ward) -> None:
        """Raises StoppedError."""
        self._stops.require_running(ward.name)

    def require_open(self, ward: Ward, settings: Repository, rights: Rights, *, extends: bool) -> None:
        """Raises StoppedError and BudgetError. What extends a pull request adds none to those that are open."""
        self.require_running(ward)
        now, policy = self._desk.clock(), settings.policy
        opened = 0 if extends else self._open_pulls(ward, policy.max_open_pulls, rights.branch)
        usage = Usage(opened, self._desk.outbox.deliveries(ward.name, now - DAY))
        if stop := closed(policy, usage, now):
            raise stop.error()

    def _open_pulls(self, ward: Ward, most: int, branch: str) -> int:
        """Those of other branches. The forge is asked only about those that may be open, and where they may be enough.

        What was found full stays so for two minutes: whoever waits asks often.
        """
        now = self._desk.clock()
        if self._full.get(ward.name, 0.0) > now:
            return most
        over = self._over.setdefault(ward.name, set())
        maybe = [number for number in self._desk.outbox.numbers(ward.name) if number not in over]
        found = 0
        while maybe and found + len(maybe) >= most:
            number = maybe.pop()  # the oldest, which may be over soonest
            pull = _pull(ward, number)
            if pull is None or pull.state != "open":
                over.add(number)
            elif pull.branch != branch:
                found += 1
            if found >= most:
                self._full[ward.name] = now + _FULL_SECONDS
                return found
        return found

    def deliver(self, out: Outgoing) -> Receipt | Finding:
        """Takes every step. A Finding if the forge speaks against it by now. Raises ForgeError, StoppedError."""
        case = out.case
        delivery = Delivery(
            kept=out.kept,
            proposal=case.proposal,
            repository=case.settings,
            identity=out.identity,
            policy=fingerprint(case.settings.policy),
            told=told(out.seen.findings),
            approved=out.approved,
            template=find_template(case.ward.mirror.git, case.rights.base_commit, case.settings.forge),
            number=out.site.own[-1].number if case.proposal.update else None,
        )
        tools = Tools(
            site=out.site,
            store=out.store,
            outbox=self._desk.outbox,
            audit=self._desk.audit,
            running=lambda: self._require_wanted(out),
            attest=self._attest,
        )
        return Courier(delivery, tools).deliver()

    def _require_wanted(self, out: Outgoing) -> None:
        """Before each step: what a person stopped or took back meanwhile goes no further. Raises StoppedError."""
        self.require_running(out.case.ward)
        gone = self._grants.withdrawn(out.case.rights)
        if gone and left((gone,), out.approved):
            raise StoppedError(gone.message, gone.mend)

    def _attest(self, delivery: Delivery, pull: PullRequest, commit: str, findings: tuple[Finding, ...]) -> str:
        rights, proposal = delivery.kept.rights, delivery.proposal
        evidence, approved = proposal.evidence, delivery.approved
        facts = Attested(
            repository=rights.repository,
            number=pull.number,
            url=pull.url,
            forge=delivery.repository.forge,
            branch=rights.branch,
            base=rights.base,
            base_commit=proposal.base_commit,
            commit=commit,
            tree=proposal.tree,
            task=proposal.task,
            proposal=proposal.id,
            digest=delivery.kept.digest,
            policy=delivery.policy,
            model=evidence.model,
            tier=evidence.tier,
            strategy=evidence.strategy,
            attempts=evidence.attempts,
            sandbox_digest=evidence.proof.digest if evidence.proof else "",
            granted_by=self._grants.giver(rights),
            grant=rights.grant,
            approved_by=f"uid:{approved.by_uid}" if approved else "",
            findings=findings,
            update=proposal.update,
            at=delivery.kept.at,
        )
        signed = self._desk.provenance.attest(facts)
        self._desk.audit.append("attested", proposal=proposal.id, commit=commit, statement=f"sha256:{signed}")
        return signed


def _pull(ward: Ward, number: int) -> PullRequest | None:
    try:
        return ward.forge.pull(number)
    except AbsentError:
        return None
