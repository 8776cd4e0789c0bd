"""Conversations of one repository on Gitea or Forgejo: issues, comments, reviews, statuses, who may do what."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from itertools import islice
from typing import Any

from broker.errors import ForgeError
from broker.forge.account import Account
from broker.forge.base import Labelled, Note, Permission, Seen
from broker.forge.gitea import reading
from broker.forge.gitea.site import Site
from broker.forge.labels import MOST_PAGES, labelled
from broker.forge.reading import MOST_COMMENTS, can_log_in, inside, items, line, number, text
from broker.forge.rest.address import part
from broker.forge.rest.door import Door, Visit
from broker.forge.rest.problems import Reason
from broker.forge.window import Fetch, changed, mark, mark_of, stamp
from broker.scope import Scope
from broker.wire import Check, Thread

_PAGE = 50
_MOST_REVIEWS, _MOST_REMEMBERED = 100, 1000
_ABSENT_MEND = "compare the number; give the credential access to issues"


class GiteaTracker:
    """One repository's. Every word that it returns is foreign."""

    def __init__(self, site: Site, door: Door, account: Account) -> None:
        self._site, self._door, self._account = site, door, account
        self._stuck: dict[int, tuple[Any, Any]] = {}
        self._lock = threading.Lock()

    def me(self) -> str | None:
        """The credential's account; None if the token may not read it (scope read:user)."""
        with self._door.visit() as visit:
            return self._account.name(visit)

    def thread(self, number: int, *, pull: bool = False) -> Thread:  # noqa: ARG002 - one row of numbers
        """An issue or pull request with its last comments. Raises AbsentError."""
        with self._door.visit() as visit:
            absent = f"{self._site.name} has no issue {number}"
            value = visit.get_known(self._issue(number), absent, _ABSENT_MEND).mapping()
            comments = self._comments(visit, number)
        return reading.thread(value, self._site, tuple(map(reading.said, comments[-MOST_COMMENTS:])))

    def _issue(self, number: int) -> str:
        return f"{self._site.path}/issues/{part(number)}"

    def _comments(self, visit: Visit, number: int) -> list[dict[str, Any]]:
        return visit.get(f"{self._issue(number)}/comments", doing="the comments").list()  # it knows no pages

    def look(self, marks: Mapping[str, str]) -> Seen:
        """Issues, pull requests and comments that changed since; Gitea knows no conditional requests for lists."""
        issues, comments = mark(marks.get("issues")), mark(marks.get("comments"))
        with self._door.visit() as visit:
            if issues is None or comments is None:
                reply = visit.get(f"{self._site.path}/issues", {"limit": "1"}, doing="the issues")
                begin = mark_of(reply.headers.get("date"), time.time())
                return Seen(marks={"issues": begin, "comments": begin})
            threads, issues = changed(self._since(visit, "/issues", {"state": "all"}), issues, time.time())
            said, comments = changed(self._since(visit, "/issues/comments", {}), comments, time.time())
        notes = (reading.noted(one) for one in said)
        return Seen(
            threads=tuple(reading.thread(one, self._site) for one in threads),
            notes=tuple(note for note in notes if note is not None),
            marks={"issues": f"{issues:.0f}", "comments": f"{comments:.0f}"},
        )

    def _since(self, visit: Visit, path: str, query: Mapping[str, str]) -> Fetch:
        def fetch(since: float, until: float | None, most: int) -> tuple[list[dict[str, Any]], bool]:
            span = {"since": stamp(since), **({} if until is None else {"before": stamp(until)})}
            asked = {**query, **span, "limit": str(_PAGE)}
            pages = list(visit.pages(f"{self._site.path}{path}", asked, most=most, doing="what is new"))
            return [one for page in pages for one in page], len(pages) >= most

        return fetch

    def labelled_by(self, number: int, label: str) -> Labelled | None:
        """Who put the label on last, by the timeline; None if it was taken off again, or the timeline is too long."""
        path = f"{self._issue(number)}/timeline"
        with self._door.visit() as visit:
            pages = visit.pages(path, {"limit": str(_PAGE)}, most=MOST_PAGES, doing="the label")
            return labelled([reading.step(one, label) for one in page] for page in pages)

    def permission(self, login: str) -> Permission:
        """What somebody may do. An account that does not administer the repository is told of its own right alone:
        then who may be assigned has the right to write, and nobody else has one.
        """
        if not can_log_in(login):
            return "none"
        with self._door.visit() as visit:
            path = f"{self._site.path}/collaborators/{part(login)}/permission"
            try:
                reply = visit.get_or_none(path, doing=f"the permission of {line(login, 100)}")
                return "none" if reply is None else reading.permission(reply.mapping())
            except ForgeError as error:
                if error.reason != Reason.SCOPE:
                    raise
            writers = visit.get(f"{self._site.path}/assignees", doing=f"the permission of {line(login, 100)}").list()
        return "write" if login.lower() in {str(one.get("login")).lower() for one in writers} else "none"

    def checks(self, commit: str) -> tuple[Check, ...]:
        """The newest status of each context."""
        found: list[dict[str, Any]] = []
        with self._door.visit() as visit:
            for page in range(1, 5):
                query = {"page": str(page), "limit": str(_PAGE)}
                told = visit.get(
                    f"{self._site.path}/commits/{part(commit)}/status", query, doing="the checks"
                ).mapping()
                found += items(told.get("statuses"))
                if len(found) >= number(told.get("total_count")):
                    break
        return tuple(one for one in map(reading.status, found) if one is not None)

    def reviews(self, number: int) -> tuple[Note, ...]:
        """Words of reviews and remarks on lines, oldest first; of the first hundred reviews."""
        path = f"{self._site.path}/pulls/{part(number)}/reviews"
        found: list[Note | None] = []
        with self._door.visit() as visit:
            pages = visit.pages(path, {"limit": str(_PAGE)}, most=_MOST_REVIEWS // _PAGE, doing="the reviews")
            for one in [one for page in pages for one in page]:
                found.append(reading.review(one, number))
                if one.get("comments_count"):
                    lines = visit.get(f"{path}/{part(one.get('id'))}/comments", doing="the review").list()
                    found += [reading.remark(each, number) for each in islice(lines, MOST_COMMENTS)]
        return tuple(sorted((one for one in found if one is not None), key=lambda note: note.comment.at))

    def mergeable(self, number: int) -> bool | None:
        """Gitea says no to a draft, and while it still tries; so no is believed when it is said twice of the same
        commits, and never of a draft.
        """
        with self._door.visit() as visit:
            path = f"{self._site.path}/pulls/{part(number)}"
            value = visit.get_known(path, f"{self._site.name} has no pull request {number}").mapping()
        if value.get("mergeable") is True:
            return True
        if value.get("draft") is True or reading.is_draft(line(value.get("title"))) or value.get("state") != "open":
            return None
        pair = inside(value, "head", "sha"), inside(value, "base", "sha")
        with self._lock:
            before = self._stuck.pop(number, None)
            if len(self._stuck) >= _MOST_REMEMBERED:
                self._stuck.clear()
            self._stuck[number] = pair
        return False if before == pair else None

    def note(self, number: int, marker: str, text: str, *, pull: bool = False) -> str:  # noqa: ARG002
        """Rewrites the own comment with the marker, or writes it."""
        with self._door.visit(Scope.ISSUES) as visit:
            me = self._account.name(visit)
            if me is None:
                mend = "give the token the scope read:user"
                raise ForgeError("the forge does not tell which account writes", mend, reason=Reason.SCOPE)
            identity = self._own_comment(visit, number, marker, me)
            if identity:
                path = f"{self._site.path}/issues/comments/{part(identity)}"
                visit.patch(path, {"body": text}, doing="the comment could not be rewritten")
            else:
                identity = self._written(visit, number, marker, text, me)
        return f"{self._site.issue_url(number)}#issuecomment-{identity}"

    def _own_comment(self, visit: Visit, index: int, marker: str, me: str) -> int:
        mine = [
            number(one.get("id"))
            for one in self._comments(visit, index)
            if reading.author(one).lower() == me and marker in text(one.get("body"))
        ]
        return mine[0] if mine else 0

    def _written(self, visit: Visit, index: int, marker: str, words: str, me: str) -> int:
        """Writes it once; if the answer is lost, it is looked whether the comment is there."""
        try:
            made = visit.post(
                f"{self._issue(index)}/comments",
                {"body": words},
                doing="the comment could not be written",
                creates=True,
            )
        except ForgeError as error:
            found = self._own_comment(visit, index, marker, me) if error.uncertain else 0
            if not found:
                raise
            return found
        return number(made.mapping().get("id"))
