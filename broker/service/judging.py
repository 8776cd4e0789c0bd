"""From what arrived to every finding about it at once: the same way for propose, explain, approve and a later try."""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.capability import Rights
from broker.config.repository import Repository
from broker.delivery.site import Site, base_gone
from broker.delivery.verdict import never_passes
from broker.errors import AbsentError
from broker.gitdir import GitDir
from broker.judge.hook import HookFacts, ask, files_of
from broker.judge.inspection import Inspection, inspect
from broker.judge.quarantine import take
from broker.service.grants import Grants
from broker.service.ward import Desk, Ward
from broker.wire import Finding, Proposal


@dataclass(frozen=True)
class Case:
    """What is judged, and by which settings. ``pushed`` is the commit that it may have on its branch already."""

    ward: Ward
    settings: Repository
    rights: Rights
    proposal: Proposal
    pack: bytes
    pushed: str | None = None


class Judging:
    """Judges. Keeps nothing, changes nothing."""

    def __init__(self, desk: Desk, grants: Grants) -> None:
        self._desk = desk
        self._grants = grants

    def site(self, case: Case) -> Site:
        """Where it would go."""
        own = self._desk.outbox.own(case.ward.name, case.rights.task)
        ours = tuple(one for one in own if one.branch == case.rights.branch)
        return Site(case.ward.forge, case.ward.mirror, case.rights, ours)

    def judge(self, case: Case, store: GitDir) -> Inspection:
        """Every finding: place, pack, content, the operator's hook, the visibility rule. Raises ForgeError.

        What is fatal about the place leaves nothing to judge the content against, and nothing of it is read: an
        update's base is only good once the forge shows that it is the branch's.
        """
        before = self.site(case).against(case.proposal, case.settings, case.pushed)
        if never_passes(before):
            return Inspection((), before)
        if absent := self._base(case):
            return Inspection((), (*before, absent))
        seen = self._content(case, store)
        found = [*seen.findings, *before, *self._rights(case)]
        if case.settings.policy.approval:
            found.append(_everybody_waits())
        if not never_passes(found) and (said := self._hook(case, seen, tuple(found))):
            found.append(said)
        return replace(seen, findings=tuple(found))

    @staticmethod
    def _base(case: Case) -> Finding | None:
        """An update's base is fetched here; a granted one is there since it was granted, unless the mirror was lost."""
        git, wanted = case.ward.mirror.git, case.proposal.base_commit
        if git.commit_of(wanted) is None:
            branch = case.rights.branch if case.proposal.update else case.rights.base
            try:
                case.ward.mirror.refresh(branch)
            except AbsentError as error:
                return base_gone(str(error))
        if git.commit_of(wanted) is None:
            return base_gone(f"the commit {wanted} that this was built on is no longer there")
        return None

    def _content(self, case: Case, store: GitDir) -> Inspection:
        policy, proposal = case.settings.policy, case.proposal
        if rejected := take(store, case.pack, policy):
            return Inspection((), rejected)
        desk = self._desk

        def watch(where: str, content: bytes) -> bool:
            return desk.watch(f"{where} in proposal {proposal.id} of {case.ward.name}", content)

        return inspect(store, case.ward.mirror.git, proposal.base_commit, proposal.tree, policy, desk.scanner, watch)

    def _rights(self, case: Case) -> list[Finding]:
        return [found for found in (self._grants.withdrawn(case.rights), self._grants.leak(case.rights)) if found]

    @staticmethod
    def _hook(case: Case, seen: Inspection, found: tuple[Finding, ...]) -> Finding | None:
        proposal = case.proposal
        facts = HookFacts(
            repository=case.ward.name,
            base=case.rights.base,
            base_commit=proposal.base_commit,
            tree=proposal.tree,
            task=proposal.task,
            title=proposal.title,
            body=proposal.body,
            files=files_of(seen.changes, seen.sizes),
            findings=found,
        )
        return ask(case.settings.policy, facts)


def _everybody_waits() -> Finding:
    message = "a person approves every proposal for this repository before it is pushed"
    return Finding(rule="approval", severity="ask", message=message, mend="swarm-broker approve")
