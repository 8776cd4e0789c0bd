"""A repository on GitHub or a GitHub Enterprise. Only pull requests of the broker's own are ever touched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from broker.errors import AbsentError, ConflictError, ForgeError
from broker.forge.base import Checked, Dressing, Order, Status, Visibility, is_for
from broker.forge.github.account import Account
from broker.forge.github.dressing import put_on
from broker.forge.github.examining import examined
from broker.forge.github.place import Place
from broker.forge.github.reading import is_own, pull_of
from broker.forge.reading import commit as commit_id
from broker.forge.reading import inside, number
from broker.forge.rest.door import Call, Door, Query, Visit
from broker.forge.rest.problems import Reason
from broker.forge.transport import Transport
from broker.gitdir import GitDir
from broker.scope import Scope
from broker.wire import PullRequest

_PAGES = 10
_LOOKS = (0.0, 1.0, 2.0)
_AGAIN = {Reason.BROKEN, Reason.DUPLICATE, Reason.LARGE}
_DESCRIPTION = 140


class GitHubForge:
    """Its branches by git, its pull requests by the REST API."""

    def __init__(
        self,
        place: Place,
        door: Door,
        git: Transport,
        account: Account,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._place, self._door, self._git, self._account, self._sleep = place, door, git, account, sleep

    def object_format(self) -> str:
        """GitHub has sha1 alone."""
        return "sha1"

    def visibility(self) -> Visibility:
        """An internal repository is read by a whole enterprise: neither public nor private, so unknown."""
        with self._door.visit() as visit:
            told = visit.get(self._place.repo(), doing="the repository").mapping()
        shown = told.get("visibility") or {"True": "private", "False": "public"}.get(str(told.get("private")))
        return "public" if shown == "public" else "private" if shown == "private" else "unknown"

    def head(self, branch: str) -> str | None:
        """The commit that a branch is on now."""
        with self._door.visit() as visit:
            found = visit.get_or_none(self._place.ref(branch), doing=f"branch {branch}")
            if found is None:
                # An absent branch and a hidden repository are both a 404: only the first may be told as absent.
                visit.get(self._place.repo(), doing="the repository")
                return None
        told = found.mapping()
        return commit_id(inside(told, "object", "sha")) or None if told.get("ref") == f"refs/heads/{branch}" else None

    def fetch(self, branch: str, into: GitDir) -> str | None:
        """Brings the branch with its history."""
        return self._git.fetch(branch, into)

    def push(self, source: GitDir, commit: str, branch: str, expected: str | None = None) -> bool:
        """Creates the branch or moves it forward; one of the broker's own prefix, never another."""
        if not branch.startswith(self._place.prefix):
            raise ForgeError(f"the branch {branch} does not start with {self._place.prefix}: nothing was pushed")
        return self._git.push(source, commit, branch, expected)

    def find(self, branch: str, base: str) -> PullRequest | None:
        """The open one, else the newest, of those that the broker opened."""
        with self._door.visit() as visit:
            return self._found(visit, branch, base)

    def _found(self, visit: Visit, branch: str, base: str, order: Order | None = None) -> PullRequest | None:
        return self._of_order(visit, self._of_branch(visit, branch, base), order)

    def _of_order(self, visit: Visit, there: Iterable[dict[str, Any]], order: Order | None) -> PullRequest | None:
        own = [item for item in there if self._is_own(visit, item)]
        own.sort(key=lambda item: (item.get("state") == "open", number(item.get("number"))), reverse=True)
        pulls = [pull_of(item, self._place, order) for item in own]
        return next((pull for pull in pulls if order is None or is_for(pull, order)), None)

    def _of_branch(self, visit: Visit, branch: str, base: str) -> list[dict[str, Any]]:
        query: Query = {"head": f"{self._place.owner}:{branch}", "base": base, "state": "all", "per_page": 100}
        found = visit.get(self._place.repo("pulls"), query, doing=f"pull requests of {branch}").list()
        return [item for item in found if inside(item, "head", "ref") == branch and inside(item, "base", "ref") == base]

    def _is_own(self, visit: Visit, item: dict[str, Any]) -> bool:
        return is_own(item, self._place, self._account.login(visit))

    def open(self, order: Order) -> PullRequest:
        """Looks first, opens, and after an answer that was lost looks again: there is one, whatever happened.

        Raises ForgeError, ``uncertain`` where it may have been opened and cannot be seen.
        """
        with self._door.visit(Scope.PULLS) as visit:
            known = self._found(visit, order.branch, order.base, order)
            return known or self._opened(visit, order)

    def _opened(self, visit: Visit, order: Order) -> PullRequest:
        wanted = {"title": order.title, "body": order.body, "head": order.branch, "base": order.base}
        try:
            made = visit.post(
                self._place.repo("pulls"), {**wanted, "draft": order.draft}, doing="open the pull request", creates=True
            )
            return pull_of(made.mapping(), self._place, order)
        except ForgeError as error:
            error.uncertain = error.uncertain or error.reason in _AGAIN  # until another's is seen, it may be ours
            if not error.uncertain:
                raise
            return self._looked_for(visit, order, error)

    def _looked_for(self, visit: Visit, order: Order, lost: ForgeError) -> PullRequest:
        """A list may lag behind what was made a moment ago. Raises ``lost`` where nothing can be seen."""
        for pause in _LOOKS:
            self._sleep(pause)
            try:
                there = self._of_branch(visit, order.branch, order.base)
            except ForgeError:
                raise lost from None
            if known := self._of_order(visit, there, order):
                return known
            for item in there:
                if item.get("state") == "open":
                    raise _of_another(number(item.get("number")), order.branch)
        raise lost

    def dress(self, number: int, dressing: Dressing) -> tuple[str, ...]:
        """Puts labels, reviewers and assignees on."""
        with self._door.visit(Scope.PULLS) as visit:
            self._own(visit, number)
            return put_on(visit, self._place, number, dressing, self._account.login(visit), self._sleep)

    def report(self, commit: str, status: Status) -> None:
        """Sets a commit status; the same again changes nothing."""
        told = {"state": status.state, "context": status.context, "description": status.description[:_DESCRIPTION]}
        told |= {"target_url": status.url} if status.url else {}
        with self._door.visit(Scope.STATUS) as visit:
            visit.post(self._place.repo("statuses", commit), told, doing="the commit status", again=True)

    def revise(self, number: int, title: str, body: str) -> None:
        """New words for an open one of the broker's own."""
        with self._door.visit(Scope.PULLS) as visit:
            if self._own(visit, number).get("state") != "open":
                raise ConflictError(f"pull request {number} is no longer open")
            visit.patch(self._place.repo("pulls", number), {"title": title, "body": body}, doing="revise it")

    def close(self, number: int) -> None:
        """Closes one of the broker's own; a closed one stays so."""
        with self._door.visit(Scope.PULLS) as visit:
            if self._own(visit, number).get("state") == "open":
                visit.patch(self._place.repo("pulls", number), {"state": "closed"}, doing="close it")

    def pulls(self) -> tuple[PullRequest, ...]:
        """Its own among the newest thousand of the repository."""
        query: Query = {"state": "all", "sort": "created", "direction": "desc", "per_page": 100}
        with self._door.visit() as visit:
            pages = visit.pages(self._place.repo("pulls"), query, most=_PAGES, doing="the pull requests")
            own = [item for page in pages for item in page if self._is_own(visit, item)]
        return tuple(pull_of(item, self._place) for item in own)

    def pull(self, number: int) -> PullRequest:
        """One of the broker's own. Raises AbsentError."""
        with self._door.visit() as visit:
            return pull_of(self._own(visit, number), self._place)

    def _own(self, visit: Visit, number: int) -> dict[str, Any]:
        absent = f"{self._place.name} has no pull request {number} of the broker's"
        item = visit.get_known(self._place.repo("pulls", number), absent).mapping()
        if not self._is_own(visit, item):
            raise AbsentError(absent)
        return item

    def diff(self, number: int, limit: int) -> tuple[str, bool]:
        """As GitHub shows it. Raises AbsentError."""
        with self._door.visit() as visit:
            self._own(visit, number)
            path = self._place.repo("pulls", number)
            wanted = {"Accept": "application/vnd.github.diff"}
            shown = visit.send(Call("GET", path, headers=wanted, limit=limit, cut=True, doing="the diff")).body
        return shown[:limit].decode(errors="replace"), len(shown) > limit

    def examine(self, base: str, prefix: str) -> tuple[Checked, ...]:  # noqa: ARG002
        """What a doctor tells of credential and rules."""
        with self._door.visit() as visit:
            return tuple(examined(visit, self._place, prefix))

    def merge(self, number: int, by: str) -> PullRequest:
        """Never: people merge, on the forge. Raises AbsentError and ConflictError."""
        where = self.pull(number).url
        raise ConflictError(f"the broker does not merge on a forge; {by} may", f"merge it there: {where}")


def _of_another(number: int, branch: str) -> ForgeError:
    message = f"pull request {number} of the branch {branch} is somebody else's"
    return ForgeError(message, "close it, or submit the task under another name", reason=Reason.DUPLICATE)
