"""A stand-in for GitLab, written from its public documentation: merge requests, notes, labels, members, statuses.

It does what makes GitLab dangerous: quick actions in a description or note are executed with the token's rights, a
missing target branch is accepted (work item 591660), an unknown label is created, a second merge request is a 409.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.forges.stand_in import TOKEN, Call, Fail, Project, StandIn, only, page, stamp

BOT = {"id": 1, "username": "swarm-bot", "name": "Bot", "state": "active"}
_ACTIONS = "merge|approve|close|reopen|label|assign|unassign|assign_reviewer|target_branch|draft|ready|title|lock|done"
_QUICK = re.compile(rf"^/(?P<name>{_ACTIONS})(?:[ ]+(?P<value>[^\n]*))?$\n?", re.MULTILINE | re.IGNORECASE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_PROJECT = r"/projects/(?P<project>[^/]+)"


@dataclass
class GitLabProject(Project):
    """One project; users and members belong to the installation, but a test needs them here alone."""

    merges: list[dict[str, Any]] = field(default_factory=list)
    issues: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)
    labels: list[str] = field(default_factory=lambda: ["agent", "bug"])
    label_events: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=lambda: {"swarm-bot": 1, "ann": 21, "bob": 22, "eve": 23})
    levels: dict[int, int] = field(default_factory=lambda: {1: 30, 21: 40, 22: 30, 23: 10})
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    actions: list[tuple[str, str]] = field(default_factory=list)
    approvals: dict[int, list[str]] = field(default_factory=dict)

    def issue(self, title: str, description: str, author: str = "ann", labels: tuple[str, ...] = ()) -> dict[str, Any]:
        """An issue that somebody opened."""
        one = {
            "iid": len(self.issues) + 1,
            "title": title,
            "description": description,
            "state": "opened",
            "labels": list(labels),
            "author": self.user(author),
            "web_url": f"http://forge/{self.path}/-/issues/{len(self.issues) + 1}",
            "created_at": stamp(),
            "updated_at": stamp(),
        }
        self.issues.append(one)
        return one

    def user(self, name: str) -> dict[str, Any]:
        """As the API shows somebody."""
        return {"id": self.users[name], "username": name, "name": name.title(), "state": "active"}

    def say(self, kind: str, iid: int, body: str, author: str = "ann", **more: Any) -> dict[str, Any]:
        """A note by somebody on ``issues`` or ``merge_requests``; nothing in it is executed."""
        notes = self.notes.setdefault((kind, iid), [])
        number = 100 + sum(len(each) for each in self.notes.values())
        one = {
            "id": number,
            "body": body,
            "author": self.user(author),
            "system": False,
            "created_at": stamp(),
            "updated_at": stamp(),
            "noteable_iid": iid,
            **more,
        }
        notes.append(one)
        for thing in self.issues if kind == "issues" else self.merges:
            if thing["iid"] == iid:
                thing["updated_at"] = one["updated_at"]
        return one

    def obey(self, text: str, merge: dict[str, Any] | None) -> str:
        """What is left of a text after its quick actions were executed; code blocks are not looked into."""
        spared = _FENCE.sub(lambda found: "\0" * len(found[0]), text)
        for found in _QUICK.finditer(spared):
            self.actions.append((found["name"].lower(), (found["value"] or "").strip()))
            if merge is not None and found["name"].lower() == "merge":
                merge["state"] = "merged"
            elif merge is not None and found["name"].lower() == "close":
                merge["state"] = "closed"
        kept = [text[: found.start()] for found in _QUICK.finditer(spared)]
        return text if not kept else _QUICK.sub("", text)


class GitLabStandIn(StandIn[GitLabProject]):
    """The forge. Its API is below /api/v4."""

    def __init__(self, folder: Any) -> None:
        super().__init__(folder, GitLabProject, _ROUTES, "/api/v4")

    def find(self, name: str) -> GitLabProject:
        """By URL-encoded path, sub-groups too, or by number."""
        by_number = {str(one.id): one for one in self.projects.values()}
        return by_number[name] if name in by_number else super().find(unquote(name))

    def admit(self, call: Call, project: GitLabProject | None) -> None:
        """By PRIVATE-TOKEN alone."""
        if call.headers.get("private-token") != TOKEN:
            raise Fail(401, {"message": "401 Unauthorized"})


def _project(project: GitLabProject, call: Call, _groups: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": project.id,
        "path_with_namespace": project.path,
        "visibility": "private" if project.private else "public",
        "default_branch": "main",
        "archived": False,
        "permissions": {"project_access": {"access_level": 30}, "group_access": None},
    }


def _branch(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> dict[str, Any]:
    head = project.bare.head(unquote(groups["branch"]))
    if head is None:
        raise Fail(404, {"message": "404 Branch Not Found"})
    return {"name": unquote(groups["branch"]), "commit": {"id": head}, "protected": False, "can_push": True}


def _shown(project: GitLabProject, merge: dict[str, Any]) -> dict[str, Any]:
    if merge["state"] == "opened":
        merge["sha"] = project.bare.head(merge["source_branch"]) or merge["sha"]
    title = merge["title"].lower()
    draft = title.startswith(("draft:", "[draft]", "(draft)"))
    base = project.bare.head(merge["target_branch"])
    common = project.bare.common(merge["sha"], base) if base else None
    refs = {"base_sha": common, "start_sha": base, "head_sha": merge["sha"]}
    return {**merge, "draft": draft, "work_in_progress": draft, "diff_refs": refs}


def _list_merges(project: GitLabProject, call: Call, _groups: Mapping[str, str]) -> Any:
    only(call.query, "state", "source_branch", "target_branch", "order_by", "sort", "per_page", "page", "author_id",
         "author_username", "scope", "updated_after", "updated_before", "labels")  # fmt: skip
    found = [
        _shown(project, one)
        for one in reversed(project.merges)
        if call.query.get("state", "all") in {"all", one["state"]}
        and call.query.get("source_branch", one["source_branch"]) == one["source_branch"]
        and call.query.get("target_branch", one["target_branch"]) == one["target_branch"]
        and call.query.get("author_username", one["author"]["username"]) == one["author"]["username"]
        and int(call.query.get("author_id", one["author"]["id"])) == one["author"]["id"]
        and _in_span(one, call)
    ]
    return page(found, call, "http://forge/api/v4", "per_page")


def _create_merge(project: GitLabProject, call: Call, _groups: Mapping[str, str]) -> Any:
    given = call.body
    only(given, "source_branch", "target_branch", "title", "description", "labels", "reviewer_ids", "assignee_ids",
         "remove_source_branch", "squash", "allow_collaboration", "target_project_id", "milestone_id")  # fmt: skip
    if missing := [name for name in ("source_branch", "target_branch", "title") if not given.get(name)]:
        raise Fail(400, {"error": ", ".join(f"{name} is missing" for name in missing)})
    if len(given["title"]) > 255:
        raise Fail(400, {"message": {"title": ["is too long (maximum is 255 characters)"]}})
    if len(given.get("description", "")) > 1_048_576:
        raise Fail(400, {"message": {"description": ["is too long (maximum is 1048576 characters)"]}})
    head = project.bare.head(given["source_branch"])
    if head is None:
        raise Fail(400, {"message": {"source_branch": ["does not exist"]}})
    if given["source_branch"] == given["target_branch"]:
        raise Fail(422, {"message": ["You can't use same project/branch for source and target"]})
    for one in project.merges:
        same = (one["source_branch"], one["target_branch"]) == (given["source_branch"], given["target_branch"])
        if one["state"] == "opened" and same:
            words = f"Another open merge request already exists for this source branch: !{one['iid']}"
            raise Fail(409, {"message": [words]})
    merge = _new_merge(project, given, head)
    project.merges.append(merge)  # a target branch that is not there is accepted
    merge["description"] = project.obey(merge["description"], merge)
    return 201, _shown(project, merge), {}


def _new_merge(project: GitLabProject, given: Mapping[str, Any], head: str) -> dict[str, Any]:
    iid = len(project.merges) + 1
    merge = {
        "id": 1000 + iid,
        "iid": iid,
        "project_id": project.id,
        "source_project_id": project.id,
        "target_project_id": project.id,
        "state": "opened",
        "source_branch": given["source_branch"],
        "target_branch": given["target_branch"],
        "title": given["title"],
        "description": given.get("description", ""),
        "labels": [],
        "reviewers": [],
        "assignees": [],
        "sha": head,
        "author": BOT,
        "web_url": f"http://forge/{project.path}/-/merge_requests/{iid}",
        "created_at": stamp(),
        "updated_at": stamp(),
        "merged_at": None,
        "merge_user": None,
        "merge_commit_sha": None,
        "squash_commit_sha": None,
        "detailed_merge_status": "mergeable",
    }
    _apply(project, merge, given)
    return merge


def _apply(project: GitLabProject, merge: dict[str, Any], given: Mapping[str, Any]) -> None:
    labels = given.get("labels", given.get("add_labels", ""))
    for label in filter(None, labels.split(",")):
        if label not in project.labels:
            project.labels.append(label)  # GitLab makes it
        if label not in merge["labels"]:
            merge["labels"].append(label)
    names = {number: name for name, number in project.users.items()}
    for key, where in (("reviewer_ids", "reviewers"), ("assignee_ids", "assignees")):
        if key in given:  # an id that may not be assigned is dropped without a word
            merge[where] = [project.user(names[number]) for number in given[key] if project.levels.get(number, 0) >= 20]


def _merge_of(project: GitLabProject, groups: Mapping[str, str]) -> dict[str, Any]:
    for one in project.merges:
        if one["iid"] == int(groups["iid"]):
            return one
    raise Fail(404, {"message": "404 Not found"})


def _get_merge(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.query, "include_diverged_commits_count", "include_rebase_in_progress", "render_html")
    return _shown(project, _merge_of(project, groups))


def _put_merge(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    given = call.body
    only(given, "title", "description", "state_event", "labels", "add_labels", "remove_labels", "reviewer_ids",
         "assignee_ids", "target_branch")  # fmt: skip
    merge = _merge_of(project, groups)
    if given.get("state_event") == "close" and merge["state"] == "opened":
        merge["state"] = "closed"
    elif "state_event" in given:
        raise Fail(422, {"message": {"state": ["cannot transition"]}})
    for key in ("title", "target_branch"):
        merge[key] = given.get(key, merge[key])
    if "description" in given:
        merge["description"] = project.obey(given["description"], merge)
    _apply(project, merge, given)
    merge["updated_at"] = stamp()
    return _shown(project, merge)


def _diff(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    merge = _shown(project, _merge_of(project, groups))
    return project.bare.git("diff-tree", "-r", "-p", merge["diff_refs"]["base_sha"], merge["sha"]) + "\n"


def _thing(project: GitLabProject, groups: Mapping[str, str]) -> dict[str, Any] | None:
    where = project.issues if groups["kind"] == "issues" else project.merges
    found = next((one for one in where if one["iid"] == int(groups["iid"])), None)
    if found is None:
        raise Fail(404, {"message": "404 Not found"})
    return found


def _list_notes(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.query, "sort", "order_by", "per_page", "page", "activity_filter")
    _thing(project, groups)
    notes = list(project.notes.get((groups["kind"], int(groups["iid"])), []))
    newest = call.query.get("sort", "desc") == "desc"
    return page(notes[::-1] if newest else notes, call, "http://forge/api/v4", "per_page")


def _add_note(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "body", "internal")
    thing = _thing(project, groups)
    if not call.body.get("body"):
        raise Fail(400, {"error": "body is missing"})
    rest = project.obey(call.body["body"], thing if groups["kind"] == "merge_requests" else None)
    if not rest.strip():
        return 202, {"commands_changes": {}, "summary": ["Executed quick actions."]}, {}
    return 201, project.say(groups["kind"], int(groups["iid"]), rest, author="swarm-bot"), {}


def _put_note(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "body")
    thing = _thing(project, groups)
    for note in project.notes.get((groups["kind"], int(groups["iid"])), []):
        if note["id"] == int(groups["note"]):
            if note["author"]["username"] != BOT["username"]:
                raise Fail(403, {"message": "403 Forbidden"})
            note["body"] = project.obey(call.body["body"], thing if groups["kind"] == "merge_requests" else None)
            return note
    raise Fail(404, {"message": "404 Note Not Found"})


def _discussions(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.query, "per_page", "page")
    notes = project.notes.get(("merge_requests", int(groups["iid"])), [])
    threads = [{"id": f"d{note['id']}", "individual_note": "position" not in note, "notes": [note]} for note in notes]
    return page(threads, call, "http://forge/api/v4", "per_page")


def _approvals(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    names = project.approvals.get(_merge_of(project, groups)["iid"], [])
    return {"approved": bool(names), "approved_by": [{"user": project.user(name)} for name in names]}


def _events(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.query, "per_page", "page")
    _thing(project, groups)
    events = project.label_events.get((groups["kind"], int(groups["iid"])), [])
    return page(events, call, "http://forge/api/v4", "per_page")


def _list_issues(project: GitLabProject, call: Call, _groups: Mapping[str, str]) -> Any:
    only(
        call.query,
        "labels",
        "state",
        "updated_after",
        "updated_before",
        "order_by",
        "sort",
        "per_page",
        "page",
        "scope",
    )
    found = [one for one in project.issues if _in_span(one, call)]
    return page(found, call, "http://forge/api/v4", "per_page")


def _in_span(one: Mapping[str, Any], call: Call) -> bool:
    return call.query.get("updated_after", "") <= one["updated_at"] <= call.query.get("updated_before", "9")


def _labels(project: GitLabProject, call: Call, _groups: Mapping[str, str]) -> Any:
    only(call.query, "search", "per_page", "page", "include_ancestor_groups")
    wanted = call.query.get("search", "").lower()
    found = [{"id": n, "name": name} for n, name in enumerate(project.labels, 1) if wanted in name.lower()]
    return page(found, call, "http://forge/api/v4", "per_page")


def _users(stand_in: GitLabStandIn, call: Call, _groups: Mapping[str, str]) -> Any:
    only(call.query, "username")
    known = {name: number for project in stand_in.projects.values() for name, number in project.users.items()}
    found = [name for name in known if name.lower() == call.query["username"].lower()]
    return [{"id": known[name], "username": name, "state": "active"} for name in found]


def _me(_stand_in: GitLabStandIn, call: Call, _groups: Mapping[str, str]) -> Any:
    return BOT


def _member(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    level = project.levels.get(int(groups["user"]))
    if level is None:
        raise Fail(404, {"message": "404 Not found"})
    return {"id": int(groups["user"]), "access_level": level, "state": "active", "membership_state": "active"}


def _set_status(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.body, "state", "name", "context", "description", "target_url", "ref")
    states = {"pending", "running", "success", "failed", "canceled", "skipped"}
    if call.body.get("state") not in states:
        raise Fail(400, {"error": "state does not have a valid value"})
    if len(call.body.get("description", "")) > 255:
        raise Fail(400, {"message": {"description": ["is too long (maximum is 255 characters)"]}})
    entries = project.statuses.setdefault(groups["sha"], [])
    name = call.body.get("name", call.body.get("context", "default"))
    same = next((one for one in entries if one["name"] == name), None)
    if same is not None and same["status"] == call.body["state"] == "pending":
        raise Fail(400, {"message": "Cannot transition status via :enqueue from :pending"})
    if same is not None:
        entries.remove(same)
    more = {"description": call.body.get("description"), "target_url": call.body.get("target_url")}
    entries.append({"name": name, "status": call.body["state"], "author": BOT, "allow_failure": False, **more})
    return 201, entries[-1], {}


def _get_statuses(project: GitLabProject, call: Call, groups: Mapping[str, str]) -> Any:
    only(call.query, "per_page", "page", "all", "ref", "name")
    found = [
        one for one in project.statuses.get(groups["sha"], []) if call.query.get("name", one["name"]) == one["name"]
    ]
    return page(found, call, "http://forge/api/v4", "per_page")


_THING = _PROJECT + r"/(?P<kind>issues|merge_requests)/(?P<iid>\d+)"
_MERGE = _PROJECT + r"/merge_requests/(?P<iid>\d+)"
_ROUTES = {
    "GET /users": _users,
    "GET /user": _me,
    f"GET {_PROJECT}": _project,
    f"GET {_PROJECT}/repository/branches/(?P<branch>[^/]+)": _branch,
    f"GET {_PROJECT}/merge_requests": _list_merges,
    f"POST {_PROJECT}/merge_requests": _create_merge,
    f"GET {_MERGE}": _get_merge,
    f"PUT {_MERGE}": _put_merge,
    f"GET {_MERGE}/raw_diffs": _diff,
    f"GET {_MERGE}/discussions": _discussions,
    f"GET {_MERGE}/approvals": _approvals,
    f"GET {_THING}/notes": _list_notes,
    f"POST {_THING}/notes": _add_note,
    f"PUT {_THING}/notes/(?P<note>\\d+)": _put_note,
    f"GET {_THING}/resource_label_events": _events,
    f"GET {_PROJECT}/issues": _list_issues,
    f"GET {_PROJECT}/issues/(?P<iid>\\d+)": lambda p, c, g: _thing(p, {**g, "kind": "issues"}),
    f"GET {_PROJECT}/labels": _labels,
    f"GET {_PROJECT}/members/all/(?P<user>\\d+)": _member,
    f"POST {_PROJECT}/statuses/(?P<sha>[0-9a-f]+)": _set_status,
    f"GET {_PROJECT}/repository/commits/(?P<sha>[0-9a-f]+)/statuses": _get_statuses,
}
