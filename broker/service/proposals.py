"""Proposals, from arrival to verdict: judged, kept, delivered once."""

from __future__ import annotations

from broker.capability import Rights
from broker.config.settings import BrokerConfig
from broker.delivery.push import Delivery, deliver, order, rebuild
from broker.errors import AbsentError, BrokerError, ConflictError, OutboxFullError
from broker.gitdir import GitDir
from broker.judge.inspection import Inspection, inspect
from broker.judge.policy import fingerprint
from broker.judge.quarantine import take
from broker.outbox.store import Kept
from broker.person_wire import KeptProposal, Outbox
from broker.service.grants import Grants
from broker.service.stops import Stops
from broker.service.ward import Desk, Ward
from broker.wire import Explanation, Finding, Proposal, Receipt, Refusal

_MAX_FILES_SHOWN = 1000


class Proposals:
    """The verbs about one's own work, the coordinator's and a person's."""

    def __init__(self, desk: Desk, grants: Grants, stops: Stops) -> None:
        self._desk = desk
        self._grants = grants
        self._stops = stops

    # --- a person's verbs

    def outbox(self) -> Outbox:
        """What is kept for a person."""
        return self._desk.outbox.listing()

    def kept(self, proposal: str) -> KeptProposal:
        """One of them with its words."""
        return self._desk.outbox.show(proposal)

    def discard(self, proposal: str, by_uid: int) -> KeptProposal:
        """Removes the content of a refused one."""
        discarded = self._desk.outbox.discard(proposal)
        self._desk.audit.append("discard", proposal=proposal, uid=by_uid, tree=discarded.tree)
        return discarded

    # --- the coordinator's verbs

    def propose(self, proposal: Proposal, pack: bytes) -> Receipt | Refusal:
        """Judges, and pushes what passes. The same proposal id always ends in the same verdict and one pull request."""
        rights = self._grants.rights_for(proposal, "propose")
        ward = self._desk.wards.get(rights.repository)
        with ward.lock:
            if known := self._known(proposal, rights):
                return known
            self._stops.require_running(ward.name)
            outbox, audit = self._desk.outbox, self._desk.audit
            kept = outbox.find(proposal.id) or self._keep(proposal, pack, rights)
            audit.append("proposal", proposal=proposal.id, grant=rights.grant, repository=ward.name,
                         task=proposal.task, tree=proposal.tree, bytes=len(pack))  # fmt: skip
            try:
                return self._finish(ward, kept)
            except BrokerError as error:  # it stays in the outbox; the same id may be proposed again
                audit.append("failed", proposal=proposal.id, reason=str(error))
                raise

    def explain(self, proposal: Proposal, pack: bytes) -> Explanation:
        """The verdict that propose would give, and the files; nothing is kept, spent or pushed."""
        rights = self._grants.rights_for(proposal, "explain")
        ward = self._desk.wards.get(rights.repository)
        with self._desk.quarantine.open(ward.mirror.git, ward.forge.object_format()) as store:
            seen = self._judge(ward, self._desk.current(), store, proposal, pack)
        files = tuple(f"{change.kind} {change.path}" for change in seen.changes[:_MAX_FILES_SHOWN])
        return Explanation(allowed=not seen.findings, findings=seen.findings, files=files)

    def status(self, proposal: str) -> Receipt | Refusal:
        """The verdict. Raises AbsentError while there is none."""
        verdict = self._desk.outbox.get(proposal).verdict
        if verdict is None:
            raise AbsentError(f"proposal {proposal!r} is still being worked on", "ask again, or propose it again")
        return verdict

    def reconcile(self) -> None:
        """Finishes what a kill interrupted. Called at start, before the first connection."""
        self._desk.quarantine.sweep()
        for kept in self._desk.outbox.unfinished():
            try:
                ward = self._desk.wards.get(kept.repository)
                with ward.lock:
                    self._finish(ward, kept)
            except BrokerError as error:
                self._desk.audit.append("not-reconciled", proposal=kept.id, reason=str(error))
            else:
                self._desk.audit.append("reconciled", proposal=kept.id)

    # --- steps

    def _keep(self, proposal: Proposal, pack: bytes, rights: Rights) -> Kept:
        self._grants.spend(rights, proposal.id)
        try:
            return self._desk.outbox.keep(proposal, pack, rights)
        except OutboxFullError:
            self._grants.refund(rights, proposal.id)
            raise

    def _known(self, proposal: Proposal, rights: Rights) -> Receipt | Refusal | None:
        kept = self._desk.outbox.find(proposal.id)
        if kept is not None:
            same = (kept.repository, kept.task, kept.base_commit, kept.tree)
            if same != (rights.repository, proposal.task, proposal.base_commit, proposal.tree):
                raise ConflictError(f"proposal id {proposal.id!r} was used for something else", "use a new id")
            return kept.verdict
        done = self._desk.outbox.twin(proposal, rights.repository)
        return done.verdict if done else None

    def _finish(self, ward: Ward, kept: Kept) -> Receipt | Refusal:
        self._stops.require_running(ward.name)
        config = self._desk.current()
        proposal, pack = self._desk.outbox.content(kept)
        delivery = Delivery(kept.rights, proposal, kept.at)
        with self._desk.quarantine.open(ward.mirror.git, ward.forge.object_format()) as store:
            seen = self._judge(ward, config, store, proposal, pack)
            if seen.findings:
                verdict: Receipt | Refusal = self._refusal(config, kept, seen.findings)
            else:
                verdict = self._push(ward, config, store, delivery)
        self._desk.outbox.settle(verdict)
        return verdict

    def _judge(self, ward: Ward, config: BrokerConfig, store: GitDir, proposal: Proposal, pack: bytes) -> Inspection:
        policy = config.repositories[ward.name].policy
        if rejected := take(store, pack, policy):
            return Inspection((), rejected)
        return inspect(store, ward.mirror.git, proposal.base_commit, proposal.tree, policy, self._desk.scanner)

    def _push(self, ward: Ward, config: BrokerConfig, store: GitDir, delivery: Delivery) -> Receipt | Refusal:
        settings, audit = config.repositories[ward.name], self._desk.audit
        proposal, policy = delivery.proposal, fingerprint(settings.policy)
        commit = rebuild(store, delivery, settings, config.identity)
        self._desk.outbox.pushing(proposal.id, commit)
        audit.append("push", proposal=proposal.id, commit=commit, branch=delivery.rights.branch, policy=policy)
        facts = {"base": proposal.base_commit, "tree": proposal.tree, "policy": policy, "proposal": proposal.id}
        ordered = order(delivery, commit, settings, facts)
        pull = deliver(ward.forge, store, commit, ordered, settings.branch_prefix)
        if isinstance(pull, Finding):
            return self._refusal(config, self._desk.outbox.get(proposal.id), (pull,))
        audit.append("pull-request", proposal=proposal.id, repository=ward.name, number=pull.number, commit=commit)
        return Receipt(
            proposal=proposal.id,
            pull_request=f"{ward.name}#{pull.number}",
            number=pull.number,
            branch=pull.branch,
            commit=commit,
        )

    def _refusal(self, config: BrokerConfig, kept: Kept, findings: tuple[Finding, ...]) -> Refusal:
        rules = ",".join(sorted({finding.rule for finding in findings}))
        policy = fingerprint(config.repositories[kept.repository].policy)
        self._desk.audit.append("refusal", proposal=kept.id, rules=rules, first=findings[0].message, policy=policy)
        return Refusal(proposal=kept.id, findings=findings)
