"""Runs in myworld's own environment: the GitHub replica, whose branches are those of bare repositories on this disk.

The replica makes commits of its own and knows no git. Before each call what the bare repository holds is told to it,
so that it speaks of the commits that were really pushed. It leaves out ``head.repo``, which GitHub's API always gives;
that is added. All else is the replica's own.

    python replica_child.py PORT FOLDER     FOLDER/OWNER/NAME.git are the repositories
    POST /new {"name": "OWNER/NAME", "private": true}    -> {"token": ..., "instance": ...}
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import uvicorn
from myworld.host import Host, HostConfig, create_app
from myworld.services.github.model import _pushed, _put_blob
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

PORT, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
VIEWER = "swarm-bot"
USERS = [{"login": name} for name in (VIEWER, "ann", "bob")]

host = Host(HostConfig(speed=1.0))
app = create_app(host)
names: dict[str, str] = {}


def git(name: str, *args: str) -> str:
    """Git on one of the repositories."""
    return subprocess.run(
        ["git", f"--git-dir={FOLDER / name}.git", *args], check=True, capture_output=True, text=True
    ).stdout


def follow(instance: Any, name: str) -> None:
    """Tells the replica where the branches are."""
    repo = instance.state["repos"][name]
    lines = git(name, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads").splitlines()
    heads = dict(line.split(" ") for line in lines)
    if repo["branches"] == heads:
        return
    moved = {branch: head for branch, head in heads.items() if repo["branches"].get(branch) != head}
    for commit in git(name, "rev-list", "--reverse", *heads.values()).split():
        if commit not in repo["commits"]:
            repo["commits"][commit] = described(instance, name, commit)
    repo["branches"] = heads
    for head in moved.values():
        _pushed(instance, repo, head)


def described(instance: Any, name: str, commit: str) -> dict[str, Any]:
    """A commit as the replica keeps it."""
    tree = {}
    for line in git(name, "ls-tree", "-r", commit).splitlines():
        head, path = line.split("\t")
        tree[path] = _put_blob(instance.state, git(name, "cat-file", "blob", head.split()[2]))
    parents, date, message = git(name, "show", "-s", "--format=%P%n%aI%n%B", commit).split("\n", 2)
    author = {"name": VIEWER, "email": "a@b", "date": date, "login": VIEWER}
    return {"sha": commit, "message": message, "tree": tree, "parents": parents.split(), "author": author}


def with_repo(value: Any, name: str) -> Any:
    """Adds what GitHub says of the branches' repository."""
    for one in value if isinstance(value, list) else [value]:
        for side in ("head", "base"):
            if isinstance(one, dict) and isinstance(one.get(side), dict) and "label" in one[side]:
                one[side].setdefault("repo", {"full_name": name})
    return value


@app.post("/new")
async def new(request: Request) -> Response:
    """A replica with one repository, which the caller has made on disk."""
    wanted = await request.json()
    name = wanted["name"]
    seed = {"viewer": VIEWER, "users": USERS, "repos": [{"name": name, "private": wanted["private"]}]}
    instance = host.create("github", seed)
    with instance.lock:
        instance.state["repos"][name]["branches"], instance.state["repos"][name]["commits"] = {}, {}
    token = host.credentials(f"http://127.0.0.1:{PORT}", instance=instance)["github_token"]
    names[token] = name
    return JSONResponse({"token": token, "instance": instance.id})


@app.middleware("http")
async def joined(request: Request, call_next: Any) -> Response:
    """Follows the repository before a call, and completes the answer."""
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    name = names.get(token)
    if name is None or not request.url.path.startswith("/gw/"):
        return await call_next(request)
    instance = next(one for one in host.instances.values() if name in one.state["repos"])
    with instance.lock:
        follow(instance, name)
    answer = await call_next(request)
    body = b"".join([chunk async for chunk in answer.body_iterator])
    headers = {key: value for key, value in answer.headers.items() if key != "content-length"}
    if "/pulls" in request.url.path and "json" in headers.get("content-type", ""):
        body = json.dumps(with_repo(json.loads(body), name)).encode()
    return Response(body, answer.status_code, headers)


uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
