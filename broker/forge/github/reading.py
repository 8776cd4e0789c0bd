"""GitHub's answers as the broker's own types. Pure. Every word is foreign: bounded here, cleaned where it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from broker.forge.base import Note, Order
from broker.forge.github.place import Place
from broker.forge.labels import Step
from broker.forge.reading import (
    CheckState,
    Said,
    at,
    check,
    commit,
    inside,
    kept,
    line,
    login,
    number,
    pull_request,
    text,
)
from broker.wire import Check, Comment, PullRequest, Thread

Foreign = Mapping[str, Any]

_PUT = {"labeled": True, "unlabeled": False}
_ACTS = (*_PUT, "assigned", "unassigned", "milestoned", "demilestoned", "renamed")  # of somebody who has the issue open
_ON_PULL = re.compile(r"/pull/\d+#")


def author(item: Foreign) -> str:
    """Who made it; empty for a deleted account."""
    return login(inside(item, "user", "login"))


def is_bot(item: Foreign) -> bool:
    """Whether the forge says that no person made it."""
    return bool(inside(item, "user", "type") == "Bot")


def is_own(item: Foreign, place: Place, me: str | None) -> bool:
    """Whether a pull request is the broker's: from a branch of its own here, and opened by its account.

    Where the account's name cannot be had, as with an App's token, a bot at least must have opened it.
    """
    from_here = line(inside(item, "head", "repo", "full_name")).lower() == place.full_name.lower()
    by_us = author(item).lower() == me.lower() if me else is_bot(item)
    return from_here and by_us and line(inside(item, "head", "ref")).startswith(place.prefix)


def pull_of(item: Foreign, place: Place, order: Order | None = None) -> PullRequest:
    """A pull request; what the forge does not keep is the order's, or read off branch and body. Raises ForgeError."""
    branch, body, which = line(inside(item, "head", "ref")), text(item.get("body")), number(item.get("number"))
    merged = bool(item.get("merged_at") or item.get("merged"))
    told = {
        "repository": place.name,
        "number": which,
        "state": "merged" if merged else "open" if item.get("state") == "open" else "closed",
        "draft": item.get("draft") is True,
        "url": place.page(which),
        "title": line(item.get("title")),
        "body": body,
        "branch": branch,
        "base": line(inside(item, "base", "ref")),
        "commit": commit(inside(item, "head", "sha")),
        "created": at(item.get("created_at")),
        "merged_commit": commit(item.get("merge_commit_sha")) or None if merged else None,
        "merged_by": login(inside(item, "merged_by", "login")) if merged else "",
    }
    return pull_request(**kept(order, branch, body, place.prefix, commit(inside(item, "base", "sha"))), **told)


def thread_of(item: Foreign, place: Place, comments: tuple[Comment, ...] = ()) -> Thread:
    """An issue, or a pull request as an issue."""
    pull, which = item.get("pull_request") is not None, number(item.get("number"))
    labels = item.get("labels")
    named = [inside(one, "name") or one for one in labels[:100]] if isinstance(labels, list) else []
    return Thread(
        number=which,
        title=line(item.get("title")),
        text=text(item.get("body")),
        author=author(item),
        state="open" if item.get("state") == "open" else "closed",
        labels=tuple(name for name in (line(one, 100) for one in named) if name),
        comments=comments,
        url=place.page(which, pull=pull),
        pull=pull,
        updated=at(item.get("updated_at")),
    )


def comment_of(item: Foreign) -> Comment:
    """A comment, a review or a comment on a line."""
    said = Said(
        author=author(item),
        at=at(item.get("created_at") or item.get("submitted_at")),
        text=text(item.get("body")),
        bot=is_bot(item),
        path=line(item.get("path"), 4096),
        line=number(item.get("line") or item.get("original_line")),
    )
    return said.comment()


def note_of(item: Foreign, kind: str, about: int) -> Note:
    """A comment with an id that no other kind of comment has. Of a conversation's, its address tells what it is on."""
    pull = kind != "comment" or _ON_PULL.search(line(item.get("html_url"), 2000)) is not None
    return Note(id=f"{kind}-{number(item.get('id'))}", number=about, comment=comment_of(item), pull=pull)


def issue_number(item: Foreign) -> int:
    """Which issue a comment is on, from the end of its issue's address."""
    tail = line(item.get("issue_url"), 2000).rsplit("/", 1)[-1]
    return int(tail) if tail.isascii() and tail.isdecimal() and len(tail) < 12 else 0


def check_of(item: Foreign) -> Check | None:
    """A check run, or a run of a workflow."""
    told = (line(inside(item, "output", "title")), line(inside(item, "output", "summary")))
    return check(item.get("name"), _state(item), ": ".join(one for one in told if one), item.get("html_url"))


def _state(item: Foreign) -> CheckState:
    conclusion = item.get("conclusion")
    if item.get("status") != "completed" or conclusion == "action_required":
        return "pending"
    if conclusion == "success":
        return "success"
    # cancelled, skipped, stale: nothing there to mend
    return "failure" if str(conclusion) in {"failure", "timed_out", "startup_failure"} else "neutral"


def step_of(item: Foreign, label: str) -> Step:
    """One event of an issue."""
    kind = str(item.get("event"))
    put = _PUT.get(kind) if inside(item, "label", "name") == label else None
    by = login(inside(item, "actor", "login")) if kind in _ACTS else ""
    return Step(by, at(item.get("created_at")), put)


def status_of(item: Foreign) -> Check | None:
    """A commit status; None for the broker's own."""
    states: dict[str, CheckState] = {
        "success": "success", "pending": "pending", "failure": "failure", "error": "failure"
    }  # fmt: skip
    state = states.get(line(item.get("state")), "neutral")
    return check(item.get("context"), state, item.get("description"), item.get("target_url"))
