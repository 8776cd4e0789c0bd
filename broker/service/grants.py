"""The right to propose: given by a person, checked at every call of the coordinator's, taken back by a person."""

from __future__ import annotations

import hashlib
import secrets

from broker.capability import STANDING, VERBS, Rights, Verb
from broker.config.repository import Repository
from broker.errors import CapabilityError, ConflictError
from broker.judge.policy import may_aim_at
from broker.outbox.grants import Granted, GrantStore
from broker.person_wire import GrantInfo
from broker.person_wire import Grants as Listed
from broker.service.stops import Stops
from broker.service.visibility import leak
from broker.service.ward import Desk, Ward
from broker.wire import DrawRequest, Finding, Grant, GrantRequest, Proposal
from broker.words.branch import is_branch_name

_NEW = "a person asks for a new one: swarm-broker grant"
DRAWN = 7 * 86400.0  # seconds that a drawn right lasts at most
_MATCHED = ("task", "base_commit", "tree")
_MATCHED_BY_AN_UPDATE = ("task", "tree")  # its base commit is the branch's, which the delivery checks


class Grants:
    """Gives capabilities, tells what one is good for, and takes them back."""

    def __init__(self, desk: Desk, store: GrantStore, stops: Stops) -> None:
        self._desk = desk
        self._store = store
        self._stops = stops

    # --- a person's verbs

    def grant(self, request: GrantRequest, by: str) -> Grant:
        """Gives the right to propose one task's result; ``by`` is "uid:N" or "forge:LOGIN".

        Raises AbsentError, ConflictError (base, branch or what it would read speak against it) and StoppedError.
        """
        ward = self._desk.wards.get(request.repository)
        self._stops.require_running(ward.name)
        base, branch = _branches(ward, ward.settings(), request)
        reads = tuple(name for name in dict.fromkeys(request.reads) if name != ward.name)
        if found := leak(ward, [self._desk.wards.get(name) for name in reads]):
            raise ConflictError(found.message, found.mend)
        _require_free(ward, branch)
        now = self._desk.clock()
        rights = Rights(
            grant=secrets.token_hex(16),
            repository=ward.name,
            base=base,
            base_commit=ward.mirror.refresh(base),
            branch=branch,
            task=request.task,
            uses=request.uses,
            expires=now + request.seconds,
            issue=request.issue,
            reads=reads,
            verbs=STANDING if request.standing else VERBS,
            each=request.each,
        )
        self._store.record(rights, by, now)
        self._write_down(rights, by)
        return self._given(rights)

    def _given(self, rights: Rights) -> Grant:
        return Grant(
            capability=self._desk.mint.make(rights),
            repository=rights.repository,
            base=rights.base,
            base_commit=rights.base_commit,
            branch=rights.branch,
            expires=rights.expires,
            id=rights.grant,
        )

    def _write_down(self, rights: Rights, by: str, **more: str) -> None:
        issue = {} if rights.issue is None else {"issue": rights.issue}
        reads = {"reads": ",".join(rights.reads)} if rights.reads else {}
        self._desk.audit.append("grant", grant=rights.grant, by=by, repository=rights.repository, task=rights.task,
                                base=rights.base, base_commit=rights.base_commit, branch=rights.branch,
                                uses=rights.uses, **issue, **reads, **more)  # fmt: skip

    def listing(self) -> Listed:
        """All that are still good, newest first."""
        return Listed(grants=tuple(_info(granted) for granted in self._store.good(self._desk.clock())))

    def revoke(self, grant: str, by_uid: int) -> GrantInfo:
        """Takes one back for good; what was delivered under it stays. Raises AbsentError."""
        granted = self._store.revoke(grant, f"uid:{by_uid}", self._desk.clock(), _drawn)
        rights = granted.rights
        self._desk.audit.append("revoke", grant=grant, uid=by_uid, repository=rights.repository, task=rights.task)
        return _info(granted)

    # --- out of a standing right

    def draw(self, request: DrawRequest) -> Grant:
        """Gives one task's right out of a standing one, on the base as it is now; the same task again, the same right.

        It is for the standing right's repository, base branch and reads, and lasts no longer. Raises CapabilityError
        (used up, another's task), AbsentError, ConflictError and StoppedError.
        """
        held = self.rights(request.capability, "draw")
        if request.task != held.task and not request.task.startswith(f"{held.task}-"):
            mend = f"its tasks are {held.task} and {held.task}-…"
            raise CapabilityError(f"the capability is not good for task {request.task}", mend)
        ward = self._desk.wards.get(held.repository)
        self._stops.require_running(ward.name)
        if (before := self._store.find(_drawn(held, request.task))) is not None:
            return self._again(before, held)
        self._store.left(held, request.task)  # nobody asks a forge for what is used up
        if found := leak(ward, [self._desk.wards.get(name) for name in held.reads]):
            raise ConflictError(found.message, found.mend)
        asked = GrantRequest(repository=held.repository, base=held.base, task=request.task)
        base, branch = _branches(ward, ward.settings(), asked)
        _require_free(ward, branch)
        commit = ward.mirror.refresh(base)  # takes its time, and may fail: no use is spent before
        now = self._desk.clock()
        rights = held.model_copy(
            update={
                "grant": _drawn(held, request.task),
                "base_commit": commit,
                "branch": branch,
                "task": request.task,
                "uses": held.each,
                "each": 1,
                "verbs": VERBS,
                "expires": min(held.expires, now + DRAWN),
            }
        )
        giver = self.giver(held)
        if (before := self._store.draw(held, rights, giver, now)) is not None:
            return self._again(before, held)
        self._write_down(rights, giver, of=held.grant)
        return self._given(rights)

    def _again(self, before: Granted, held: Rights) -> Grant:
        self._store.require(before.rights)
        _require_within(before.rights, held)
        return self._given(before.rights)

    # --- what a capability is good for

    def rights(self, capability: str, verb: Verb) -> Rights:
        """What a capability is good for now. Raises CapabilityError: forged, expired, taken back, for another verb."""
        rights = self._desk.mint.check(capability, verb=verb, now=self._desk.clock())
        self._store.require(rights)
        return rights

    def rights_for(self, proposal: Proposal, verb: Verb) -> Rights:
        """The same, for exactly this proposal; one that updates needs the verb update as well."""
        rights = self.rights(proposal.capability, verb)
        if proposal.update and "update" not in rights.verbs:
            raise CapabilityError("the capability is not good for update", _NEW)
        for name in _MATCHED_BY_AN_UPDATE if proposal.update else _MATCHED:
            held, asked = getattr(rights, name), getattr(proposal, name)
            if held is not None and held != asked:
                raise CapabilityError(f"the capability is for another {name.replace('_', ' ')}", _NEW)
        if rights.proposal is not None and rights.proposal != proposal.id:
            raise CapabilityError("the capability is for another proposal", _NEW)
        return rights

    def spend(self, rights: Rights, proposal: str) -> None:
        """Spends one use for a proposal, once per proposal. Raises CapabilityError: taken back or used up."""
        self._store.spend(rights, proposal)

    def refund(self, rights: Rights, proposal: str) -> None:
        """Takes a use back that led to nothing kept."""
        self._store.refund(rights, proposal)

    def withdrawn(self, rights: Rights) -> Finding | None:
        """Whether a person took the grant back after the proposal was taken in."""
        try:
            self._store.require(rights)
        except CapabilityError as error:
            return Finding(rule="grant-withdrawn", message=str(error), mend=error.mend)
        return None

    def giver(self, rights: Rights) -> str:
        """Who gave the grant, "uid:N" or "forge:LOGIN"; empty once that is forgotten."""
        given = self._store.find(rights.grant)
        return "" if given is None else given.by

    def leak(self, rights: Rights) -> Finding | None:
        """The visibility rule by what the forges say now. Raises ForgeError, AbsentError.

        It holds for all that was granted: who read with the whole capability may come with one that was narrowed since.
        """
        given = self._store.find(rights.grant)
        reads = rights.reads if given is None else given.rights.reads
        wards = self._desk.wards
        return leak(wards.get(rights.repository), [wards.get(name) for name in reads])


def _drawn(held: Rights, task: str) -> str:
    """The id of the one grant that a task may have out of a standing one: what is asked for twice is given once."""
    return hashlib.sha256(f"{held.grant}:{task}".encode()).hexdigest()[:32]


def _require_within(given: Rights, held: Rights) -> None:
    """What was drawn before is handed out again to nobody whose own capability was narrowed to less."""
    narrower = given.expires > held.expires or not set(given.reads) <= set(held.reads)
    if narrower or (given.tree, given.proposal) != (held.tree, held.proposal):
        raise CapabilityError("the task's right was drawn before, under a capability that allowed more", _NEW)


def _branches(ward: Ward, settings: Repository, request: GrantRequest) -> tuple[str, str]:
    base = request.base or settings.default_base
    branch = settings.branch_prefix + request.task
    for name in (base, branch):
        if not is_branch_name(name):
            raise ConflictError(f"{name!r} is not a branch name that this broker uses", "plain letters and digits")
    if base.startswith(settings.branch_prefix):
        raise ConflictError(f"{base!r} is a branch of the agents' own", "name a branch that people keep")
    if not may_aim_at(base, settings.default_base, settings.policy):
        allowed = ", ".join((settings.default_base, *settings.policy.bases))
        mend = f"it may go to {allowed}; the operator adds others under policy.bases"
        raise ConflictError(f"pull requests of {ward.name} may not go to {base!r}", mend)
    return base, branch


def _require_free(ward: Ward, branch: str) -> None:
    if ward.forge.head(branch) is not None:
        mend = "choose another task name, or remove the branch if its pull request is done with"
        raise ConflictError(f"the branch {branch} is there already", mend)


def _info(granted: Granted) -> GrantInfo:
    rights = granted.rights
    return GrantInfo(
        id=rights.grant,
        repository=rights.repository,
        task=rights.task,
        base=rights.base,
        branch=rights.branch,
        by=granted.by,
        at=granted.at,
        expires=rights.expires,
        uses=rights.uses,
        used=granted.used,
        revoked=granted.revoked,
    )
