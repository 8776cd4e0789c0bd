"""Gitea's JSON becomes our types. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.errors import ForgeError
from broker.forge.base import Note, Order, Permission, Visibility
from broker.forge.gitea.site import Site
from broker.forge.labels import Step
from broker.forge.reading import (
    UNKNOWN,
    CheckState,
    Said,
    at,
    check,
    commit,
    inside,
    items,
    kept,
    line,
    login,
    number,
    pull_request,
    text,
    web,
)
from broker.forge.rest.problems import Reason
from broker.wire import Check, PullRequest, Thread

DRAFT = "WIP: "
_DRAFTS = ("WIP:", "[WIP]")  # Gitea's usual prefixes, in any case; the installation may have set others
_PERMISSIONS: dict[str, Permission] = {"read": "read", "write": "write", "admin": "admin", "owner": "admin"}
_ACTS = ("label", "milestone", "assignees", "change_title", "comment")  # of somebody who has the issue open
_CHECKS: dict[str, CheckState] = {
    "pending": "pending",
    "success": "success",
    "error": "failure",
    "failure": "failure",
}


def drafted(title: str) -> str:
    """The title of a draft."""
    return title if is_draft(title) else DRAFT + title


def is_draft(title: str) -> bool:
    """Whether a title makes a draft."""
    return title.lstrip().upper().startswith(_DRAFTS)


def undrafted(title: str) -> str:
    """The title without its prefix."""
    bare = title.lstrip()
    return next((bare[len(word) :].strip() for word in _DRAFTS if bare.upper().startswith(word)), title)


def visibility(repository: Mapping[str, Any]) -> Visibility:
    """As the forge says; what every logged-in user may read is neither private nor public."""
    if repository.get("internal") is True:
        return "unknown"
    told: dict[str, Visibility] = {"True": "private", "False": "public"}
    return told.get(str(repository.get("private")), "unknown")


def is_between(pull: Mapping[str, Any], site: Site, branch: str, base: str) -> bool:
    """Whether a pull request goes from this branch of this very repository, not of a fork, to that base."""
    ends = inside(pull, "head", "ref"), inside(pull, "base", "ref")
    return is_from_here(pull, site) and ends == (branch, base)


def is_own(pull: Mapping[str, Any], site: Site, me: str | None) -> bool:
    """Whether the broker's account (None: unknown) opened it from a branch of the broker's in this repository."""
    by_us = me is None or author(pull).lower() == me
    return by_us and is_from_here(pull, site) and line(inside(pull, "head", "ref")).startswith(site.prefix)


def is_from_here(pull: Mapping[str, Any], site: Site) -> bool:
    """Whether its branch lies in the repository itself. A fork's branch may bear any name, ours too."""
    full = inside(pull, "head", "repo", "full_name")
    if isinstance(full, str):
        return full.lower() == f"{site.owner}/{site.repository}".lower()
    ids = inside(pull, "head", "repo_id"), inside(pull, "base", "repo_id")
    return number(ids[0]) > 0 and ids[0] == ids[1]


def pull(value: Mapping[str, Any], site: Site, order: Order | None = None) -> PullRequest:
    """A pull request; what the forge does not keep is the order's, or read off its words. Raises ForgeError."""
    title = line(value.get("title"))
    merged = value.get("merged") is True
    index = number(value.get("number"))
    branch, body = line(inside(value, "head", "ref")), text(value.get("body"))
    told = commit(value.get("merge_base")) or commit(inside(value, "base", "sha"))
    return pull_request(
        **kept(order, branch, body, site.prefix, told),
        repository=site.name,
        number=index,
        state="merged" if merged else "closed" if value.get("state") == "closed" else "open",
        draft=value.get("draft") is True or is_draft(title),
        url=site.pull_url(index),
        title=undrafted(title),
        body=body,
        branch=branch,
        base=line(inside(value, "base", "ref")),
        commit=commit(inside(value, "head", "sha")) or UNKNOWN,
        created=at(value.get("created_at")),
        merged_commit=commit(value.get("merge_commit_sha")) or None if merged else None,
        merged_by=login(inside(value, "merged_by", "login")) if merged else "",
    )


def author(value: Mapping[str, Any]) -> str:
    """Who wrote something; a comment that was brought over from elsewhere has no author here."""
    return "" if value.get("original_author") else login(inside(value, "user", "login"))


def thread(value: Mapping[str, Any], site: Site, comments: tuple[Said, ...] = ()) -> Thread:
    """An issue or pull request. Raises ForgeError."""
    index = number(value.get("number"))
    if not index:
        raise ForgeError("the forge's answer is no issue", reason=Reason.BROKEN)
    is_pull = isinstance(value.get("pull_request"), dict)
    return Thread(
        number=index,
        title=line(value.get("title")),
        text=text(value.get("body")),
        author=author(value),
        state="closed" if value.get("state") == "closed" else "open",
        labels=tuple(filter(None, (line(one.get("name"), 100) for one in items(value.get("labels"))[:100]))),
        comments=tuple(one.comment() for one in comments),
        url=site.pull_url(index) if is_pull else site.issue_url(index),
        pull=is_pull,
        updated=at(value.get("updated_at")),
    )


def said(value: Mapping[str, Any]) -> Said:
    """A comment. Gitea marks no bots but the account of its own actions, whose id is negative."""
    identity = inside(value, "user", "id")
    return Said(
        author=author(value),
        at=at(value.get("created_at")),
        text=text(value.get("body")),
        bot=isinstance(identity, int) and identity < 0,
    )


def noted(value: Mapping[str, Any]) -> Note | None:
    """A comment of the repository's list, with its number from the address of its issue; None if it has none."""
    address = text(value.get("issue_url") or value.get("pull_request_url"), 2000)
    tail = address.rstrip("/").rpartition("/")[2]
    identity = number(value.get("id"))
    if not (tail.isascii() and tail.isdecimal() and len(tail) < 12 and identity):
        return None
    return Note(f"comment-{identity}", int(tail), said(value).comment(), bool(value.get("pull_request_url")))


def review(value: Mapping[str, Any], index: int) -> Note | None:
    """A review's own words; None for one without any, or not handed in yet."""
    identity, words = number(value.get("id")), text(value.get("body"))
    if not identity or not words.strip() or str(value.get("state")) in {"PENDING", "REQUEST_REVIEW"}:
        return None
    one = Said(author=author(value), at=at(value.get("submitted_at")), text=words)
    return Note(f"review-{identity}", index, one.comment(), pull=True)


def step(value: Mapping[str, Any], label: str) -> Step:
    """One entry of an issue's timeline; a label that was taken off has an empty body."""
    kind = str(value.get("type"))
    put = value.get("body") == "1" if kind == "label" and inside(value, "label", "name") == label else None
    by = login(inside(value, "user", "login")) if kind in _ACTS else ""
    return Step(by, at(value.get("created_at")), put)


def remark(value: Mapping[str, Any], index: int) -> Note | None:
    """One line's remark in a review; None for one that somebody has resolved."""
    identity = 0 if isinstance(value.get("resolver"), dict) else number(value.get("id"))
    place = number(value.get("position")) or number(value.get("original_position"))
    path = line(value.get("path"), 1000)
    one = Said(author(value), at(value.get("created_at")), text(value.get("body")), path=path, line=place)
    return Note(f"remark-{identity}", index, one.comment(), pull=True) if identity else None


def status(value: Mapping[str, Any]) -> Check | None:
    """A commit status."""
    state = _CHECKS.get(str(value.get("status")), "neutral")
    return check(value.get("context"), state, value.get("description"), web(value.get("target_url")))


def permission(value: Mapping[str, Any]) -> Permission:
    """What somebody may do."""
    return _PERMISSIONS.get(str(value.get("permission")), "none")
