"""The conversations of a repository on GitHub: issues, reviews, checks, permissions, and the broker's one comment."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any, get_args

from broker.errors import ForgeError
from broker.forge.base import Labelled, Note, Permission, Seen
from broker.forge.github import looking
from broker.forge.github.account import Account
from broker.forge.github.place import Place
from broker.forge.github.reading import author, check_of, comment_of, is_bot, note_of, status_of, step_of, thread_of
from broker.forge.labels import MOST_PAGES, labelled
from broker.forge.reading import MOST_COMMENTS, inside, items, number, text
from broker.forge.rest.door import Door, Query, Visit
from broker.forge.rest.problems import Reason
from broker.scope import Scope
from broker.wire import Check, Thread

_PAGES = 10
_PAGE = 100
_REMEMBERED = 1000
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}(\[bot\])?")
_PERMISSIONS: tuple[Permission, ...] = get_args(Permission)


class GitHubTracker:
    """Reads with the least right; writes one comment and nothing else."""

    def __init__(self, place: Place, door: Door, account: Account) -> None:
        self._place, self._door, self._account = place, door, account
        self._lock = threading.Lock()
        self._notes: dict[tuple[int, str], int] = {}

    def me(self) -> str | None:
        """The credential's login, an App's with [bot] at its end."""
        with self._door.visit() as visit:
            return self._account.login(visit)

    def thread(self, number: int, *, pull: bool = False) -> Thread:  # noqa: ARG002
        """An issue or pull request, which share their numbers, with its newest comments. Raises AbsentError."""
        with self._door.visit() as visit:
            absent = f"{self._place.name} has no issue {number}"
            item = visit.get_known(self._place.repo("issues", number), absent).mapping()
            comments = self._comments(visit, number, item.get("comments"))
        return thread_of(item, self._place, tuple(comment_of(one) for one in comments[-MOST_COMMENTS:]))

    def _comments(self, visit: Visit, number: int, count: Any) -> list[dict[str, Any]]:
        pages = -(-count // _PAGE) if isinstance(count, int) else 1
        start, path = max(1, pages - MOST_COMMENTS // _PAGE), self._place.repo("issues", number, "comments")
        query: Query = {"per_page": _PAGE, "page": start}
        return [
            one for page in visit.pages(path, query, most=MOST_COMMENTS // _PAGE + 1, doing="comments") for one in page
        ]

    def look(self, marks: Mapping[str, str]) -> Seen:
        """New issues, pull requests and comments."""
        with self._door.visit() as visit:
            if not marks:
                return Seen(marks=looking.first_marks(visit, self._place))
            return looking.look(visit, self._place, marks)

    def labelled_by(self, number: int, label: str) -> Labelled | None:
        """Who put the label on last, by the events; None if it was taken off again, or there are too many."""
        path = self._place.repo("issues", number, "events")
        with self._door.visit() as visit:
            pages = visit.pages(path, {"per_page": _PAGE}, most=MOST_PAGES, doing=f"events of issue {number}")
            return labelled([step_of(one, label) for one in page] for page in pages)

    def permission(self, login: str) -> Permission:
        """Asked of the forge now; none for whoever it does not know here. Raises ForgeError."""
        if not _LOGIN.fullmatch(login):
            return "none"
        with self._door.visit() as visit:
            path = self._place.repo("collaborators", login, "permission")
            found = visit.get_or_none(path, doing=f"the permission of {login}")
        if found is None:
            return "none"
        told = found.mapping()
        if inside(told, "user", "login") and text(inside(told, "user", "login"), 100).lower() != login.lower():
            return "none"
        # A role of the organisation's own has any name: then the coarser field counts.
        told_of = [known for key in ("role_name", "permission") for known in _PERMISSIONS if told.get(key) == known]
        return told_of[0] if told_of else "none"

    def checks(self, commit: str) -> tuple[Check, ...]:
        """Check runs, and statuses but the broker's own."""
        with self._door.visit() as visit:
            runs = self._runs(visit, commit)
            told = visit.get(self._place.repo("commits", commit, "status"), {"per_page": 100}, doing="the statuses")
        found = (*map(check_of, runs), *map(status_of, items(told.mapping().get("statuses"))))
        return tuple(one for one in found if one is not None)

    def _runs(self, visit: Visit, commit: str) -> list[dict[str, Any]]:
        """A fine-grained personal token cannot read checks at all; runs of workflows tell nearly the same."""
        try:
            path = self._place.repo("commits", commit, "check-runs")
            return items(visit.get(path, {"per_page": 100}, doing="the checks").mapping().get("check_runs"))
        except ForgeError as error:
            if error.reason != Reason.SCOPE:
                raise
        query: Query = {"head_sha": commit, "per_page": 100}
        told = visit.get(self._place.repo("actions", "runs"), query, doing="the workflows").mapping()
        return items(told.get("workflow_runs"))

    def reviews(self, number: int) -> tuple[Note, ...]:
        """Comments on lines and the words of reviews, oldest first."""
        with self._door.visit() as visit:
            lines = self._listed(visit, self._place.repo("pulls", number, "comments"))
            summaries = self._listed(visit, self._place.repo("pulls", number, "reviews"))
        notes = [note_of(item, "line", number) for item in lines]
        notes += [note_of(item, "review", number) for item in summaries if item.get("state") != "PENDING"]
        return tuple(sorted((note for note in notes if note.comment.text.strip()), key=lambda note: note.comment.at))

    def _listed(self, visit: Visit, path: str) -> list[dict[str, Any]]:
        return [one for page in visit.pages(path, {"per_page": 100}, most=_PAGES, doing="reviews") for one in page]

    def mergeable(self, number: int) -> bool | None:
        """GitHub reckons it in the background: None until it has. Raises AbsentError."""
        with self._door.visit() as visit:
            absent = f"{self._place.name} has no pull request {number}"
            told = visit.get_known(self._place.repo("pulls", number), absent).mapping().get("mergeable")
        return told if isinstance(told, bool) else None

    def note(self, number: int, marker: str, text: str, *, pull: bool = False) -> str:
        """Rewrites the broker's own comment with the marker, or writes it; a lost answer leads to a look, not two."""
        with self._door.visit(Scope.PULLS if pull else Scope.ISSUES) as visit:
            known = self._notes.get((number, marker)) or self._noted(visit, number, marker)
            if known and self._rewritten(visit, known, text):
                return self._remembered(number, marker, known)
            return self._remembered(number, marker, self._written(visit, number, marker, text))

    def _rewritten(self, visit: Visit, known: int, words: str) -> bool:
        try:
            visit.patch(self._place.repo("issues", "comments", known), {"body": words}, doing="the status comment")
        except ForgeError as error:
            if error.reason != Reason.ABSENT:
                raise
            return False  # somebody removed it
        return True

    def _written(self, visit: Visit, about: int, marker: str, words: str) -> int:
        path = self._place.repo("issues", about, "comments")
        try:
            made = visit.post(path, {"body": words}, doing="the status comment", creates=True)
        except ForgeError as error:
            known = self._noted(visit, about, marker) if error.uncertain else None
            if known is None:
                raise
            return known
        return number(made.mapping().get("id"))

    def _noted(self, visit: Visit, about: int, marker: str) -> int | None:
        """The first comment with the marker that the broker's own account wrote."""
        me = self._account.login(visit)
        for page in visit.pages(self._place.repo("issues", about, "comments"), {"per_page": 100}, most=_PAGES):
            for one in page:
                own = author(one).lower() == me.lower() if me else is_bot(one)
                if own and marker in text(one.get("body"), 1 << 20):
                    return number(one.get("id"))
        return None

    def _remembered(self, about: int, marker: str, comment: int) -> str:
        with self._lock:
            if len(self._notes) >= _REMEMBERED:
                self._notes.clear()
            self._notes[about, marker] = comment
        return f"{self._place.page(about, pull=False)}#issuecomment-{comment}"
