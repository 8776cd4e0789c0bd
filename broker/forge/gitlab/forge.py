"""Branches and merge requests of one project on GitLab.

Push options, by which a push can open or merge a merge request, are never sent. Whatever words go out pass the last
door against quick actions. Source: GitLab's REST API documentation; work item 591660 (a target that is not there).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.errors import AbsentError, ConflictError, ForgeError
from broker.forge.account import Account
from broker.forge.base import Checked, Dressing, Order, Status, Visibility, is_for
from broker.forge.gitlab import reading
from broker.forge.gitlab.doctor import examine
from broker.forge.gitlab.dressing import dress
from broker.forge.gitlab.quick import titled, without_actions
from broker.forge.gitlab.site import Site
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
_STATES = {"pending": "pending", "success": "success", "failure": "failed"}


class GitLabForge:
    """One project."""

    def __init__(self, site: Site, door: Door, transport: Transport, account: Account) -> None:
        self._site, self._door, self._transport, self._account = site, door, transport, account

    def object_format(self) -> str:
        """sha1 or sha256; an older server, which does not tell, has sha1 alone."""
        return "sha256" if self._project().get("repository_object_format") == "sha256" else "sha1"

    def visibility(self) -> Visibility:
        """As the forge says now."""
        return reading.visibility(self._project())

    def _project(self) -> dict[str, Any]:
        with self._door.visit() as visit:
            return visit.get(self._site.path, doing="the project could not be read").mapping()

    def examine(self, base: str, prefix: str) -> tuple[Checked, ...]:
        """What a person should know of the credential and the forge's own rules."""
        return examine(self._door, self._site, self._account, base, prefix)

    def head(self, branch: str) -> str | None:
        """The commit that a branch is on now."""
        with self._door.visit() as visit:
            return self._head(visit, branch)

    def _head(self, visit: Visit, branch: str) -> str | None:
        reply = visit.get_or_none(f"{self._site.path}/repository/branches/{part(branch)}", doing=f"branch {branch}")
        if reply is None:
            visit.get(self._site.path, doing="the project could not be read")  # a hidden one has no branches either
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
        """The open one, else the newest; the broker's own alone."""
        with self._door.visit() as visit:
            found = self._found(visit, branch, base)
        return None if found is None else reading.pull(found, self._site)

    def _found(self, visit: Visit, branch: str, base: str) -> dict[str, Any] | None:
        mine = [one for one in self._between(visit, branch, base) if self._is_own(visit, one)]
        return max(mine, key=lambda one: (one.get("state") == "opened", number(one.get("iid"))), default=None)

    def _between(self, visit: Visit, branch: str, base: str) -> list[dict[str, Any]]:
        there = self._listed(visit, {"source_branch": branch, "target_branch": base})
        ends = [(one, one.get("source_branch"), one.get("target_branch")) for one in there]
        return [one for one, source, target in ends if reading.is_from_here(one) and (source, target) == (branch, base)]

    def _is_own(self, visit: Visit, value: dict[str, Any]) -> bool:
        return reading.is_own(value, self._site, self._account.name(visit))

    def _listed(self, visit: Visit, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        asked = {"state": "all", "order_by": "created_at", "sort": "desc", "per_page": str(_PAGE), **query}
        for page in visit.pages(f"{self._site.path}/merge_requests", asked, most=_PAGES, doing="the merge requests"):
            yield from page

    def open(self, order: Order) -> PullRequest:
        """Opens it, or returns the branch's: also where the answer to an earlier call was lost."""
        title = titled(order.title)
        words = {
            "title": reading.drafted(title) if order.draft else title[: reading.MOST_TITLE],
            "description": without_actions(order.body, "the description"),
            "source_branch": order.branch,
            "target_branch": order.base,
        }
        with self._door.visit(Scope.PULLS) as visit:
            known = self._found(visit, order.branch, order.base)
            if known is not None and is_for(self._read(known, order), order):
                return self._read(known, order)
            self._insist_on_target(visit, order.base)
            try:
                made = visit.post(
                    f"{self._site.path}/merge_requests",
                    words,
                    doing="the merge request could not be opened",
                    creates=True,
                ).mapping()
            except ForgeError as error:
                error.uncertain = error.uncertain or error.reason in _AGAIN  # until another's is seen, it may be ours
                if not error.uncertain:
                    raise
                made = self._after_all(visit, order, error)
            return self._read(made, order)

    def _insist_on_target(self, visit: Visit, base: str) -> None:
        if self._head(visit, base) is None:  # GitLab would open it all the same, broken (work item 591660)
            raise ForgeError(f"the branch {base} is gone", "submit the task on another base", reason=Reason.BRANCH)

    def _after_all(self, visit: Visit, order: Order, error: ForgeError) -> dict[str, Any]:
        try:
            there = self._between(visit, order.branch, order.base)
        except ForgeError:
            raise error from None  # it is still not known whether it was done
        for one in there:
            if self._is_own(visit, one) and is_for(self._read(one, order), order):
                return one
        for one in there:
            if one.get("state") == "opened":
                raise somebody_elses(number(one.get("iid")), order.branch)
        raise error

    def _read(self, value: dict[str, Any], order: Order) -> PullRequest:
        one = reading.pull(value, self._site)
        return reading.pull(value, self._site, order) if one.commit == order.commit else one

    def dress(self, number: int, dressing: Dressing) -> tuple[str, ...]:
        """Labels that are there already, reviewers and assignees by their ids."""
        with self._door.visit() as visit:
            self._own(visit, number)
        return dress(self._door, self._site, number, dressing)

    def report(self, commit: str, status: Status) -> None:
        """Sets the status. GitLab refuses the state that it has, so that it is looked first."""
        state = _STATES[status.state]
        body = {
            "state": state,
            "name": status.context,
            "description": status.description[:_MOST_STATUS],
            **({"target_url": status.url} if status.url else {}),
        }
        with self._door.visit(Scope.STATUS) as visit:
            shown = f"{self._site.path}/repository/commits/{part(commit)}/statuses"
            now = visit.get(shown, {"name": status.context, "per_page": "100"}, doing="the status").list()
            if not any(one.get("name") == status.context and one.get("status") == state for one in now):
                path = f"{self._site.path}/statuses/{part(commit)}"
                visit.post(path, body, doing="the status could not be set", again=True)

    def revise(self, number: int, title: str, body: str) -> None:
        """New words; a draft stays one, and one that a person has made ready stays ready."""
        without_actions(body, "the description")
        with self._door.visit(Scope.PULLS) as visit:
            now = reading.pull(self._own(visit, number), self._site)
            if now.state != "open":
                raise ConflictError(f"merge request {number} is {now.state}")
            title = titled(title)
            given = {"title": reading.drafted(title) if now.draft else title[: reading.MOST_TITLE], "description": body}
            visit.put(self._path(number), given, doing=f"merge request {number} could not be changed")

    def close(self, number: int) -> None:
        """Closes it; one that is closed or merged stays as it is."""
        with self._door.visit(Scope.PULLS) as visit:
            if self._own(visit, number).get("state") == "opened":
                doing = f"merge request {number} could not be closed"
                visit.put(self._path(number), {"state_event": "close"}, doing=doing)

    def _path(self, number: int) -> str:
        return f"{self._site.path}/merge_requests/{part(number)}"

    def _own(self, visit: Visit, number: int) -> dict[str, Any]:
        absent, mend = (
            f"{self._site.name} has no merge request {number} of the broker's",
            "swarm-broker pr list shows them",
        )
        value = visit.get_known(self._path(number), absent, mend).mapping()
        if not self._is_own(visit, value):
            raise AbsentError(absent, mend)
        return value

    def pulls(self) -> tuple[PullRequest, ...]:
        """Those from a branch of the broker's in this project, opened by its account; of its last five hundred."""
        with self._door.visit() as visit:
            me = self._account.name(visit)
            listed = self._listed(visit, {"author_username": me} if me else {})
            mine = [reading.pull(one, self._site) for one in listed if reading.is_own(one, self._site, me)]
        return tuple(sorted(mine, key=lambda pull: -pull.number))

    def pull(self, number: int) -> PullRequest:
        """One of them. Raises AbsentError."""
        with self._door.visit() as visit:
            return reading.pull(self._own(visit, number), self._site)

    def diff(self, number: int, limit: int) -> tuple[str, bool]:
        """As the forge shows it. Raises AbsentError."""
        call = Call("GET", f"{self._path(number)}/raw_diffs", limit=limit, cut=True, doing="the diff")
        with self._door.visit() as visit:
            self._own(visit, number)
            body = visit.send(call).body
        return body[:limit].decode(errors="replace"), len(body) > limit

    def merge(self, number: int, by: str) -> PullRequest:
        """Never: people merge, on the forge. Raises AbsentError and ConflictError."""
        self.pull(number)
        where = self._site.merge_url(number)
        raise ConflictError(f"the broker does not merge on a forge; {by} may", f"merge it there: {where}")
