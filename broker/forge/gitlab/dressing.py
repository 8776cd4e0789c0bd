"""Labels, reviewers and assignees on GitLab. What GitLab drops without a word is found by reading its answer."""

from __future__ import annotations

from typing import Any

from broker.forge.base import Dressing
from broker.forge.dressed import Complaints
from broker.forge.gitlab.site import Site
from broker.forge.reading import inside, items, line, number
from broker.forge.rest.address import part
from broker.forge.rest.door import Door, Visit
from broker.scope import Scope


def dress(door: Door, site: Site, index: int, dressing: Dressing) -> tuple[str, ...]:
    """Puts on what is not on yet; returns what was not taken. Raises ForgeError."""
    told = Complaints()
    path = f"{site.path}/merge_requests/{part(index)}"
    with door.visit(Scope.PULLS) as visit:
        now = visit.get(path, doing="the merge request").mapping()
        _label(visit, site, path, dressing.labels, told)
        for kind, names in (("reviewer", dressing.reviewers), ("assignee", dressing.assignees)):
            _involve(visit, path, kind, names, now, told)
    for team in dressing.team_reviewers:
        told.add(f"team reviewer {team!r}: GitLab asks people alone; use approval rules or CODEOWNERS for groups")
    return told.all


def _label(visit: Visit, site: Site, path: str, wanted: tuple[str, ...], told: Complaints) -> None:
    """GitLab would make a label that is not there, so it is looked for first."""
    known = [name for name in wanted if _is_label(visit, site, name)]
    for name in wanted:
        if name not in known:
            told.add(f"label {name!r}: the project has none of that name; make it there")
    if known:
        with told.of("labels"):
            visit.put(path, {"add_labels": ",".join(known)}, doing="the labels could not be put on")


def _is_label(visit: Visit, site: Site, name: str) -> bool:
    pages = visit.pages(f"{site.path}/labels", {"search": name, "per_page": "100"}, most=5, doing="the labels")
    return any(one.get("name") == name for page in pages for one in page)


def _involve(visit: Visit, path: str, kind: str, names: tuple[str, ...], now: dict[str, Any], told: Complaints) -> None:
    """Adds people to those who are there: the call replaces them all."""
    there = {number(one.get("id")) for one in items(now.get(f"{kind}s"))} - {0}
    wanted = {name: _identity(visit, name) for name in names}
    for name in [name for name, identity in wanted.items() if not identity]:
        told.add(f"{kind} {name!r}: the forge knows nobody of that name")
        del wanted[name]
    if not set(wanted.values()) - there:
        return
    with told.of(f"{kind}s"):
        ids = sorted(there | set(wanted.values()))
        answer = visit.put(path, {f"{kind}_ids": ids}, doing=f"the {kind}s could not be set").mapping()
        taken = {inside(one, "id") for one in items(answer.get(f"{kind}s"))}
        for name, identity in wanted.items():
            if identity not in taken:
                told.add(f"{kind} {name!r}: the forge did not take it: no member, or more than its plan allows")


def _identity(visit: Visit, name: str) -> int:
    found = visit.get("/users", {"username": name}, doing=f"the user {line(name, 100)}").list()
    same = [one for one in found if str(one.get("username")).lower() == name.lower()]
    return number(same[0].get("id")) if same else 0
