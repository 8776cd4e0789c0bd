"""GitHub's answers as the broker's own types. Pure. Every word is foreign: bounded here, cleaned where it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError

from broker.errors import ForgeError
from broker.forge.base import Note, Order
from broker.forge.github.place import Place
from broker.forge.rest.problems import Reason
from broker.wire import Check, Comment, PullRequest, Thread

_TEXT, _LINE = 64 * 1024, 500
_MARKER = re.compile(r"<!-- agent-swarm:? ?proposal[:=] ?([a-z0-9][a-z0-9._-]{0,63}) -->")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FAILED = {"failure", "timed_out", "startup_failure"}
_WAITING = {"action_required"}

State = Literal["pending", "success", "failure", "neutral"]
Foreign = Mapping[str, Any]


def text(value: Any, most: int = _LINE) -> str:
    """A string of the forge's, cut; empty for anything else."""
    return value[:most] if isinstance(value, str) else ""


def number(value: Any) -> int:
    """A number of the forge's, 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53 else 0


def inner(value: Foreign, *keys: str) -> Any:
    """What lies at a path of keys; None where it breaks off."""
    found: Any = value
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def moment(value: Any) -> float:
    """Seconds since the epoch of 2026-01-31T12:00:00Z; 0 for what is none."""
    try:
        return datetime.fromisoformat(text(value, 40)).timestamp()
    except ValueError:
        return 0.0


def login(item: Foreign) -> str:
    """Who made it; empty for a deleted account."""
    return text(inner(item, "user", "login"), 100)


def is_bot(item: Foreign) -> bool:
    """Whether the forge says that no person made it."""
    return bool(inner(item, "user", "type") == "Bot")


def is_own(item: Foreign, place: Place, me: str | None) -> bool:
    """Whether a pull request is the broker's: from a branch of its own here, and opened by its account.

    Where the account's name cannot be had, as with an App's token, a bot at least must have opened it.
    """
    from_here = text(inner(item, "head", "repo", "full_name")).lower() == place.full_name.lower()
    by_us = login(item).lower() == me.lower() if me else is_bot(item)
    return from_here and by_us and text(inner(item, "head", "ref")).startswith(place.prefix)


def pull_of(item: Foreign, place: Place, order: Order | None = None) -> PullRequest:
    """A pull request; what the forge does not keep is the order's, or read off branch and body. Raises ForgeError."""
    branch, body = text(inner(item, "head", "ref")), text(item.get("body"), _TEXT)
    marked = _MARKER.search(body)
    task = branch.rsplit("/", 1)[-1] if _NAME.fullmatch(branch.rsplit("/", 1)[-1]) else "unknown"
    kept = order.model_dump() if order else {"task": task, "proposal": marked[1] if marked else task}
    merged = bool(item.get("merged_at") or item.get("merged"))
    told = {
        "repository": place.name,
        "number": number(item.get("number")),
        "state": "merged" if merged else "open" if item.get("state") == "open" else "closed",
        "draft": item.get("draft") is True,
        "url": place.page(number(item.get("number"))),
        "title": text(item.get("title")),
        "body": body,
        "branch": branch,
        "base": text(inner(item, "base", "ref")),
        "base_commit": order.base_commit if order else text(inner(item, "base", "sha")),
        "commit": text(inner(item, "head", "sha")),
        "created": moment(item.get("created_at")),
        "merged_commit": text(item.get("merge_commit_sha")) or None if merged else None,
        "merged_by": text(inner(item, "merged_by", "login"), 100) if merged else "",
    }
    try:
        return PullRequest.model_validate({**kept, **told})
    except ValidationError:
        raise ForgeError(
            "the forge describes a pull request in a way that its API does not", reason=Reason.BROKEN
        ) from None


def thread_of(item: Foreign, place: Place, comments: tuple[Comment, ...] = ()) -> Thread:
    """An issue, or a pull request as an issue."""
    pull = item.get("pull_request") is not None
    labels = item.get("labels")
    names = (
        [label.get("name") if isinstance(label, dict) else label for label in labels[:100]]
        if isinstance(labels, list)
        else []
    )
    return Thread(
        number=number(item.get("number")),
        title=text(item.get("title")),
        text=text(item.get("body"), _TEXT),
        author=login(item),
        state="open" if item.get("state") == "open" else "closed",
        labels=tuple(name for name in (text(name, 100) for name in names) if name),
        comments=comments,
        url=place.page(number(item.get("number")), pull=pull),
        pull=pull,
        updated=moment(item.get("updated_at")),
    )


def comment_of(item: Foreign) -> Comment:
    """A comment, a review or a comment on a line. Whether its author may do anything is asked elsewhere."""
    line = number(item.get("line") or item.get("original_line"))
    return Comment(
        author=login(item),
        permitted=False,
        at=moment(item.get("created_at") or item.get("submitted_at")),
        text=text(item.get("body"), _TEXT),
        path=text(item.get("path"), 4096) or None,
        line=line or None,
        bot=is_bot(item),
    )


def note_of(item: Foreign, kind: str, about: int) -> Note:
    """A comment with an id that no other kind of comment has."""
    return Note(id=f"{kind}-{number(item.get('id'))}", number=about, comment=comment_of(item))


def issue_number(item: Foreign) -> int:
    """Which issue a comment is on, from the end of its issue's address."""
    tail = text(item.get("issue_url")).rsplit("/", 1)[-1]
    return int(tail) if tail.isascii() and tail.isdecimal() and len(tail) < 12 else 0


def check_of(item: Foreign) -> Check:
    """A check run, or a run of a workflow."""
    told = " ".join(
        part for part in (text(inner(item, "output", "title")), text(inner(item, "output", "summary"), 4000)) if part
    )
    return Check(name=text(item.get("name")), state=_state(item), summary=told, url=text(item.get("html_url"), 2000))


def _state(item: Foreign) -> State:
    conclusion = text(item.get("conclusion"))
    if item.get("status") != "completed" or conclusion in _WAITING:
        return "pending"
    if conclusion == "success":
        return "success"
    return "failure" if conclusion in _FAILED else "neutral"  # cancelled, skipped, stale: nothing there to mend


def status_of(item: Foreign) -> Check:
    """A commit status."""
    states: dict[str, State] = {"success": "success", "pending": "pending", "failure": "failure", "error": "failure"}
    return Check(
        name=text(item.get("context")),
        state=states.get(text(item.get("state")), "neutral"),
        summary=text(item.get("description")),
        url=text(item.get("target_url"), 2000),
    )
