"""A stand-in for Gitea and Forgejo, after Gitea's own API description: pulls, issues, labels by id, reviews, statuses.

Draft is the title's prefix; a second pull request for a branch is a 409; PATCH answers 201; head equal to base is 422.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.forges.stand_in import TOKEN, Call, Fail, Project, StandIn, only, page, stamp

BOT = "swarm-bot"
LESSER = "canary-6c33-lesser-token"  # without the scope read:user
_PROJECT = r"/repos/(?P<project>[^/]+/[^/]+)"
_API = "http://forge/api/v1"


@dataclass
class GiteaProject(Project):
    """One repository; issues and pull requests share their numbers."""

    things: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    timeline: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    reviews: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    review_comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=lambda: {3: "agent", 4: "bug"})
    permissions: dict[str, str] = field(
        default_factory=lambda: {BOT: "write", "ann": "owner", "bob": "write", "eve": "read", "out": "none"}
    )
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    archived: bool = False
    mergeable: bool = True

    def issue(self, title: str, body: str, author: str = "ann", labels: tuple[str, ...] = ()) -> dict[str, Any]:
        """An issue that somebody opened."""
        one = {
            "number": len(self.things) + 1,
            "title": title,
            "body": body,
            "state": "open",
            "labels": [{"name": label} for label in labels],
            "user": {"login": author},
            "html_url": f"http://forge/{self.path}/issues/{len(self.things) + 1}",
            "created_at": stamp(),
            "updated_at": stamp(),
            "pull_request": None,
        }
        self.things.append(one)
        return one

    def say(self, number: int, body: str, author: str = "ann") -> dict[str, Any]:
        """A comment by somebody, with the address of an issue or that of a pull request, and the other empty."""
        pull = self.things[number - 1].get("pull_request") is not None
        where = f"http://forge/{self.path}/{'pulls' if pull else 'issues'}/{number}"
        one = {
            "id": 100 + len(self.comments),
            "body": body,
            "user": {"login": author},
            "created_at": stamp(),
            "updated_at": stamp(),
            "html_url": f"{where}#issuecomment-{100 + len(self.comments)}",
            "issue_url": "" if pull else where,
            "pull_request_url": where if pull else "",
        }
        self.comments.append(one)
        return one


class GiteaStandIn(StandIn[GiteaProject]):
    """The forge. Its API is below /api/v1."""

    def __init__(self, folder: Any) -> None:
        super().__init__(folder, GiteaProject, _ROUTES, "/api/v1")

    def admit(self, call: Call, project: GiteaProject | None) -> None:
        """By ``Authorization: token`` alone; an archived repository takes nothing."""
        if call.headers.get("authorization") not in {f"token {TOKEN}", f"token {LESSER}"}:
            raise Fail(401, {"message": "token is required", "url": f"{_API}/swagger"})
        if project is not None and project.archived and call.method != "GET":
            raise Fail(423, {"message": f"Repo is archived: {project.path}", "url": f"{_API}/swagger"})


def _user(_forge: GiteaStandIn, call: Call, _groups: Mapping[str, str]) -> Any:
    if LESSER in call.headers["authorization"]:
        raise Fail(403, {"message": "token does not have at least one of required scope(s): [read:user]"})
    return {"login": BOT}


def _repository(project: GiteaProject, call: Call, _groups: Mapping[str, str]) -> Any:
    return {
        "full_name": project.path,
        "private": project.private,
        "internal": False,
        "default_branch": "main",
        "object_format_name": "sha1",
        "archived": project.archived,
        "permissions": {"admin": False, "push": True, "pull": True},
    }


def _branch(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    head = project.bare.head(unquote(groups["branch"]))
    if head is None:
        raise Fail(404, {"message": "branch does not exist", "url": f"{_API}/swagger"})
    return {"name": unquote(groups["branch"]), "commit": {"id": head}, "protected": False, "user_can_push": True}


def _shown(project: GiteaProject, one: dict[str, Any]) -> dict[str, Any]:
    if one["state"] == "open":
        one["head"]["sha"] = project.bare.head(one["head"]["ref"]) or one["head"]["sha"]
    onto = project.bare.head(one["base"]["ref"]) or one["base"]["sha"]
    common = project.bare.common(one["head"]["sha"], onto)
    prefixed = one["title"].upper().startswith(("WIP:", "[WIP]"))
    base = {**one["base"], "sha": onto}
    return {
        **one,
        "base": base,
        "draft": prefixed,
        "mergeable": project.mergeable and not prefixed,
        "merge_base": common,
    }


def _pulls(project: GiteaProject) -> list[dict[str, Any]]:
    return [one for one in project.things if one["pull_request"] is not None]


def _list_pulls(project: GiteaProject, call: Call, _groups: Mapping[str, str]) -> Any:
    only(call.query, "state", "sort", "page", "limit", "base_branch", "poster", "labels", "milestone")
    found = [
        _shown(project, one)
        for one in reversed(_pulls(project))
        if call.query.get("state", "open") in {"all", one["state"]}
        and call.query.get("base_branch", one["base"]["ref"]) == one["base"]["ref"]
        and call.query.get("poster", one["user"]["login"]) == one["user"]["login"]
    ]
    return page(found, call, _API, "limit")


def _create_pull(project: GiteaProject, call: Call, _groups: Mapping[str, str]) -> Any:
    given = call.body
    only(given, "title", "body", "head", "base", "labels", "assignee", "assignees", "reviewers", "team_reviewers",
         "milestone", "due_date", "allow_maintainer_edit")  # fmt: skip
    if not given.get("title"):
        raise Fail(422, {"message": "[Title]: Required", "url": f"{_API}/swagger"})
    if given.get("head") == given.get("base"):
        raise Fail(422, {"message": "Invalid PullRequest: There are no changes between the head and the base"})
    head, base = project.bare.head(given.get("head", "")), project.bare.head(given.get("base", ""))
    if head is None or base is None:
        raise Fail(404, {"message": "The target couldn't be found."})
    for one in _pulls(project):
        if one["state"] == "open" and (one["head"]["ref"], one["base"]["ref"]) == (given["head"], given["base"]):
            words = (
                f"pull request already exists for these targets [id: {900 + one['number']}, issue_id: {one['number']}"
            )
            raise Fail(409, {"message": words + "]", "url": f"{_API}/swagger"})
    one = project.issue(given["title"], given.get("body", ""), author=BOT)
    one |= {
        "pull_request": {"merged": False},
        "head": {"ref": given["head"], "sha": head, "label": given["head"], "repo_id": project.id},
        "base": {"ref": given["base"], "sha": base, "label": given["base"], "repo_id": project.id},
        "html_url": f"http://forge/{project.path}/pulls/{one['number']}",
        "merged": False,
        "merge_commit_sha": None,
        "merged_by": None,
        "assignees": [],
        "requested_reviewers": [],
    }
    return 201, _shown(project, one), {}


def _thing(project: GiteaProject, groups: Mapping[str, str]) -> dict[str, Any]:
    number = int(groups["number"])
    if not 0 < number <= len(project.things):
        raise Fail(404, {"message": "The target couldn't be found."})
    return project.things[number - 1]


def _pull_of(project: GiteaProject, groups: Mapping[str, str]) -> dict[str, Any]:
    one = _thing(project, groups)
    if one["pull_request"] is None:
        raise Fail(404, {"message": "The target couldn't be found."})
    return one


def _get_pull(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    return _shown(project, _pull_of(project, groups))


def _by_branches(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    wanted = (unquote(groups["head"]), unquote(groups["base"]))
    for one in _pulls(project):  # an open one alone
        if one["state"] == "open" and (one["head"]["ref"], one["base"]["ref"]) == wanted:
            return _shown(project, one)
    raise Fail(404, {"message": "The target couldn't be found."})


def _patch_pull(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "title", "body", "state", "base", "labels", "assignees", "assignee", "milestone", "due_date",
         "unset_due_date", "allow_maintainer_edit", "content_version")  # fmt: skip
    one = _pull_of(project, groups)
    if one["merged"] and "state" in call.body:
        raise Fail(412, {"message": "cannot change state of this pull request, it was already merged"})
    one |= {key: call.body[key] for key in ("title", "body", "state") if key in call.body}
    one["updated_at"] = stamp()
    return 201, _shown(project, one), {}


def _diff(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    one = _shown(project, _pull_of(project, groups))
    return project.bare.git("diff-tree", "-r", "-p", one["merge_base"], one["head"]["sha"]) + "\n"


def _ask_reviewers(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "reviewers", "team_reviewers")
    one = _pull_of(project, groups)
    for name in call.body.get("reviewers", []):
        if name not in project.permissions:
            raise Fail(404, {"message": f"user does not exist [uid: 0, name: {name}]"})
        if name == BOT:
            raise Fail(422, {"message": "poster of pr can't be reviewer [user_id: 1, repo_id: 1]"})
    if call.body.get("team_reviewers"):
        raise Fail(422, {"message": "user should be an organization"})
    for name in call.body.get("reviewers", []):
        if {"login": name} not in one["requested_reviewers"]:
            one["requested_reviewers"].append({"login": name})
    return 201, [], {}


def _patch_issue(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "assignees", "assignee", "title", "body", "state", "milestone", "due_date", "unset_due_date", "ref")
    one = _thing(project, groups)
    for name in call.body.get("assignees", []):
        if project.permissions.get(name) not in {"write", "admin", "owner"}:
            raise Fail(422, {"message": f"Assignee does not exist: [name: {name}]"})
    if "assignees" in call.body:  # they replace who was there
        one["assignees"] = [{"login": name} for name in call.body["assignees"]]
    return 201, one, {}


def _put_labels_on(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "labels")
    one = _thing(project, groups)
    for number in call.body["labels"]:
        if not isinstance(number, int):
            raise Fail(422, {"message": "labels are ids here"})
        if number not in project.labels:
            continue  # dropped without a word
        if {"name": project.labels[number]} not in one["labels"]:
            one["labels"].append({"name": project.labels[number]})
    return one["labels"]


def _labels(project: GiteaProject, call: Call, _groups: Mapping[str, str]) -> Any:
    only(call.query, "page", "limit")
    return page([{"id": n, "name": name} for n, name in project.labels.items()], call, _API, "limit")


def _list_issues(project: GiteaProject, call: Call, _groups: Mapping[str, str]) -> Any:
    only(call.query, "state", "labels", "q", "type", "milestones", "since", "before", "created_by", "assigned_by",
         "mentioned_by", "page", "limit")  # fmt: skip
    kind = call.query.get("type")
    found = [
        one
        for one in reversed(project.things)
        if call.query.get("state", "open") in {"all", one["state"]}
        and (kind is None or (kind == "pulls") == (one["pull_request"] is not None))
        and call.query.get("since", "") <= one["updated_at"] <= call.query.get("before", "9")
    ]
    return page(found, call, _API, "limit")


def _list_comments(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.query, *(("page", "limit") if "number" not in groups else ()), "since", "before")
    wanted = f"/{groups['number']}" if "number" in groups else ""
    found = [
        one
        for one in project.comments
        if (one["issue_url"] or one["pull_request_url"]).endswith(wanted)
        and one["updated_at"] >= call.query.get("since", "")
    ]
    return found if wanted else page(found, call, _API, "limit")


def _comment(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "body")
    _thing(project, groups)
    if not call.body.get("body"):
        raise Fail(422, {"message": "[Body]: Required"})
    return 201, project.say(int(groups["number"]), call.body["body"], author=BOT), {}


def _rewrite(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "body")
    for one in project.comments:
        if one["id"] == int(groups["comment"]):
            if one["user"]["login"] != BOT:
                raise Fail(403, {"message": "Only the author may edit"})
            one["body"] = call.body["body"]
            one["updated_at"] = stamp()
            return one
    raise Fail(404, {"message": "The target couldn't be found."})


def _timeline(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.query, "since", "before", "page", "limit")
    _thing(project, groups)
    return page(project.timeline.get(int(groups["number"]), []), call, _API, "limit")


def _permission(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    if project.permissions[BOT] not in {"admin", "owner"} and unquote(groups["login"]) != BOT:
        raise Fail(
            403, {"message": "Only admins can query all permissions, repo admins can query all repo permissions"}
        )
    held = project.permissions.get(unquote(groups["login"]))
    if held is None:
        raise Fail(404, {"message": "user does not exist"})
    return {"permission": held, "role_name": held, "user": {"login": unquote(groups["login"])}}


def _assignees(project: GiteaProject, call: Call, _groups: Mapping[str, str]) -> Any:
    return [{"login": name} for name, held in project.permissions.items() if held in {"write", "admin", "owner"}]


def _set_status(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "state", "context", "description", "target_url")
    if call.body.get("state") not in {"pending", "success", "error", "failure", "warning"}:
        raise Fail(400, {"message": "unknown state"})
    entries = project.statuses.setdefault(groups["sha"], [])
    one = {"id": len(entries) + 1, "status": call.body["state"], "creator": {"login": BOT}}
    one |= {key: call.body.get(key, "") for key in ("context", "description", "target_url")}
    entries.append(one)
    return 201, one, {}


def _combined(project: GiteaProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.query, "page", "limit")
    newest = {one["context"]: one for one in project.statuses.get(groups["sha"], [])}
    return {"sha": groups["sha"], "state": "pending", "statuses": list(newest.values()), "total_count": len(newest)}


_NUMBER = r"(?P<number>\d+)"
_ROUTES = {
    "GET /user": _user,
    f"GET {_PROJECT}": _repository,
    f"GET {_PROJECT}/branches/(?P<branch>[^/]+)": _branch,
    f"GET {_PROJECT}/pulls": _list_pulls,
    f"POST {_PROJECT}/pulls": _create_pull,
    f"GET {_PROJECT}/pulls/{_NUMBER}": _get_pull,
    f"PATCH {_PROJECT}/pulls/{_NUMBER}": _patch_pull,
    f"GET {_PROJECT}/pulls/{_NUMBER}\\.diff": _diff,
    f"POST {_PROJECT}/pulls/{_NUMBER}/requested_reviewers": _ask_reviewers,
    f"GET {_PROJECT}/pulls/{_NUMBER}/reviews": lambda p, c, g: page(
        p.reviews.get(int(g["number"]), []), c, _API, "limit"
    ),
    f"GET {_PROJECT}/pulls/{_NUMBER}/reviews/(?P<review>\\d+)/comments": lambda p, c, g: p.review_comments.get(
        int(g["review"]), []
    ),
    f"GET {_PROJECT}/pulls/(?P<base>[^/]+)/(?P<head>[^/]+)": _by_branches,
    f"GET {_PROJECT}/labels": _labels,
    f"GET {_PROJECT}/issues": _list_issues,
    f"GET {_PROJECT}/issues/comments": _list_comments,
    f"PATCH {_PROJECT}/issues/comments/(?P<comment>\\d+)": _rewrite,
    f"GET {_PROJECT}/issues/{_NUMBER}": lambda p, c, g: _thing(p, g),
    f"POST {_PROJECT}/issues/{_NUMBER}/labels": _put_labels_on,
    f"PATCH {_PROJECT}/issues/{_NUMBER}": _patch_issue,
    f"GET {_PROJECT}/issues/{_NUMBER}/comments": _list_comments,
    f"POST {_PROJECT}/issues/{_NUMBER}/comments": _comment,
    f"GET {_PROJECT}/issues/{_NUMBER}/timeline": _timeline,
    f"GET {_PROJECT}/collaborators/(?P<login>[^/]+)/permission": _permission,
    f"GET {_PROJECT}/assignees": _assignees,
    f"POST {_PROJECT}/statuses/(?P<sha>[0-9a-f]+)": _set_status,
    f"GET {_PROJECT}/commits/(?P<sha>[0-9a-f]+)/status": _combined,
}
