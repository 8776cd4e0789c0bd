"""The right to propose: given by a person, checked at every call of the coordinator's."""

from __future__ import annotations

import re
import secrets

from broker.capability import Rights, Verb
from broker.config.repository import Repository
from broker.errors import CapabilityError, ConflictError
from broker.service.ward import Desk, Ward
from broker.wire import Grant, GrantRequest, Proposal

# Stricter than git: check-ref-format accepts bidi characters, forty hex digits and leading dashes.
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:[./][A-Za-z0-9][A-Za-z0-9_-]*)*")


class Grants:
    """Gives capabilities and tells what one is good for."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def grant(self, request: GrantRequest, by_uid: int) -> Grant:
        """Gives the right to propose one task's result. Raises AbsentError, ConflictError."""
        desk = self._desk
        ward = desk.wards.get(request.repository)
        base, branch = self._branches(ward, ward.settings(), request)
        base_commit = ward.mirror.refresh(base)
        now = desk.clock()
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
        desk.outbox.granted(rights, by_uid, now)
        desk.audit.append("grant", grant=rights.grant, uid=by_uid, repository=ward.name, task=request.task,
                          base=base, base_commit=base_commit, branch=branch, uses=request.uses)  # fmt: skip
        return Grant(
            capability=desk.mint.make(rights),
            repository=ward.name,
            base=base,
            base_commit=base_commit,
            branch=branch,
            expires=rights.expires,
            id=rights.grant,
        )

    @staticmethod
    def _branches(ward: Ward, settings: Repository, request: GrantRequest) -> tuple[str, str]:
        base = request.base or settings.default_base
        branch = settings.branch_prefix + request.task
        for name in (base, branch):
            if not is_branch_name(name):
                raise ConflictError(f"{name!r} is not a branch name that this broker uses", "plain letters and digits")
        if base.startswith(settings.branch_prefix):
            raise ConflictError(f"{base!r} is a branch of the agents' own", "name a branch that people keep")
        if ward.forge.head(branch) is not None:
            mend = "choose another task name, or remove the branch if its pull request is done with"
            raise ConflictError(f"the branch {branch} is there already", mend)
        return base, branch

    def rights(self, capability: str, verb: Verb) -> Rights:
        """What a capability is good for. Raises CapabilityError."""
        rights = self._desk.mint.check(capability, verb=verb, now=self._desk.clock())
        if not self._desk.outbox.is_granted(rights.grant):
            raise CapabilityError("the capability was granted from another state folder", "swarm-broker grant")
        return rights

    def rights_for(self, proposal: Proposal, verb: Verb) -> Rights:
        """The same, for exactly this proposal. Raises CapabilityError."""
        rights = self.rights(proposal.capability, verb)
        for name in ("task", "base_commit", "tree"):
            held, asked = getattr(rights, name), getattr(proposal, name)
            if held is not None and held != asked:
                raise CapabilityError(f"the capability is for another {name.replace('_', ' ')}", "swarm-broker grant")
        if rights.proposal is not None and rights.proposal != proposal.id:
            raise CapabilityError("the capability is for another proposal", "swarm-broker grant")
        return rights


def is_branch_name(name: str) -> bool:
    """Whether a name is plain enough for a ref: letters, digits, dash, underscore, single dots and slashes."""
    parts = name.split("/")
    return len(name) <= 200 and bool(_BRANCH.fullmatch(name)) and not any(part.endswith(".lock") for part in parts)
