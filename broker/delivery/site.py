"""Where a delivery goes, as the forge shows it now: base, branch, and the pull requests of the same grant."""

from __future__ import annotations

from dataclasses import dataclass

from broker.capability import Rights
from broker.config.repository import Repository
from broker.errors import AbsentError
from broker.forge.base import Forge
from broker.judge.policy import may_aim_at
from broker.mirror import Mirror
from broker.outbox.rows import Own
from broker.wire import Finding, Proposal

_ANOTHER_TASK = "submit it as a task of its own"


@dataclass(frozen=True)
class Site:
    """One branch on one forge, and what was delivered to it under the same grant."""

    forge: Forge
    mirror: Mirror
    rights: Rights
    own: tuple[Own, ...] = ()

    def head(self) -> str | None:
        """The commit that the branch is on. Raises ForgeError."""
        return self.forge.head(self.rights.branch)

    def holds(self, head: str | None, commit: str) -> bool:
        """Whether a branch on ``head`` is on a commit, or was moved forward from it by somebody else."""
        if head is None or head == commit:
            return head == commit
        try:
            self.mirror.refresh(self.rights.branch)
        except AbsentError:
            return False
        return self.mirror.git.succeeds("merge-base", "--is-ancestor", "--end-of-options", commit, head)

    # --- what speaks against a delivery before anything is judged

    def against(self, proposal: Proposal, repository: Repository, pushed: str | None) -> tuple[Finding, ...]:
        """All of it; ``pushed`` is the commit that this very proposal may have put there already."""
        found = [*self._base(repository)]
        found += self._update(proposal, repository, pushed) if proposal.update else self._new(pushed)
        return tuple(found)

    def _base(self, repository: Repository) -> list[Finding]:
        base = self.rights.base
        if not may_aim_at(base, repository.default_base, repository.policy):
            message = f"pull requests may no longer go to {base}"
            return [Finding(rule="base-not-allowed", message=message, mend="the operator names it under policy.bases")]
        head = self.forge.head(base)
        if head is None:
            return [base_gone(f"the branch {base} is gone")]
        if head != self.rights.base_commit:
            message = f"{base} has moved on since this was begun"
            return [Finding(rule="base-moved", severity="warn", message=message, mend="look whether both still agree")]
        return []

    def _new(self, pushed: str | None) -> list[Finding]:
        head = self.head()
        if head is not None and not (pushed and self.holds(head, pushed)):
            return [taken(self.rights.branch)]
        before = (own for own in self.own if own.grant == self.rights.grant)  # a new grant is a person's new word
        return [closed(own.number) for own in before if self._state(own.number) == "closed"][:1]

    def _update(self, proposal: Proposal, repository: Repository, pushed: str | None) -> list[Finding]:
        if not self.own:
            message = "nothing was delivered yet under this grant that could be updated"
            return [
                Finding(rule="no-pull-request", severity="fatal", message=message, mend="propose it without update")
            ]
        found = []
        own, most = self.own[-1], repository.follow.max_rounds
        if own.rounds >= most:
            message = f"pull request {own.number} was updated {own.rounds} times, {most} are allowed"
            found.append(Finding(rule="needs-human", severity="ask", message=message, mend="a person looks at it"))
        if over := self.over(own.number):
            found.append(over)
        head = self.head()
        if head is None or (head != proposal.base_commit and not (pushed and self.holds(head, pushed))):
            found.append(moved(self.rights.branch))
        return found

    def over(self, number: int) -> Finding | None:
        """Whether a pull request of ours takes no more, or is ours no more. Raises ForgeError."""
        try:
            pull = self.forge.pull(number)
        except AbsentError:
            return closed(number)
        if pull.state != "open":
            return merged(number) if pull.state == "merged" else closed(number)
        if (pull.branch, pull.base) != (self.rights.branch, self.rights.base):
            return led_elsewhere(number, self.rights)
        return None

    def _state(self, number: int) -> str:
        try:
            return self.forge.pull(number).state
        except AbsentError:  # a person removed it, or gave it to another account
            return "closed"


def led_elsewhere(number: int, rights: Rights) -> Finding:
    """It is between other branches now: another's words and work would be changed, and signed as ours."""
    message = f"pull request {number} does not lead from {rights.branch} to {rights.base} any more"
    mend = f"a person puts that right on the forge, or {_ANOTHER_TASK}"
    return Finding(rule="pull-moved", severity="fatal", message=message, mend=mend)


def base_gone(message: str) -> Finding:
    """There is nothing to judge it against."""
    return Finding(rule="base-gone", severity="fatal", message=message, mend="submit it on the base as it is now")


def taken(branch: str) -> Finding:
    """The branch is somebody else's."""
    message = f"the branch {branch} is there already, on another commit"
    return Finding(rule="branch-taken", message=message, mend="remove it, or submit the task under another name")


def moved(branch: str) -> Finding:
    """Somebody pushed to our branch, and what they did is not in the proposal: no word of a person's changes that."""
    message = f"the branch {branch} is not on the commit that this was built on"
    return Finding(rule="branch-moved", severity="fatal", message=message, mend="build it on the branch as it is now")


def closed(number: int) -> Finding:
    """A person said no."""
    message = f"pull request {number} was closed by a person; the broker opens none in its place"
    return Finding(rule="pull-closed", message=message, mend=f"open it again, or {_ANOTHER_TASK}")


def merged(number: int) -> Finding:
    """There is nothing left to extend."""
    return Finding(rule="pull-merged", message=f"pull request {number} is merged already", mend=_ANOTHER_TASK)
