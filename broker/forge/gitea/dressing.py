"""Labels, reviewers and assignees on Gitea: labels are looked up by name and put on by id, people one by one."""

from __future__ import annotations

from broker.forge.base import Dressing
from broker.forge.dressed import Complaints
from broker.forge.gitea.site import Site
from broker.forge.reading import items, line, login, number
from broker.forge.rest.address import part
from broker.forge.rest.door import Door, Visit
from broker.scope import Scope


def dress(door: Door, site: Site, index: int, dressing: Dressing) -> tuple[str, ...]:
    """Puts on what is not on yet; returns what was not taken. Raises ForgeError."""
    told = Complaints()
    if dressing.labels or dressing.assignees:
        with door.visit(Scope.ISSUES) as visit:
            _label(visit, site, index, dressing.labels, told)
            _assign(visit, site, index, dressing.assignees, told)
    if dressing.reviewers or dressing.team_reviewers:
        with door.visit(Scope.PULLS) as visit:
            _ask(visit, site, index, dressing, told)
    return told.all


def _label(visit: Visit, site: Site, index: int, wanted: tuple[str, ...], told: Complaints) -> None:
    if not wanted:
        return
    known: dict[str, int] = {}
    for page in visit.pages(f"{site.path}/labels", {"limit": "50"}, most=10, doing="the labels"):
        known.update({line(one.get("name"), 100): number(one.get("id")) for one in page})
    _add_organisations(visit, site, wanted, known)
    for name in wanted:
        if not known.get(name):
            told.add(f"label {name!r}: the repository has none of that name; make it there")
    ids = [known[name] for name in wanted if known.get(name)]
    if ids:
        with told.of("labels"):
            path = f"{site.path}/issues/{part(index)}/labels"
            visit.post(path, {"labels": ids}, doing="the labels could not be put on", again=True)


def _add_organisations(visit: Visit, site: Site, wanted: tuple[str, ...], known: dict[str, int]) -> None:
    """An organisation has labels for all its repositories; a person has none, and a token may not see them."""
    if all(name in known for name in wanted):
        return
    unseen = Complaints()
    with unseen.of("the organisation's labels"):
        for page in visit.pages(f"/orgs/{part(site.owner)}/labels", {"limit": "50"}, most=10):
            for one in page:
                known.setdefault(line(one.get("name"), 100), number(one.get("id")))


def _assign(visit: Visit, site: Site, index: int, wanted: tuple[str, ...], told: Complaints) -> None:
    """By PATCH with who is there already: Forgejo has no call that adds one."""
    if not wanted:
        return
    path = f"{site.path}/issues/{part(index)}"
    now = [login(one.get("login")) for one in items(visit.get(path, doing="the issue").mapping().get("assignees"))]
    for name in wanted:
        if name.lower() in {one.lower() for one in now}:
            continue
        with told.of(f"assignee {name!r}"):
            visit.patch(path, {"assignees": [*now, name]}, doing="the forge did not assign")
            now.append(name)


def _ask(visit: Visit, site: Site, index: int, dressing: Dressing, told: Complaints) -> None:
    path = f"{site.path}/pulls/{part(index)}/requested_reviewers"
    kinds = (("reviewers", dressing.reviewers), ("team_reviewers", dressing.team_reviewers))
    for kind, names in kinds:
        for name in names:
            with told.of(f"{kind.rstrip('s').replace('_', ' ')} {name!r}"):
                visit.post(path, {kind: [name]}, doing="the forge did not ask for a review", again=True)
