"""Branches and pull requests of one repository on Gitea or Forgejo.

AGit (a push to refs/for/BASE opens a pull request without a branch) is never used: only refs/heads/ is pushed to.
Source: Gitea's API description; Forgejo's is the same in all that is used here (docs/broker-gitea.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.errors import AbsentError, ConflictError, ForgeError
from broker.forge.account import Account
from broker.forge.base import Checked, Dressing, Order, Status, Visibility, is_for
from broker.forge.gitea import reading
from broker.forge.gitea.doctor import examine
from broker.forge.gitea.dressing import dress
from broker.forge.gitea.site import Site
from broker.forge.reading import commit, inside, number, somebody_elses
from broker.forge.rest.address import part
from broker.forge.rest.door import Call, Door, Visit
from broker.forge.rest.problems import Reason
from broker.forge.transport import Transport
from broker.gitdir import GitDir
from broker.scope import Scope
from broker.wire import PullRequest

_PAGE, _PAGES = 50, 10
_AGAIN = {Reason.DUPLICATE, Reason.CONFLICT}
_MOST_STATUS = 255


class GiteaForge:
    """One repository."""

    def __init__(self, site: Site, door: Door, transport: Transport, account: Account) -> None:
        self._site, self._door, self._transport, self._account = site, door, transport, account

    def object_format(self) -> str:
        """sha1 or sha256; an older server, which does not tell, has sha1 alone."""
        with self._door.visit() as visit:
            told = visit.get(self._site.path, doing="the repository could not be read").mapping()
        return "sha256" if told.get("object_format_name") == "sha256" else "sha1"

    def visibility(self) -> Visibility:
        """As the forge says now."""
        with self._door.visit() as visit:
            return reading.visibility(visit.get(self._site.path, doing="the repository could not be read").mapping())

    def examine(self, base: str, prefix: str) -> tuple[Checked, ...]:
        """What a person should know of the credential and the forge's own rules."""
        return examine(self._door, self._site, self._account, base, prefix)

    def head(self, branch: str) -> str | None:
        """The commit that a branch is on now."""
        with self._door.visit() as visit:
            return self._head(visit, branch)

    def _head(self, visit: Visit, branch: str) -> str | None:
        reply = visit.get_or_none(f"{self._site.path}/branches/{part(branch)}", doing=f"branch {branch}")
        if reply is None:
            visit.get(self._site.path, doing="the repository could not be read")  # a hidden one has no branches either
            return None
        head = commit(inside(reply.mapping(), "commit", "id"))
        if not head:
            raise ForgeError(f"the forge does not tell what {branch} is on", reason=Reason.BROKEN)
        return head

    def fetch(self, branch: str, into: GitDir) -> str | None:
        """Brings the branch's history."""
        return self._transport.fetch(branch, into)

    def push(self, source: GitDir, commit: str, branch: str, expected: str | None = None) -> bool:
        """Creates the branch, or moves it forward from ``expected``; one of the broker's prefix, never another."""
        if not branch.startswith(self._site.prefix):
            raise ForgeError(f"the branch {branch} does not start with {self._site.prefix}: nothing was pushed")
        return self._transport.push(source, commit, branch, expected)

    def find(self, branch: str, base: str) -> PullRequest | None:
        """The open one by its branches, else the newest of the last five hundred; the broker's own alone."""
        with self._door.visit() as visit:
            found = self._found(visit, branch, base)
        return None if found is None else reading.pull(found, self._site)

    def _found(self, visit: Visit, branch: str, base: str) -> dict[str, Any] | None:
        mine = [one for one in self._between(visit, branch, base) if self._is_own(visit, one)]
        return max(mine, key=lambda one: (one.get("state") == "open", number(one.get("number"))), default=None)

    def _between(self, visit: Visit, branch: str, base: str) -> list[dict[str, Any]]:
        path = f"{self._site.path}/pulls/{part(base)}/{part(branch)}"
        reply = visit.get_or_none(path, doing=f"the pull request of {branch}")
        if reply is not None:
            one = reply.mapping()
            if reading.is_between(one, self._site, branch, base) and one.get("state") == "open":
                return [one]
        return [one for one in self._listed(visit, base) if reading.is_between(one, self._site, branch, base)]

    def _is_own(self, visit: Visit, value: dict[str, Any]) -> bool:
        return reading.is_own(value, self._site, self._account.name(visit))

    def _listed(self, visit: Visit, base: str = "") -> Iterator[dict[str, Any]]:
        query = {"state": "all", "limit": str(_PAGE), **({"base_branch": base} if base else {})}
        for page in visit.pages(f"{self._site.path}/pulls", query, most=_PAGES, doing="the pull requests"):
            yield from page

    def open(self, order: Order) -> PullRequest:
        """Opens it, or returns the branch's: also where the answer to an earlier call was lost."""
        with self._door.visit(Scope.PULLS) as visit:
            known = self._found(visit, order.branch, order.base)
            if known is not None and is_for(self._read(known, order), order):
                return self._read(known, order)
            title = reading.drafted(order.title) if order.draft else order.title
            body = {"title": title, "body": order.body, "head": order.branch, "base": order.base}
            try:
                made = visit.post(
                    f"{self._site.path}/pulls", body, doing="the pull request could not be opened", creates=True
                ).mapping()
            except ForgeError as error:
                error.uncertain = error.uncertain or error.reason in _AGAIN  # until another's is seen, it may be ours
                if not error.uncertain:
                    raise
                made = self._after_all(visit, order, error)
            return self._read(made, order)

    def _after_all(self, visit: Visit, order: Order, error: ForgeError) -> dict[str, Any]:
        try:
            there = self._between(visit, order.branch, order.base)
        except ForgeError:
            raise error from None  # it is still not known whether it was done
        for one in there:
            if self._is_own(visit, one) and is_for(self._read(one, order), order):
                return one
        for one in there:
            if one.get("state") == "open":
                raise somebody_elses(number(one.get("number")), order.branch)
        raise error

    def _read(self, value: dict[str, Any], order: Order) -> PullRequest:
        one = reading.pull(value, self._site)
        return reading.pull(value, self._site, order) if one.commit == order.commit else one

    def dress(self, number: int, dressing: Dressing) -> tuple[str, ...]:
        """Labels by their ids, then reviewers, then assignees."""
        with self._door.visit() as visit:
            self._own(visit, number)
        return dress(self._door, self._site, number, dressing)

    def report(self, commit: str, status: Status) -> None:
        """Sets the status; the newest of a context counts, so that the same again does no harm."""
        body = {
            "state": status.state,
            "context": status.context,
            "description": status.description[:_MOST_STATUS],
            **({"target_url": status.url} if status.url else {}),
        }
        with self._door.visit(Scope.STATUS) as visit:
            path = f"{self._site.path}/statuses/{part(commit)}"
            visit.post(path, body, doing="the status could not be set", again=True)

    def revise(self, number: int, title: str, body: str) -> None:
        """New words; a draft stays one, and one that a person has made ready stays ready."""
        with self._door.visit(Scope.PULLS) as visit:
            now = reading.pull(self._own(visit, number), self._site)
            if now.state != "open":
                raise ConflictError(f"pull request {number} is {now.state}")
            given = {"title": reading.drafted(title) if now.draft else title, "body": body}
            visit.patch(self._path(number), given, doing=f"pull request {number} could not be changed")

    def close(self, number: int) -> None:
        """Closes it; one that is closed or merged stays as it is."""
        with self._door.visit(Scope.PULLS) as visit:
            if self._own(visit, number).get("state") == "open":
                visit.patch(self._path(number), {"state": "closed"}, doing=f"pull request {number} could not be closed")

    def _path(self, number: int) -> str:
        return f"{self._site.path}/pulls/{part(number)}"

    def _own(self, visit: Visit, number: int) -> dict[str, Any]:
        absent, mend = (
            f"{self._site.name} has no pull request {number} of the broker's",
            "swarm-broker pr list shows them",
        )
        value = visit.get_known(self._path(number), absent, mend).mapping()
        if not self._is_own(visit, value):
            raise AbsentError(absent, mend)
        return value

    def pulls(self) -> tuple[PullRequest, ...]:
        """Those from a branch of the broker's in this repository, opened by its account; of the last five hundred."""
        with self._door.visit() as visit:
            mine = [reading.pull(one, self._site) for one in self._listed(visit) if self._is_own(visit, one)]
        return tuple(sorted(mine, key=lambda pull: -pull.number))

    def pull(self, number: int) -> PullRequest:
        """One of them. Raises AbsentError."""
        with self._door.visit() as visit:
            return reading.pull(self._own(visit, number), self._site)

    def diff(self, number: int, limit: int) -> tuple[str, bool]:
        """As the forge shows it. Raises AbsentError."""
        call = Call("GET", f"{self._path(number)}.diff", limit=limit, cut=True, doing="the diff")
        with self._door.visit() as visit:
            self._own(visit, number)
            body = visit.send(call).body
        return body[:limit].decode(errors="replace"), len(body) > limit

    def merge(self, number: int, by: str) -> PullRequest:
        """Never: people merge, on the forge. Raises AbsentError and ConflictError."""
        self.pull(number)
        where = self._site.pull_url(number)
        raise ConflictError(f"the broker does not merge on a forge; {by} may", f"merge it there: {where}")
