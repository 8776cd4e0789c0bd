"""Conversations of one project on GitLab: issues, merge requests, notes, who labelled, who may do what.

Issues and merge requests are numbered apart. What is confidential or internal is neither read nor told.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from broker.errors import AbsentError, ForgeError
from broker.forge.account import Account
from broker.forge.base import Labelled, Note, Permission, Seen
from broker.forge.gitlab import reading
from broker.forge.gitlab.quick import without_actions
from broker.forge.gitlab.site import Site
from broker.forge.labels import MOST_PAGES, labelled
from broker.forge.reading import MOST_COMMENTS, at, can_log_in, line, number, text
from broker.forge.rest.address import part
from broker.forge.rest.door import Door, Visit
from broker.forge.rest.problems import Reason
from broker.forge.window import Fetch, changed, mark, mark_of, stamp
from broker.scope import Scope
from broker.wire import Check, Thread

_PAGE = 100
_THREADS = 20  # a page of what changed: each costs a call for its notes
_MENDS = "compare the number; give the credential access to it"


class GitLabTracker:
    """One project's. Every word that it returns is foreign."""

    def __init__(self, site: Site, door: Door, account: Account) -> None:
        self._site, self._door, self._account = site, door, account

    def me(self) -> str | None:
        """The account that the token acts as; a project's token has one of its own."""
        with self._door.visit() as visit:
            return self._account.name(visit)

    def thread(self, number: int, *, pull: bool = False) -> Thread:
        """An issue or merge request with its last comments. Raises AbsentError."""
        absent = f"{self._site.name} has no {'merge request' if pull else 'issue'} {number}"
        with self._door.visit() as visit:
            value = visit.get_known(self._place(number, pull=pull), absent, _MENDS).mapping()
            if value.get("confidential") is True:
                raise AbsentError(absent, _MENDS)
            newest = list(self._notes(visit, number, pull=pull, query={"sort": "desc"}, most=2))
        said = tuple(reading.said(one) for one in reversed(newest) if _is_open(one))
        return reading.thread(value, self._site, number, pull=pull, comments=said[-MOST_COMMENTS:])

    def _place(self, index: int, *, pull: bool) -> str:
        return f"{self._site.path}/{'merge_requests' if pull else 'issues'}/{part(index)}"

    def _notes(
        self, visit: Visit, index: int, *, pull: bool, query: Mapping[str, str], most: int
    ) -> Iterator[dict[str, Any]]:
        path = f"{self._place(index, pull=pull)}/notes"
        asked = {"order_by": "created_at", "per_page": str(_PAGE), **query}
        for page in visit.pages(path, asked, most=most, doing="the notes"):
            yield from page

    def look(self, marks: Mapping[str, str]) -> Seen:
        """Issues and merge requests that changed since, and of each the notes that did."""
        issues, merges = mark(marks.get("issues")), mark(marks.get("merges"))
        with self._door.visit() as visit:
            if issues is None or merges is None:
                reply = visit.get(f"{self._site.path}/issues", {"per_page": "1"}, doing="the issues")
                begin = mark_of(reply.headers.get("date"), time.time())
                return Seen(marks={"issues": begin, "merges": begin})
            new_issues, issues_mark = changed(self._since(visit, "issues"), issues, time.time())
            new_merges, merges_mark = changed(self._since(visit, "merge_requests"), merges, time.time())
            threads = [(one, False) for one in new_issues if one.get("confidential") is not True]
            threads += [(one, True) for one in new_merges]
            since = min(issues, merges)
            notes = [note for one, pull in threads for note in self._new_notes(visit, one, since, pull=pull)]
        shown = (reading.thread(one, self._site, number(one.get("iid")), pull=pull) for one, pull in threads)
        told = {"issues": f"{issues_mark:.0f}", "merges": f"{merges_mark:.0f}"}
        return Seen(threads=tuple(shown), notes=tuple(notes), marks=told)

    def _since(self, visit: Visit, kind: str) -> Fetch:
        def fetch(since: float, until: float | None, most: int) -> tuple[list[dict[str, Any]], bool]:
            span = {"updated_after": stamp(since), **({} if until is None else {"updated_before": stamp(until)})}
            asked = {"state": "all", "order_by": "updated_at", "sort": "desc", "per_page": str(_THREADS), **span}
            pages = list(visit.pages(f"{self._site.path}/{kind}", asked, most=most, doing="what is new"))
            return [one for page in pages for one in page], len(pages) >= most

        return fetch

    def _new_notes(self, visit: Visit, thread: Mapping[str, Any], since: float, *, pull: bool) -> list[Note]:
        """Those on lines of a merge request's diff are left to `reviews`."""
        index, found = number(thread.get("iid")), []
        query = {"order_by": "updated_at", "sort": "desc"}
        for one in self._notes(visit, index, pull=pull, query=query, most=10):
            if at(one.get("updated_at")) < since:
                break
            note = reading.noted(one, index, pull=pull)
            if note is not None and _is_open(one) and one.get("type") != "DiffNote":
                found.append(note)
        return found[::-1]

    def labelled_by(self, number: int, label: str) -> Labelled | None:
        """Who put the label on the issue last, by its label events; None if it was taken off again."""
        path = f"{self._place(number, pull=False)}/resource_label_events"
        with self._door.visit() as visit:
            pages = visit.pages(path, {"per_page": str(_PAGE)}, most=MOST_PAGES, doing="the label")
            return labelled([reading.step(one, label) for one in page] for page in pages)

    def permission(self, login: str) -> Permission:
        """What somebody may do by the project's and its groups' memberships; a blocked account nothing."""
        if not can_log_in(login):
            return "none"
        with self._door.visit() as visit:
            found = visit.get("/users", {"username": login}, doing=f"the user {line(login, 100)}").list()
            same = [one for one in found if str(one.get("username")).lower() == login.lower()]
            if not same or same[0].get("state") != "active":
                return "none"
            path = f"{self._site.path}/members/all/{part(number(same[0].get('id')))}"
            reply = visit.get_or_none(path, doing=f"the permission of {line(login, 100)}")
        if reply is None:
            return "none"
        member = reply.mapping()
        active = member.get("membership_state", "active") == "active" and member.get("state", "active") == "active"
        return reading.permission(member.get("access_level")) if active else "none"

    def checks(self, commit: str) -> tuple[Check, ...]:
        """Jobs of pipelines and statuses of others, the newest of each name."""
        path = f"{self._site.path}/repository/commits/{part(commit)}/statuses"
        with self._door.visit() as visit:
            pages = visit.pages(path, {"per_page": str(_PAGE)}, most=5, doing="the checks")
            found = [reading.status(one) for page in pages for one in page]
        return tuple(one for one in found if one is not None)

    def reviews(self, number: int) -> tuple[Note, ...]:
        """Remarks on lines that nobody has resolved, oldest first. An approval has no words; a summary is a note."""
        path = f"{self._place(number, pull=True)}/discussions"
        with self._door.visit() as visit:
            pages = visit.pages(path, {"per_page": str(_PAGE)}, most=10, doing="the discussions")
            threads = [thread for page in pages for thread in page]
        notes = [one for thread in threads for one in reading.remarks(thread) if _is_open(one)]
        found = (reading.noted(one, number, pull=True) for one in notes)
        return tuple(sorted((one for one in found if one is not None), key=lambda note: note.comment.at))

    def mergeable(self, number: int) -> bool | None:
        """Whether the branches fit together; asking makes GitLab look."""
        with self._door.visit() as visit:
            absent = f"{self._site.name} has no merge request {number}"
            return reading.mergeable(visit.get_known(self._place(number, pull=True), absent, _MENDS).mapping())

    def note(self, number: int, marker: str, text: str, *, pull: bool = False) -> str:
        """Rewrites the own note with the marker, or writes it. Raises ForgeError for a text that GitLab would obey."""
        without_actions(text, "the note")
        with self._door.visit(Scope.ISSUES) as visit:
            me = self._account.name(visit) or ""
            identity = self._own_note(visit, number, marker, me, pull=pull)
            if identity:
                path = f"{self._place(number, pull=pull)}/notes/{part(identity)}"
                visit.put(path, {"body": text}, doing="the note could not be rewritten")
            else:
                identity = self._written(visit, number, (marker, text, me), pull=pull)
        where = self._site.merge_url(number) if pull else self._site.issue_url(number)
        return f"{where}#note_{identity}"

    def _own_note(self, visit: Visit, index: int, marker: str, me: str, *, pull: bool) -> int:
        for one in self._notes(visit, index, pull=pull, query={"sort": "asc"}, most=10):
            if (
                me
                and reading.author(one).lower() == me
                and marker in text(one.get("body"))
                and one.get("system") is not True
            ):
                return number(one.get("id"))
        return 0

    def _written(self, visit: Visit, index: int, said: tuple[str, str, str], *, pull: bool) -> int:
        """Writes it once; if the answer is lost, it is looked whether the note is there."""
        marker, words, me = said
        path = f"{self._place(index, pull=pull)}/notes"
        try:
            made = visit.post(path, {"body": words}, doing="the note could not be written", creates=True)
        except ForgeError as error:
            found = self._own_note(visit, index, marker, me, pull=pull) if error.uncertain else 0
            if not found:
                raise
            return found
        identity = number(made.mapping().get("id"))
        if not identity:
            raise ForgeError("the forge made no note of the text", reason=Reason.BROKEN)
        return identity


def _is_open(note: Mapping[str, Any]) -> bool:
    """Whether everybody who sees the thread sees the note, and a person or bot wrote it."""
    hidden = note.get("internal") is True or note.get("confidential") is True
    return not hidden and note.get("system") is not True
