"""What the broker does, one verb per method, each a checklist. Blocking; the server calls it from threads."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from broker.audit import Audit
from broker.capability import Mint, Rights, Verb
from broker.config.repository import Repository
from broker.config.settings import BrokerConfig
from broker.delivery.push import Delivery, deliver, order, rebuild
from broker.errors import AbsentError, BrokerError, CapabilityError, ConflictError
from broker.forge.base import Forge
from broker.gitdir import GitDir
from broker.judge.inspection import Inspection, inspect
from broker.judge.policy import fingerprint
from broker.judge.quarantine import Quarantine, take
from broker.judge.scan import Scanner
from broker.mirror import Mirror
from broker.outbox.store import Kept, OutboxStore
from broker.person_wire import KeptProposal, LogPage, Outbox, PullRequests, PullRequestView
from broker.wire import (
    Explanation,
    Finding,
    Grant,
    GrantRequest,
    MirrorRequest,
    Proposal,
    PullRequest,
    Receipt,
    Refusal,
    Repositories,
    RepositoryInfo,
)

# Stricter than git: check-ref-format accepts bidi characters, forty hex digits and leading dashes.
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:[./][A-Za-z0-9][A-Za-z0-9_-]*)*")
_MAX_DIFF = 1 << 20
_MAX_FILES_SHOWN = 1000


@dataclass(frozen=True)
class Ward:
    """A repository in the broker's care: settings, forge, mirror, and the lock that lets proposals in one by one."""

    name: str
    settings: Repository
    forge: Forge
    mirror: Mirror
    lock: threading.Lock


class Service:
    """The verbs. Who may call which is the server's to check; what a capability allows is checked here."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        mint: Mint,
        audit: Audit,
        forges: Mapping[str, Forge],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._mint = mint
        self.audit = audit
        self._clock = clock
        self._outbox = OutboxStore(config.state, config)
        self._quarantine = Quarantine(config.state / "quarantine")
        self._scanner = Scanner()
        self._wards = {
            name: Ward(name, settings, forges[name], Mirror(_mirror_path(config, name), forges[name]), threading.Lock())
            for name, settings in config.repositories.items()
        }

    def close(self) -> None:
        """Closes what is open."""
        self._outbox.close()
        self.audit.close()

    # --- a person's verbs

    def grant(self, request: GrantRequest, by_uid: int) -> Grant:
        """Gives the right to propose one task's result. Raises AbsentError, ConflictError."""
        ward = self._ward(request.repository)
        base, branch = self._branches(ward, request)
        base_commit = ward.mirror.refresh(base)
        now = self._clock()
        rights = Rights(
            grant=secrets.token_hex(16),
            repository=ward.name,
            base=base,
            base_commit=base_commit,
            branch=branch,
            task=request.task,
            uses=request.uses,
            expires=now + request.seconds,
        )
        self._outbox.granted(rights, by_uid, now)
        self.audit.append("grant", grant=rights.grant, uid=by_uid, repository=ward.name, task=request.task,
                          base=base, base_commit=base_commit, branch=branch, uses=request.uses)  # fmt: skip
        return Grant(
            capability=self._mint.make(rights),
            repository=ward.name,
            base=base,
            base_commit=base_commit,
            branch=branch,
            expires=rights.expires,
        )

    def _branches(self, ward: Ward, request: GrantRequest) -> tuple[str, str]:
        base = request.base or ward.settings.default_base
        branch = ward.settings.branch_prefix + request.task
        for name in (base, branch):
            if not is_branch_name(name):
                raise ConflictError(f"{name!r} is not a branch name that this broker uses", "plain letters and digits")
        if base.startswith(ward.settings.branch_prefix):
            raise ConflictError(f"{base!r} is a branch of the agents' own", "name a branch that people keep")
        if ward.forge.head(branch) is not None:
            mend = "choose another task name, or remove the branch if its pull request is done with"
            raise ConflictError(f"the branch {branch} is there already", mend)
        return base, branch

    def pulls(self, repository: str) -> PullRequests:
        """A repository's pull requests."""
        return PullRequests(pulls=self._ward(repository).forge.pulls())

    def pull(self, repository: str, number: int) -> PullRequestView:
        """One of them with its diff."""
        forge = self._ward(repository).forge
        diff, cut = forge.diff(number, _MAX_DIFF)
        return PullRequestView(pull=forge.pull(number), diff=diff, cut=cut)

    def merge(self, repository: str, number: int, by_uid: int) -> PullRequest:
        """Merges one."""
        ward = self._ward(repository)
        with ward.lock:
            merged = ward.forge.merge(number, f"uid {by_uid}")
        self.audit.append("merge", repository=repository, number=number, uid=by_uid, commit=merged.merged_commit or "")
        return merged

    def outbox(self) -> Outbox:
        """What is kept for a person."""
        return self._outbox.listing()

    def kept(self, proposal: str) -> KeptProposal:
        """One of them with its words."""
        return self._outbox.show(proposal)

    def discard(self, proposal: str, by_uid: int) -> KeptProposal:
        """Removes the content of a refused one."""
        discarded = self._outbox.discard(proposal)
        self.audit.append("discard", proposal=proposal, uid=by_uid, tree=discarded.tree)
        return discarded

    def log(self, after: int) -> LogPage:
        """The log from a number on."""
        return LogPage(entries=self.audit.page(after))

    # --- the coordinator's verbs

    def mirror(self, request: MirrorRequest) -> tuple[str, IO[bytes]]:
        """The granted base commit and a file with its pack; the caller closes it."""
        rights = self._rights(request.capability, "mirror")
        pack = self._ward(rights.repository).mirror.pack(rights.base_commit, request.have)
        self.audit.append("mirror", grant=rights.grant, repository=rights.repository, commit=rights.base_commit)
        return rights.base_commit, pack

    def propose(self, proposal: Proposal, pack: bytes) -> Receipt | Refusal:
        """Judges, and pushes what passes. The same proposal id always ends in the same verdict and one pull request."""
        rights = self._rights_for(proposal, "propose")
        ward = self._ward(rights.repository)
        with ward.lock:
            if known := self._known(proposal, rights):
                return known
            kept = self._outbox.find(proposal.id) or self._outbox.keep(proposal, pack, rights, self._clock())
            self.audit.append("proposal", proposal=proposal.id, grant=rights.grant, repository=ward.name,
                              task=proposal.task, tree=proposal.tree, bytes=len(pack))  # fmt: skip
            try:
                return self._finish(ward, kept)
            except BrokerError as error:  # it stays in the outbox; the same id may be proposed again
                self.audit.append("failed", proposal=proposal.id, reason=str(error))
                raise

    def explain(self, proposal: Proposal, pack: bytes) -> Explanation:
        """The verdict that propose would give, and the files; nothing is kept, spent or pushed."""
        rights = self._rights_for(proposal, "explain")
        ward = self._ward(rights.repository)
        with self._quarantine.open(ward.mirror.git, ward.forge.object_format()) as store:
            seen = self._judge(ward, store, proposal, pack)
        files = tuple(f"{change.kind} {change.path}" for change in seen.changes[:_MAX_FILES_SHOWN])
        return Explanation(allowed=not seen.findings, findings=seen.findings, files=files)

    def status(self, proposal: str) -> Receipt | Refusal:
        """The verdict. Raises AbsentError while there is none."""
        verdict = self._outbox.get(proposal).verdict
        if verdict is None:
            raise AbsentError(f"proposal {proposal!r} is still being worked on", "ask again, or propose it again")
        return verdict

    def repositories(self) -> Repositories:
        """Names alone; no address."""
        infos = (RepositoryInfo(name=ward.name, forge=ward.settings.forge, default_base=ward.settings.default_base)
                 for ward in self._wards.values())  # fmt: skip
        return Repositories(repositories=tuple(infos))

    def reconcile(self) -> None:
        """Finishes what a kill interrupted. Called at start, before the first connection."""
        self._quarantine.sweep()
        for kept in self._outbox.unfinished():
            try:
                ward = self._ward(kept.repository)
                with ward.lock:
                    self._finish(ward, kept)
            except BrokerError as error:
                self.audit.append("not-reconciled", proposal=kept.id, reason=str(error))
            else:
                self.audit.append("reconciled", proposal=kept.id)

    # --- steps

    def _ward(self, repository: str) -> Ward:
        ward = self._wards.get(repository)
        if ward is None:
            known = ", ".join(sorted(self._wards))
            raise AbsentError(f"there is no repository {repository!r}", f"the broker knows: {known}")
        return ward

    def _rights(self, capability: str, verb: Verb) -> Rights:
        rights = self._mint.check(capability, verb=verb, now=self._clock())
        if not self._outbox.is_granted(rights.grant):
            raise CapabilityError("the capability was granted from another state folder", "swarm-broker grant")
        return rights

    def _rights_for(self, proposal: Proposal, verb: Verb) -> Rights:
        rights = self._rights(proposal.capability, verb)
        for name in ("task", "base_commit", "tree"):
            held, asked = getattr(rights, name), getattr(proposal, name)
            if held is not None and held != asked:
                raise CapabilityError(f"the capability is for another {name.replace('_', ' ')}", "swarm-broker grant")
        if rights.proposal is not None and rights.proposal != proposal.id:
            raise CapabilityError("the capability is for another proposal", "swarm-broker grant")
        return rights

    def _known(self, proposal: Proposal, rights: Rights) -> Receipt | Refusal | None:
        kept = self._outbox.find(proposal.id)
        if kept is not None:
            same = (kept.repository, kept.task, kept.base_commit, kept.tree)
            if same != (rights.repository, proposal.task, proposal.base_commit, proposal.tree):
                raise ConflictError(f"proposal id {proposal.id!r} was used for something else", "use a new id")
            return kept.verdict
        done = self._outbox.delivered(rights.repository, proposal.task)
        if done and (done.base_commit, done.tree) == (proposal.base_commit, proposal.tree):
            return done.verdict
        return None

    def _finish(self, ward: Ward, kept: Kept) -> Receipt | Refusal:
        proposal, pack = self._outbox.content(kept.id)
        delivery = Delivery(kept.rights, proposal, kept.at)
        with self._quarantine.open(ward.mirror.git, ward.forge.object_format()) as store:
            seen = self._judge(ward, store, proposal, pack)
            verdict = self._refusal(kept, seen.findings) if seen.findings else self._push(ward, store, delivery)
        self._outbox.settle(verdict)
        return verdict

    def _judge(self, ward: Ward, store: GitDir, proposal: Proposal, pack: bytes) -> Inspection:
        policy = ward.settings.policy
        if rejected := take(store, pack, policy.max_pack_bytes):
            return Inspection((), rejected)
        return inspect(store, ward.mirror.git, proposal.base_commit, proposal.tree, policy, self._scanner)

    def _push(self, ward: Ward, store: GitDir, delivery: Delivery) -> Receipt | Refusal:
        proposal, policy = delivery.proposal, fingerprint(ward.settings.policy)
        commit = rebuild(store, delivery, ward.settings, self._config.identity)
        self._outbox.pushing(proposal.id, commit)
        self.audit.append("push", proposal=proposal.id, commit=commit, branch=delivery.rights.branch, policy=policy)
        facts = {"base": proposal.base_commit, "tree": proposal.tree, "policy": policy, "proposal": proposal.id}
        ordered = order(delivery, commit, ward.settings, facts)
        pull = deliver(ward.forge, store, commit, ordered, ward.settings.branch_prefix)
        if isinstance(pull, Finding):
            return self._refusal(self._outbox.get(proposal.id), (pull,))
        self.audit.append("pull-request", proposal=proposal.id, repository=ward.name, number=pull.number, commit=commit)
        return Receipt(
            proposal=proposal.id,
            pull_request=f"{ward.name}#{pull.number}",
            number=pull.number,
            branch=pull.branch,
            commit=commit,
        )

    def _refusal(self, kept: Kept, findings: tuple[Finding, ...]) -> Refusal:
        rules = ",".join(sorted({finding.rule for finding in findings}))
        policy = fingerprint(self._wards[kept.repository].settings.policy)
        self.audit.append("refusal", proposal=kept.id, rules=rules, first=findings[0].message, policy=policy)
        return Refusal(proposal=kept.id, findings=findings)


def is_branch_name(name: str) -> bool:
    """Whether a name is plain enough for a ref: letters, digits, dash, underscore, single dots and slashes."""
    parts = name.split("/")
    return len(name) <= 200 and bool(_BRANCH.fullmatch(name)) and not any(part.endswith(".lock") for part in parts)


def _mirror_path(config: BrokerConfig, name: str) -> Path:
    return config.state / "mirrors" / f"{name}.git"
