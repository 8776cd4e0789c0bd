"""GitLab's JSON becomes our types. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from broker.errors import ForgeError
from broker.forge.base import Note, Order, Permission, Visibility
from broker.forge.gitlab.site import Site
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

DRAFT = "Draft: "
MOST_TITLE = 255
_DRAFT = re.compile(r"\s*(?:draft:|\[draft\]|\(draft\))\s*", re.IGNORECASE)
_STATES = {"opened": "open", "locked": "open", "closed": "closed", "merged": "merged"}
_CHECKS: dict[str, CheckState] = {
    "created": "pending",
    "waiting_for_resource": "pending",
    "preparing": "pending",
    "pending": "pending",
    "running": "pending",
    "success": "success",
    "failed": "failure",
}
_LEVELS: tuple[tuple[int, Permission], ...] = (
    (50, "admin"),  # owner
    (40, "maintain"),
    (30, "write"),  # developer
    (15, "triage"),  # planner, reporter
    (10, "read"),
)
_SETTLED = {"conflict": False, "mergeable": True}
# What keeps a merge request from being merged though its branches fit together.
_NO_CONFLICT = {
    "blocked_status",
    "ci_must_pass",
    "ci_still_running",
    "commits_status",
    "discussions_not_resolved",
    "draft_status",
    "external_status_checks",
    "jira_association_missing",
    "locked_lfs_files",
    "locked_paths",
    "merge_request_blocked",
    "merge_time",
    "need_rebase",
    "not_approved",
    "requested_changes",
    "security_policy_pipeline_check",
    "security_policy_violations",
    "status_checks_must_pass",
    "title_regex",
}


def drafted(title: str) -> str:
    """The title of a draft, no longer than GitLab takes."""
    return (title if is_draft(title) else DRAFT + title)[:MOST_TITLE]


def is_draft(title: str) -> bool:
    """Whether a title makes a draft."""
    return _DRAFT.match(title) is not None


def undrafted(title: str) -> str:
    """The title without its prefix."""
    return _DRAFT.sub("", title, count=1) if is_draft(title) else title


def visibility(project: Mapping[str, Any]) -> Visibility:
    """As the forge says; what every logged-in user may read (internal) is neither private nor public."""
    told: dict[Any, Visibility] = {"private": "private", "public": "public"}
    return told.get(str(project.get("visibility")), "unknown")


def is_own(value: Mapping[str, Any], site: Site, me: str | None) -> bool:
    """Whether the broker's account (None: unknown) opened it from a branch of the broker's in this project."""
    by_us = me is None or author(value).lower() == me
    return by_us and is_from_here(value) and line(value.get("source_branch")).startswith(site.prefix)


def is_from_here(value: Mapping[str, Any]) -> bool:
    """Whether a merge request's branch lies in the project itself. A fork's branch may bear any name, ours too."""
    return number(value.get("source_project_id")) > 0 and value["source_project_id"] == value.get("target_project_id")


def pull(value: Mapping[str, Any], site: Site, order: Order | None = None) -> PullRequest:
    """A merge request; what the forge does not keep is the order's, or read off its words. Raises ForgeError."""
    title, state = line(value.get("title")), _STATES.get(str(value.get("state")), "open")
    index, body = number(value.get("iid")), text(value.get("description"))
    branch = line(value.get("source_branch"))
    merged = state == "merged"
    landed = commit(value.get("merge_commit_sha")) or commit(value.get("squash_commit_sha")) or commit(value.get("sha"))
    return pull_request(
        **kept(order, branch, body, site.prefix, commit(inside(value, "diff_refs", "base_sha"))),
        repository=site.name,
        number=index,
        state=state,
        draft=value.get("draft") is True or is_draft(title),
        url=site.merge_url(index),
        title=undrafted(title),
        body=body,
        branch=branch,
        base=line(value.get("target_branch")),
        commit=commit(value.get("sha")) or UNKNOWN,
        created=at(value.get("created_at")),
        merged_commit=landed or None if merged else None,
        merged_by=login(inside(value, "merge_user", "username") or inside(value, "merged_by", "username"))
        if merged
        else "",
    )


def author(value: Mapping[str, Any]) -> str:
    """Who wrote something."""
    return login(inside(value, "author", "username"))


def thread(value: Mapping[str, Any], site: Site, index: int, *, pull: bool, comments: tuple[Said, ...] = ()) -> Thread:
    """An issue or merge request, under the number that the broker knows it by. Raises ForgeError."""
    if not number(value.get("iid")):
        raise ForgeError("the forge's answer is no issue", reason=Reason.BROKEN)
    labels = value.get("labels")
    names = (line(one, 100) for one in (labels if isinstance(labels, list) else [])[:100])
    return Thread(
        number=index,
        title=line(value.get("title")),
        text=text(value.get("description")),
        author=author(value),
        state="open" if str(value.get("state")) in {"opened", "locked"} else "closed",
        labels=tuple(filter(None, names)),
        comments=tuple(one.comment() for one in comments),
        url=site.merge_url(index) if pull else site.issue_url(index),
        pull=pull,
        updated=at(value.get("updated_at")),
    )


def said(value: Mapping[str, Any]) -> Said:
    """A note. GitLab names the accounts of projects' and groups' tokens by a pattern, and tells `bot` of some."""
    place = inside(value, "position")
    name = author(value)
    return Said(
        author=name,
        at=at(value.get("created_at")),
        text=text(value.get("body")),
        bot=inside(value, "author", "bot") is True or re.fullmatch(r"(project|group)_\d+_bot\w*", name) is not None,
        path=line(inside(place, "new_path") or inside(place, "old_path"), 1000),
        line=number(inside(place, "new_line")) or number(inside(place, "old_line")),
    )


def step(value: Mapping[str, Any], label: str) -> Step:
    """One of an issue's label events."""
    put = value.get("action") == "add" if inside(value, "label", "name") == label else None
    return Step(login(inside(value, "user", "username")), at(value.get("created_at")), put)


def remarks(discussion: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The notes on lines in a discussion that nobody has resolved."""
    return [
        one
        for one in items(discussion.get("notes"))
        if isinstance(one.get("position"), dict) and one.get("resolved") is not True
    ]


def noted(value: Mapping[str, Any], index: int, *, pull: bool) -> Note | None:
    """A person's note; None for GitLab's own, which tell of labels and pushes."""
    identity = number(value.get("id"))
    if value.get("system") is True or not identity or not text(value.get("body")).strip():
        return None
    return Note(f"note-{identity}", index, said(value).comment(), pull)


def status(value: Mapping[str, Any]) -> Check | None:
    """A commit status or job; one that may fail counts for nothing when it does."""
    state = _CHECKS.get(str(value.get("status")), "neutral")
    if state == "failure" and value.get("allow_failure") is True:
        state = "neutral"
    return check(value.get("name"), state, value.get("description"), web(value.get("target_url")))


def permission(level: object) -> Permission:
    """What an access level allows."""
    height = number(level)
    return next((name for least, name in _LEVELS if height >= least), "none")


def mergeable(value: Mapping[str, Any]) -> bool | None:
    """Whether the branches fit together; None while GitLab has not looked (it looks when it is asked)."""
    detailed = str(value.get("detailed_merge_status"))
    if value.get("has_conflicts") is True and detailed not in {"unchecked", "checking", "preparing"}:
        return False
    if detailed in _SETTLED:
        return _SETTLED[detailed]
    if detailed in _NO_CONFLICT:
        return True if value.get("has_conflicts") is False else None
    return {"can_be_merged": True, "cannot_be_merged": False}.get(str(value.get("merge_status")))
