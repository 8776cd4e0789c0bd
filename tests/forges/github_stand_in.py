"""A stand-in for a GitHub Enterprise, after GitHub's own API description: pulls, issues, reviews, checks, ETags.

A second pull request for a branch is a 422 that says so; one reviewer who is none refuses all; who cannot be assigned
is left out without a word; lists are paged by Link; an archived repository is a 403. One API is one file: a long one.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.forges.stand_in import TOKEN, Call, Fail, Project, StandIn, only, page, stamp

BOT = "swarm-bot"
APP_TOKEN = "canary-7e11-app-token"  # of an App: it has no user
_PROJECT = r"/v3/repos/(?P<project>[^/]+/[^/]+)"
_NUMBER = r"(?P<number>\d+)"
_DOCS = "https://docs.github.com/rest"


def invalid(*errors: dict[str, str], message: str = "Validation Failed") -> Fail:
    """GitHub's 422."""
    return Fail(422, {"message": message, "errors": list(errors), "documentation_url": _DOCS, "status": "422"})


def refused(status: int, message: str, **headers: str) -> Fail:
    """Any other refusal in GitHub's shape."""
    told = {key.replace("_", "-"): value for key, value in headers.items()}
    return Fail(status, {"message": message, "documentation_url": _DOCS, "status": str(status)}, told)


@dataclass
class GitHubProject(Project):
    """One repository; issues and pull requests share their numbers."""

    things: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    events: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    reviews: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    review_comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    roles: dict[str, str] = field(
        default_factory=lambda: {BOT: "write", "ann": "admin", "bob": "write", "tri": "triage", "eve": "read"}
    )
    archived: bool = False
    rules: tuple[str, ...] = ()  # rulesets that cover the broker's branches
    scopes: str | None = None  # of a classic token
    rights: dict[str, bool] = field(default_factory=lambda: {"admin": False, "push": True, "pull": True})
    app: bool = False  # whether what the broker makes is by its App
    young: int = 0  # how often labels are not there yet
    no_checks: bool = False  # whether the token may not read checks, as a fine-grained one
    mergeable: bool | None = True

    def person(self, login: str) -> dict[str, Any]:
        """Somebody, as GitHub shows them."""
        name = f"{login}[bot]" if self.app and login == BOT else login
        return {"login": name, "type": "Bot" if name.endswith("[bot]") else "User"}

    def issue(self, title: str, body: str | None, author: str = "ann", labels: tuple[str, ...] = ()) -> dict[str, Any]:
        """An issue that somebody opened."""
        one = {
            "id": 5000 + len(self.things),
            "number": len(self.things) + 1,
            "title": title,
            "body": body,
            "state": "open",
            "labels": [{"name": label} for label in labels],
            "user": self.person(author),
            "assignees": [],
            "created_at": stamp(),
            "updated_at": stamp(),
        }
        self.things.append(one)
        for label in labels:
            self.labelled(one["number"], label, author)
        return one

    def labelled(self, number: int, label: str, by: str, event: str = "labeled") -> None:
        """Somebody put a label on, or took it off."""
        one = {"event": event, "label": {"name": label}, "actor": self.person(by), "created_at": stamp()}
        self.events.setdefault(number, []).append(one)

    def say(self, number: int, body: str, author: str = "ann") -> dict[str, Any]:
        """A comment by somebody."""
        kind = "pull" if "pull_request" in self.things[number - 1] else "issues"
        one = {
            "id": 100 + len(self.comments),
            "body": body,
            "user": self.person(author),
            "created_at": stamp(),
            "updated_at": stamp(),
            "issue_url": f"http://forge/api/v3/repos/{self.path}/issues/{number}",
            "html_url": f"http://forge/{self.path}/{kind}/{number}#issuecomment-{100 + len(self.comments)}",
        }
        self.comments.append(one)
        self.things[number - 1]["updated_at"] = stamp()
        return one


class GitHubStandIn(StandIn[GitHubProject]):
    """The forge. Its API is below /api/v3, GraphQL beside it."""

    def __init__(self, folder: Any) -> None:
        super().__init__(folder, GitHubProject, _ROUTES, "/api")
        self.scoped: dict[str, Mapping[str, str]] = {}  # tokens of an App, and what each may do

    def find(self, name: str) -> GitHubProject:
        """By its path; names are compared as GitHub does."""
        if name not in self.projects:
            raise refused(404, "Not Found")
        return self.projects[name]

    def admit(self, call: Call, project: GitHubProject | None) -> None:
        """By ``Authorization: Bearer`` alone, and in the API's version; an archived repository takes nothing."""
        token = call.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in {TOKEN, APP_TOKEN, *self.scoped}:
            raise refused(401, "Bad credentials")
        if token in self.scoped and project is not None and not _allowed(call, self.scoped[token]):
            raise refused(403, "Resource not accessible by integration")
        if call.headers.get("x-github-api-version") != "2022-11-28" or "user-agent" not in call.headers:
            raise refused(400, "a version of the API and a user agent are needed")
        if project is not None and project.archived and call.method != "GET":
            raise refused(403, "Repository was archived so is read-only.")


def _user(_forge: GitHubStandIn, call: Call, _groups: Mapping[str, str]) -> Any:
    if call.headers["authorization"] != f"Bearer {TOKEN}":
        raise refused(403, "Resource not accessible by integration")
    return {"login": BOT, "type": "User"}


def _graphql(forge: GitHubStandIn, call: Call, _groups: Mapping[str, str]) -> Any:
    only(call.body, "query")
    return {"data": {"viewer": {"login": f"{BOT}[bot]"}}}


def _repository(project: GitHubProject, _call: Call, _groups: Mapping[str, str]) -> Any:
    shown = "private" if project.private else "public"
    headers = {} if project.scopes is None else {"X-OAuth-Scopes": project.scopes}
    told = {
        "full_name": project.path,
        "private": project.private,
        "visibility": shown,
        "default_branch": "main",
        "archived": project.archived,
        "permissions": project.rights,
    }
    return 200, told, headers


# What a call needs, any one of them; after docs.github.com, "Permissions required for GitHub Apps".
_NEEDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("GET", r"/git/ref/", ("contents:read",)),
    ("GET", r"/rules/branches/", ("metadata:read",)),
    ("GET", r"/collaborators/[^/]+/permission", ("metadata:read",)),
    ("GET", r"/pulls", ("pull_requests:read",)),
    ("POST", r"/pulls", ("pull_requests:write",)),
    ("PATCH", r"/pulls", ("pull_requests:write",)),
    ("GET", r"/issues/(\d+/)?comments", ("issues:read", "pull_requests:read")),
    ("GET", r"/issues", ("issues:read",)),
    ("POST", r"/issues", ("issues:write", "pull_requests:write")),
    ("PATCH", r"/issues", ("issues:write", "pull_requests:write")),
    ("POST", r"/statuses/", ("statuses:write",)),
    ("GET", r"/commits/[^/]+/status", ("statuses:read",)),
    ("GET", r"/commits/[^/]+/check-runs", ("checks:read",)),
    ("GET", r"/actions/", ("actions:read",)),
    ("GET", r"", ("metadata:read",)),
)


def _allowed(call: Call, held: Mapping[str, str]) -> bool:
    """Whether a token's permissions are enough: write holds read."""
    inside = re.sub(r"^/v3/repos/[^/]+/[^/]+", "", call.path)
    for method, path, needs in _NEEDS:
        if method == call.method and re.match(path, inside):
            return any(held.get(name) in {level, "write"} for name, level in (need.split(":") for need in needs))
    return False


def _rules(project: GitHubProject, _call: Call, _groups: Mapping[str, str]) -> Any:
    return [{"type": rule, "ruleset_source_type": "Repository", "ruleset_id": 1} for rule in project.rules]


def _ref(project: GitHubProject, _call: Call, groups: Mapping[str, str]) -> Any:
    name = unquote(groups["branch"])
    head = project.bare.head(name)
    if head is None:
        raise refused(404, "Not Found")
    return {"ref": f"refs/heads/{name}", "object": {"type": "commit", "sha": head}}


def _shown(project: GitHubProject, one: dict[str, Any]) -> dict[str, Any]:
    if one["state"] == "open":
        one["head"]["sha"] = project.bare.head(one["head"]["ref"]) or one["head"]["sha"]
        one["base"]["sha"] = project.bare.head(one["base"]["ref"]) or one["base"]["sha"]
    return {**one, "mergeable": project.mergeable}


def _pulls(project: GitHubProject) -> list[dict[str, Any]]:
    return [one for one in project.things if "pull_request" in one]


def _list_pulls(project: GitHubProject, call: Call, _groups: Mapping[str, str]) -> Any:
    only(call.query, "state", "head", "base", "sort", "direction", "per_page", "page")
    owner, _, head = call.query.get("head", "").rpartition(":")
    if call.query.get("head") and owner != project.path.split("/")[0]:
        return page([], call, "http://forge/api", "per_page")
    found = [
        _shown(project, one)
        for one in reversed(_pulls(project))
        if call.query.get("state", "open") in {"all", one["state"]}
        and head in {"", one["head"]["ref"]}
        and call.query.get("base", one["base"]["ref"]) == one["base"]["ref"]
    ]
    return page(found, call, "http://forge/api", "per_page")


def _create_pull(project: GitHubProject, call: Call, _groups: Mapping[str, str]) -> Any:
    given = call.body
    only(given, "title", "head", "head_repo", "base", "body", "maintainer_can_modify", "draft", "issue")
    heads = {key: project.bare.head(given.get(key, "").rpartition(":")[2]) for key in ("head", "base")}
    wrong = [{"resource": "PullRequest", "field": key, "code": "invalid"} for key in heads if heads[key] is None]
    if wrong:
        raise invalid(*wrong)
    for one in _pulls(project):
        if one["state"] == "open" and (one["head"]["ref"], one["base"]["ref"]) == (given["head"], given["base"]):
            words = f"A pull request already exists for {project.path.split('/')[0]}:{given['head']}."
            raise invalid({"resource": "PullRequest", "code": "custom", "message": words})
    if project.bare.git("rev-list", "-n1", f"{heads['base']}..{heads['head']}") == "":
        words = f"No commits between {given['base']} and {given['head']}"
        raise invalid({"resource": "PullRequest", "code": "custom", "message": words})
    one = project.issue(given["title"], given.get("body"), author=BOT)
    repo = {"full_name": project.path}
    one |= {
        "pull_request": {"merged_at": None},
        "draft": given.get("draft", False),
        "head": {"ref": given["head"], "sha": heads["head"], "repo": repo},
        "base": {"ref": given["base"], "sha": heads["base"], "repo": repo},
        "merged_at": None,
        "merge_commit_sha": None,
        "requested_reviewers": [],
    }
    return 201, _shown(project, one), {}


def _thing(project: GitHubProject, groups: Mapping[str, str]) -> dict[str, Any]:
    if not 0 < int(groups["number"]) <= len(project.things):
        raise refused(404, "Not Found")
    return project.things[int(groups["number"]) - 1]


def _pull_of(project: GitHubProject, groups: Mapping[str, str]) -> dict[str, Any]:
    one = _thing(project, groups)
    if "pull_request" not in one:
        raise refused(404, "Not Found")
    return one


def _get_pull(project: GitHubProject, call: Call, groups: Mapping[str, str]) -> Any:
    one = _shown(project, _pull_of(project, groups))
    if call.headers.get("accept") != "application/vnd.github.diff":
        return one
    common = project.bare.git("merge-base", one["head"]["sha"], one["base"]["sha"])
    return 200, project.bare.git("diff-tree", "-r", "-p", common, one["head"]["sha"]) + "\n", {}


def _patch_pull(project: GitHubProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "title", "body", "state", "base", "maintainer_can_modify")
    one = _pull_of(project, groups)
    one |= {key: call.body[key] for key in ("title", "body", "state") if key in call.body}
    one["updated_at"] = stamp()
    return _shown(project, one)


def _ask_reviewers(project: GitHubProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "reviewers", "team_reviewers")
    one = _pull_of(project, groups)
    for name in [*call.body.get("reviewers", []), *call.body.get("team_reviewers", [])]:
        if name == BOT:
            raise invalid(message="Review cannot be requested from pull request author.")
        if name not in project.roles and name != "core":
            raise invalid(message="Reviews may only be requested from collaborators.")
    for name in call.body.get("reviewers", []):
        if {"login": name} not in one["requested_reviewers"]:
            one["requested_reviewers"].append({"login": name})
    return 201, one, {}


def _put_labels_on(project: GitHubProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "labels")
    one = _thing(project, groups)
    if project.young:
        project.young -= 1
        raise refused(404, "Not Found")
    for name in call.body["labels"]:
        if {"name": name} not in one["labels"]:
            one["labels"].append({"name": name})
            project.labelled(one["number"], name, BOT)
    return one["labels"]


def _assign(project: GitHubProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "assignees")
    one = _thing(project, groups)
    for name in call.body["assignees"]:
        if project.roles.get(name) in {"write", "admin", "triage"} and project.person(name) not in one["assignees"]:
            one["assignees"].append(project.person(name))
    return 201, one, {}


def _tagged(call: Call, answer: tuple[int, list[Any], dict[str, str]]) -> Any:
    """With a weak ETag of what is shown, as GitHub gives it."""
    status, items, headers = answer
    etag = f'W/"{hashlib.sha256(json.dumps(items, sort_keys=True).encode()).hexdigest()}"'
    if call.headers.get("if-none-match") == etag:
        raise Fail(304, "", {"ETag": etag})
    return status, items, {**headers, "ETag": etag}


def _ordered(items: list[dict[str, Any]], call: Call) -> list[dict[str, Any]]:
    key = {"updated": "updated_at"}.get(call.query.get("sort", ""), "created_at")
    since = call.query.get("since", "")
    return sorted(
        (one for one in items if one["updated_at"] >= since),
        key=lambda one: (one[key], one["id"]),
        reverse=call.query.get("direction", "desc") == "desc",
    )


def _list_issues(project: GitHubProject, call: Call, _groups: Mapping[str, str]) -> Any:
    only(call.query, "state", "since", "sort", "direction", "labels", "per_page", "page")
    found = [one for one in project.things if call.query.get("state", "open") in {"all", one["state"]}]
    return _tagged(call, page(_ordered(found, call), call, "http://forge/api", "per_page"))


def _all_comments(project: GitHubProject, call: Call, _groups: Mapping[str, str]) -> Any:
    only(call.query, "since", "sort", "direction", "per_page", "page")
    return _tagged(call, page(_ordered(project.comments, call), call, "http://forge/api", "per_page"))


def _comments(project: GitHubProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.query, "since", "per_page", "page")
    _thing(project, groups)
    found = [one for one in project.comments if one["issue_url"].endswith(f"/{groups['number']}")]
    return page(found, call, "http://forge/api", "per_page")


def _get_issue(project: GitHubProject, _call: Call, groups: Mapping[str, str]) -> Any:
    count = sum(one["issue_url"].endswith(f"/{groups['number']}") for one in project.comments)
    return {**_thing(project, groups), "comments": count}


def _comment(project: GitHubProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "body")
    _thing(project, groups)
    return 201, project.say(int(groups["number"]), call.body["body"], author=BOT), {}


def _rewrite(project: GitHubProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "body")
    for one in project.comments:
        if one["id"] == int(groups["comment"]):
            one |= {"body": call.body["body"], "updated_at": stamp()}
            return one
    raise refused(404, "Not Found")


def _permission(project: GitHubProject, _call: Call, groups: Mapping[str, str]) -> Any:
    login = unquote(groups["login"])
    role = project.roles.get(login)
    if role is None:
        raise refused(404, f"{login} is not a user")
    coarse = {"triage": "read", "maintain": "write"}.get(role, role)
    coarse = coarse if coarse in {"admin", "write", "read", "none"} else "read"
    return {"permission": coarse, "role_name": role, "user": {"login": login}}


def _set_status(project: GitHubProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "state", "context", "description", "target_url")
    if call.body.get("state") not in {"pending", "success", "error", "failure"}:
        raise invalid({"resource": "Status", "field": "state", "code": "custom"})
    if len(call.body.get("description", "")) > 140:
        raise invalid({"resource": "Status", "field": "description", "code": "custom", "message": "is too long"})
    project.statuses.setdefault(groups["sha"], []).append(dict(call.body))
    return 201, call.body, {}


def _combined(project: GitHubProject, _call: Call, groups: Mapping[str, str]) -> Any:
    newest = {one["context"]: one for one in project.statuses.get(groups["sha"], [])}
    return {"sha": groups["sha"], "state": "pending", "statuses": list(newest.values()), "total_count": len(newest)}


def _check_runs(project: GitHubProject, _call: Call, groups: Mapping[str, str]) -> Any:
    if project.no_checks:
        raise refused(403, "Resource not accessible by personal access token")
    found = project.runs.get(groups["sha"], [])
    return {"total_count": len(found), "check_runs": found}


def _workflow_runs(project: GitHubProject, call: Call, _groups: Mapping[str, str]) -> Any:
    found = project.runs.get(call.query.get("head_sha", ""), [])
    return {"total_count": len(found), "workflow_runs": found}


def _listed(name: str) -> Any:
    """A route that lists what lies under a number."""
    return lambda project, call, groups: page(
        getattr(project, name).get(int(groups["number"]), []), call, "http://forge/api", "per_page"
    )


def limited(seconds: int | None = None, remaining: int | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """Body and headers of a refusal for the pace: secondary with a Retry-After or without, or the hour is used up."""
    headers = {} if seconds is None else {"retry-after": str(seconds)}
    if remaining is not None:
        headers |= {"x-ratelimit-remaining": str(remaining), "x-ratelimit-reset": str(int(time.time()) + 900)}
    words = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
    return {"message": words, "documentation_url": _DOCS}, headers


_ROUTES = {
    "GET /v3/user": _user,
    "POST /graphql": _graphql,
    f"GET {_PROJECT}": _repository,
    f"GET {_PROJECT}/rules/branches/(?P<branch>[^/]+)": _rules,
    f"GET {_PROJECT}/git/ref/heads%2F(?P<branch>.+)": _ref,
    f"GET {_PROJECT}/pulls": _list_pulls,
    f"POST {_PROJECT}/pulls": _create_pull,
    f"GET {_PROJECT}/pulls/{_NUMBER}": _get_pull,
    f"PATCH {_PROJECT}/pulls/{_NUMBER}": _patch_pull,
    f"POST {_PROJECT}/pulls/{_NUMBER}/requested_reviewers": _ask_reviewers,
    f"GET {_PROJECT}/pulls/{_NUMBER}/reviews": _listed("reviews"),
    f"GET {_PROJECT}/pulls/{_NUMBER}/comments": _listed("review_comments"),
    f"GET {_PROJECT}/issues": _list_issues,
    f"GET {_PROJECT}/issues/comments": _all_comments,
    f"PATCH {_PROJECT}/issues/comments/(?P<comment>\\d+)": _rewrite,
    f"GET {_PROJECT}/issues/{_NUMBER}": _get_issue,
    f"POST {_PROJECT}/issues/{_NUMBER}/labels": _put_labels_on,
    f"POST {_PROJECT}/issues/{_NUMBER}/assignees": _assign,
    f"GET {_PROJECT}/issues/{_NUMBER}/comments": _comments,
    f"POST {_PROJECT}/issues/{_NUMBER}/comments": _comment,
    f"GET {_PROJECT}/issues/{_NUMBER}/events": _listed("events"),
    f"GET {_PROJECT}/collaborators/(?P<login>[^/]+)/permission": _permission,
    f"POST {_PROJECT}/statuses/(?P<sha>[0-9a-f]+)": _set_status,
    f"GET {_PROJECT}/commits/(?P<sha>[0-9a-f]+)/status": _combined,
    f"GET {_PROJECT}/commits/(?P<sha>[0-9a-f]+)/check-runs": _check_runs,
    f"GET {_PROJECT}/actions/runs": _workflow_runs,
}
