"""Proposals, from arrival to verdict: kept, judged, delivered once. What cannot go out now waits and is lost never."""

from __future__ import annotations

from collections.abc import Callable

from broker.capability import Rights
from broker.delivery.verdict import left, never_passes, waits
from broker.errors import (
    AbsentError,
    BudgetError,
    BusyError,
    ConflictError,
    FencedError,
    ForgeError,
    NeverError,
    StoppedError,
)
from broker.judge.policy import fingerprint
from broker.outbox.rows import Approved, Kept
from broker.person_wire import Approval, KeptProposal, Outbox
from broker.service.delivering import Delivering, Outgoing
from broker.service.grants import Grants
from broker.service.holdups import Holdups, said
from broker.service.judging import Case, Judging
from broker.service.viewing import Viewing
from broker.service.ward import PERSONS_PATIENCE, Desk, Ward
from broker.wire import Explanation, Finding, Proposal, Receipt, Refusal, Waiting

_MAX_FILES_SHOWN = 1000
_PATIENCE = 30.0  # seconds that a proposal waits for its turn
_SHUTS = (ForgeError, StoppedError, BudgetError)  # what every proposal for the repository would meet


class Proposals:
    """The verbs about one's own work, the coordinator's and a person's."""

    def __init__(self, desk: Desk, grants: Grants, delivering: Delivering) -> None:
        self._desk = desk
        self._grants = grants
        self._judging = Judging(desk, grants)
        self._delivering = delivering
        self._viewing = Viewing(desk)
        self._not_before: dict[str, float] = {}  # by repository: when its forge wants to be asked again
        self._holdups = Holdups()

    # --- a person's verbs

    def outbox(self) -> Outbox:
        """What is kept for a person."""
        box = self._desk.outbox.listing()
        return box.model_copy(update={"proposals": tuple(map(self._with_reason, box.proposals))})

    def kept(self, proposal: str) -> KeptProposal:
        """One of them with its words and the change that it proposes."""
        return self._with_reason(self._viewing.kept(proposal))

    def _with_reason(self, shown: KeptProposal) -> KeptProposal:
        kept = None if shown.verdict else self._desk.outbox.find(shown.id)
        if kept is None or kept.verdict is not None:
            return shown
        reason = self._holdups.of(kept).said if shown.reason == kept.reason else shown.reason
        return shown.model_copy(update={"reason": reason})

    def discard(self, proposal: str, by_uid: int) -> KeptProposal:
        """Removes the content of one that was refused, or that waits or fails: nothing more is done with it.

        What was pushed before stays on the forge. Raises AbsentError, ConflictError, BusyError.
        """
        ward = self._ward_of(self._desk.outbox.get(proposal))
        with ward.turn(PERSONS_PATIENCE):
            kept = self._desk.outbox.get(proposal)
            if kept.verdict is None:
                message = f"a person discarded it while it was {kept.state}"
                finding = Finding(rule="discarded", severity="fatal", message=message, mend="propose it again")
                self._desk.outbox.settle(Refusal(proposal=proposal, findings=(finding,), digest=kept.digest))
            discarded = self._desk.outbox.discard(proposal)
            self._holdups.over(proposal)
        self._desk.audit.append("discard", proposal=proposal, uid=by_uid, tree=discarded.tree)
        return discarded

    def approve(self, proposal: str, word: Approval, by_uid: int) -> Receipt | Refusal:
        """Delivers exactly the content that ``digest`` names, past the findings that the person was shown.

        Again is no harm. A finding that is new by then is not covered: another refusal names it. Raises AbsentError
        and ConflictError (another digest, not refused, never to be approved), StoppedError, BudgetError, ForgeError,
        BusyError.
        """
        ward = self._ward_of(self._desk.outbox.get(proposal))
        with ward.turn(PERSONS_PATIENCE):
            kept = self._desk.outbox.get(proposal)
            _require_digest(kept, word.digest)
            if isinstance(kept.verdict, Refusal):
                self._approved(kept, kept.verdict, word, by_uid)
            elif kept.verdict is None and self._desk.outbox.approval(kept) is None:
                raise ConflictError(f"proposal {proposal} is not refused: {kept.reason or kept.state}", "ask again")
            return kept.verdict if isinstance(kept.verdict, Receipt) else self._tried(ward, proposal)

    def _approved(self, kept: Kept, refusal: Refusal, word: Approval, by_uid: int) -> None:
        if never := never_passes(refusal.findings):
            raise NeverError(f"proposal {kept.id} can never be approved: {never.message}", never.mend)
        if not kept.size:
            raise AbsentError(f"the content of proposal {kept.id!r} is no longer kept", "propose it again")
        covers = frozenset((finding.rule, finding.path) for finding in refusal.findings)
        said = Approved(kept.digest, by_uid, self._desk.clock(), word.note, covers)
        rules = ",".join(sorted({rule for rule, _ in covers}))
        self._desk.audit.append("approve", proposal=kept.id, uid=by_uid, digest=kept.digest, rules=rules,
                                note=word.note)  # fmt: skip
        self._desk.outbox.approve(kept.id, said)

    # --- the coordinator's verbs

    def propose(self, proposal: Proposal, pack: bytes) -> Receipt | Refusal:
        """Judges, and delivers what passes. The same proposal id always ends in the same verdict, one pull request.

        Raises StoppedError and BudgetError where it has to wait; it is kept and goes on by itself, or when asked again.
        Raises BusyError, before it is kept, where others of the same repository take long.
        """
        rights = self._grants.rights_for(proposal, "propose")
        ward = self._desk.wards.get(rights.repository)
        with ward.turn(_PATIENCE):
            kept = self._known(proposal, rights) or self._keep(proposal, pack, rights)
            return kept.verdict or self._tried(ward, kept.id)

    def explain(self, proposal: Proposal, pack: bytes) -> Explanation:
        """The verdict that propose would give, and the files; nothing is kept, spent or pushed.

        Raises ConflictError for an id that was used for something else, as propose does.
        """
        rights = self._grants.rights_for(proposal, "explain")
        ward = self._desk.wards.get(rights.repository)
        known = self._known(proposal, rights)  # of anything else, what was pushed is no word about this one
        case = Case(ward, ward.settings(), rights, proposal, pack, known.commit if known else None)
        with self._desk.quarantine.open(ward.mirror.git, ward.object_format()) as store:
            seen = self._judging.judge(case, store)
        findings = (*seen.findings, *self._shut(case))
        files = tuple(f"{change.kind} {change.path}" for change in seen.changes[:_MAX_FILES_SHOWN])
        return Explanation(allowed=not left(findings, None), findings=findings, files=files)

    def _shut(self, case: Case) -> tuple[Finding, ...]:
        try:
            self._delivering.require_open(case.ward, case.settings, case.rights, extends=case.proposal.update)
        except (StoppedError, BudgetError) as error:
            rule = "stopped" if isinstance(error, StoppedError) else "over-budget"
            return (Finding(rule=rule, message=str(error), mend=error.mend),)
        return ()

    def status(self, proposal: str) -> Receipt | Refusal | Waiting:
        """The verdict, or what it waits for. Raises AbsentError for one that was never kept."""
        kept = self._desk.outbox.get(proposal)
        if kept.verdict is not None:
            return kept.verdict
        hindered = self._holdups.of(kept)
        return Waiting(proposal=kept.id, reason=hindered.said[:1000], opens=hindered.opens)

    # --- what nobody asks for

    def unfinished(self) -> frozenset[str]:
        """The repositories that have something which waits, failed, or was interrupted by a kill."""
        return frozenset(kept.repository for kept in self._desk.outbox.unfinished())

    def resume(
        self, event: str = "resumed", ending: Callable[[], bool] = lambda: False, repository: str | None = None
    ) -> int:
        """Goes on with all that waits or failed there, oldest first, and returns how many got a verdict.

        What one proposal meets at a repository, the next one would meet too: it is left for the next round. Raises
        FencedError: then this broker is no longer the one to do it.
        """
        done, now = 0, self._desk.clock()
        shut = {name for name, when in self._not_before.items() if when > now}
        # What failed often comes last: one that its forge never takes must not hold up the others.
        for kept in sorted(self._desk.outbox.unfinished(), key=lambda one: self._holdups.failed(one.id)):
            if ending():
                break
            if kept.repository in shut or repository not in {None, kept.repository}:
                continue
            try:
                done += self._resumed(kept, event)
            except FencedError:
                raise
            except BusyError:
                shut.add(kept.repository)  # whoever has its turn goes on with one of them now
            except Exception as error:  # noqa: BLE001 - a fault of ours in one proposal stops neither a start nor the others
                if isinstance(error, _SHUTS) and not (kept.update and isinstance(error, BudgetError)):
                    shut.add(kept.repository)
                self._held_up(kept, event, error)
        return done

    def _held_up(self, kept: Kept, event: str, error: Exception) -> None:
        if isinstance(error, ForgeError) and error.when is not None:
            self._not_before[kept.repository] = error.when
        news = self._holdups.met(kept.id, error)
        if news and not isinstance(error, StoppedError | BudgetError):  # once, not in every round of a long night
            self._desk.audit.append(f"not-{event}", proposal=kept.id, reason=said(error))

    def _resumed(self, kept: Kept, event: str) -> bool:
        ward = self._ward_of(kept)
        with ward.turn(0.0):
            now = self._desk.outbox.get(kept.id)
            if now.verdict is not None:
                return False
            self._delivering.require_open(ward, ward.settings(), now.rights, extends=now.update)
            self._finish(ward, now)
        self._desk.audit.append(event, proposal=kept.id)
        return True

    # --- steps

    def _ward_of(self, kept: Kept) -> Ward:
        return self._desk.wards.get(kept.repository)

    def _known(self, proposal: Proposal, rights: Rights) -> Kept | None:
        """The row of the same id, or of the same content under another id and the same grant."""
        kept = self._desk.outbox.find(proposal.id)
        if kept is None:
            return self._desk.outbox.twin(proposal, rights.grant)
        same = (kept.repository, kept.task, kept.base_commit, kept.tree, kept.update)
        if same != (rights.repository, proposal.task, proposal.base_commit, proposal.tree, proposal.update):
            raise ConflictError(f"proposal id {proposal.id!r} was used for something else", "use a new id")
        return kept

    def _keep(self, proposal: Proposal, pack: bytes, rights: Rights) -> Kept:
        self._grants.spend(rights, proposal.id)
        try:
            kept = self._desk.outbox.keep(proposal, pack, rights)
        except Exception:
            self._grants.refund(rights, proposal.id)
            raise
        self._desk.audit.append("proposal", proposal=proposal.id, grant=rights.grant, repository=rights.repository,
                                task=proposal.task, tree=proposal.tree, bytes=len(pack))  # fmt: skip
        return kept

    def _tried(self, ward: Ward, proposal: str) -> Receipt | Refusal:
        kept = self._desk.outbox.get(proposal)
        try:
            return self._finish(ward, kept)
        except (StoppedError, BudgetError) as error:
            self._holdups.met(proposal, error)
            self._desk.outbox.waits(proposal, str(error))
            self._desk.rationing.append(proposal, "waiting", proposal=proposal, reason=str(error))
            raise
        except FencedError:
            raise  # the log, too, is another broker's now
        except Exception as error:  # it stays in the outbox and is tried again
            self._holdups.met(proposal, error)
            self._desk.rationing.append(proposal, "failed", proposal=proposal, reason=said(error))
            raise

    def _finish(self, ward: Ward, kept: Kept) -> Receipt | Refusal:
        proposal, pack = self._desk.outbox.content(kept)
        case = Case(ward, ward.settings(), kept.rights, proposal, pack, kept.commit)
        approved = self._desk.outbox.approval(kept)
        self._delivering.require_running(ward)
        with self._desk.quarantine.open(ward.mirror.git, ward.object_format()) as store:
            seen = self._judging.judge(case, store)
            verdict: Receipt | Refusal | Finding
            if left(seen.findings, approved):
                verdict = self._refusal(case, kept, seen.findings)
            else:
                self._delivering.require_open(ward, case.settings, case.rights, extends=kept.update)
                site = self._judging.site(case)
                out = Outgoing(case, site, kept, store, seen, approved, self._desk.current().identity)
                verdict = self._delivering.deliver(out)
        if isinstance(verdict, Finding):
            verdict = self._refusal(case, kept, (verdict,))
        self._desk.outbox.settle(verdict)
        self._holdups.over(kept.id)
        return verdict

    def _refusal(self, case: Case, kept: Kept, findings: tuple[Finding, ...]) -> Refusal:
        rules = ",".join(sorted({finding.rule for finding in findings}))
        policy = fingerprint(case.settings.policy)
        self._desk.audit.append("refusal", proposal=kept.id, rules=rules, first=findings[0].message, policy=policy)
        return Refusal(proposal=kept.id, findings=findings, digest=kept.digest, waits=waits(findings))


def _require_digest(kept: Kept, digest: str) -> None:
    if digest != kept.digest:
        mend = f"look at it again: its digest is {kept.digest[:12]}..."
        raise ConflictError(f"the digest names other content than proposal {kept.id} holds", mend)
