"""What the stand-ins of forges share: a loopback HTTP server with git-http-backend inside, faults on demand, a log.

A stand-in is stateful and strict: an unknown route, parameter or credential is refused. One server a test session and
kind; every test has a project of its own on it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.forges.bare import Bare

TOKEN = "canary-5b20-forge-token"
BASE_FILES = {"a.txt": "one\n", "b.txt": "two\n"}
_GIT = re.compile(r"/(?P<project>[^?]+)\.git(?P<rest>/(?:info/refs|git-upload-pack|git-receive-pack))")


class Fail(Exception):  # noqa: N818 - an answer, not an error of the test
    """An answer that is not the usual one."""

    def __init__(self, status: int, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, dict(headers or {})


@dataclass(frozen=True)
class Fault:
    """What goes wrong once: before the call does anything, or ``after`` it has done everything (a lost answer)."""

    method: str
    path: str  # a pattern that is searched for in the path
    status: int
    body: Any = None
    after: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One call of the API, as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    headers: Mapping[str, str]


@dataclass
class Project:
    """One repository of a stand-in, with whatever the kind keeps beside it in its own subclass."""

    path: str
    bare: Bare
    base: str
    id: int
    private: bool = True
    faults: list[Fault] = field(default_factory=list)
    push_faults: list[int] = field(default_factory=list)  # statuses of git's next pushes
    calls: list[Call] = field(default_factory=list)

    def written(self) -> list[Call]:
        """The calls that were to change something."""
        return [call for call in self.calls if call.method != "GET"]


Handler = Callable[[Any, Call, dict[str, str]], Any]
P = TypeVar("P", bound=Project)
S = TypeVar("S", bound="StandIn[Any]")


class StandIn(Generic[P]):
    """A forge of one kind. ``routes`` maps "METHOD pattern" to a handler of (project, call, pattern's groups)."""

    def __init__(self, folder: Path, make: Callable[..., P], routes: Mapping[str, Handler], api: str) -> None:
        self.folder, self._make, self._api = folder, make, api
        self._routes = [
            (key.split(" ", 1)[0], re.compile(key.split(" ", 1)[1] + r"\Z"), route) for key, route in routes.items()
        ]
        self.projects: dict[str, P] = {}
        self.port = 0
        self._lock = threading.Lock()
        self._template = Bare.create(folder / "template.git")
        self._base = self._template.commit(BASE_FILES, branch="main")

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def project(self, group: str = "team") -> P:
        """A new project with a main branch of one commit."""
        path = f"{group}/web-{secrets.token_hex(4)}"
        folder = self.folder / "srv" / f"{path}.git"
        shutil.copytree(self._template.path, folder)
        self.projects[path] = self._make(path=path, bare=Bare(folder), base=self._base, id=len(self.projects) + 7)
        return self.projects[path]

    def app(self) -> Starlette:
        """What uvicorn serves."""
        every = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        return Starlette(routes=[Route("/{rest:path}", self._answer, methods=every)])

    async def _answer(self, request: Request) -> Response:
        body = await request.body()
        raw = request.scope["raw_path"].decode().partition("?")[0]
        if git := _GIT.fullmatch(raw):
            return await asyncio.to_thread(self._git, request, git["project"], git["rest"], body)
        return await asyncio.to_thread(self._call, request, raw, body)

    def _call(self, request: Request, raw: str, body: bytes) -> Response:
        try:
            call = _read(request, raw, self._api, body)
            with self._lock:
                return self._routed(call)
        except Fail as fail:
            return _response(fail.status, fail.body, fail.headers)

    def _routed(self, call: Call) -> Response:
        for method, pattern, handler in self._routes:
            if method == call.method and (found := pattern.match(call.path)):
                return self._handled(handler, call, found.groupdict())
        raise Fail(404, {"message": f"the stand-in has no {call.method} {call.path}"})

    def _handled(self, handler: Handler, call: Call, groups: dict[str, str]) -> Response:
        project = self.find(groups.pop("project")) if "project" in groups else None
        self.admit(call, project)
        if project is not None:
            project.calls.append(call)
        fault = _due(project.faults, call) if project is not None else None
        if fault and not fault.after:
            raise Fail(fault.status, fault.body, fault.headers)
        answer = handler(project if project is not None else self, call, groups)
        if fault:
            raise Fail(fault.status, fault.body, fault.headers)
        status, data, headers = answer if isinstance(answer, tuple) else (200, answer, {})
        return _response(status, data, headers)

    def find(self, name: str) -> P:
        """The project that a path names."""
        if name not in self.projects:
            raise Fail(404, {"message": "404 Project Not Found"})
        return self.projects[name]

    def admit(self, call: Call, project: P | None) -> None:
        """Refuses who has not the token."""
        raise NotImplementedError

    def admits_git(self, password: str, *, writes: bool) -> bool:
        """Whether git is served to who has this password."""
        return password == TOKEN

    def _git(self, request: Request, name: str, rest: str, body: bytes) -> Response:
        user, _, password = _basic(request.headers.get("authorization", "")).partition(":")
        writes = "git-receive-pack" in (request.url.query + rest)
        if name not in self.projects or not self.admits_git(password, writes=writes):
            return Response("no", 401, {"WWW-Authenticate": 'Basic realm="git"'})
        if writes and self.projects[name].push_faults:
            return Response("slow down", self.projects[name].push_faults.pop(0))
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.folder / "srv"),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": request.method,
            "PATH_INFO": f"/{name}.git{rest}",
            "QUERY_STRING": request.url.query,
            "CONTENT_TYPE": request.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
            "REMOTE_USER": user,
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=env, capture_output=True, check=False, timeout=60
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        status = int(headers.pop("Status", "200").split(" ")[0])
        return Response(content, status, headers)


def _read(request: Request, raw: str, api: str, body: bytes) -> Call:
    if not raw.startswith(api):
        raise Fail(404, {"message": "404 Not Found"})
    path = raw.removeprefix(api)
    query = {key: request.query_params[key] for key in request.query_params}
    headers = {key.lower(): value for key, value in request.headers.items()}
    if not body:
        return Call(request.method, path, query, {}, headers)
    if not headers.get("content-type", "").startswith("application/json"):
        raise Fail(415, {"error": "the content-type is not supported"})
    return Call(request.method, path, query, json.loads(body), headers)


def _due(faults: list[Fault], call: Call) -> Fault | None:
    for fault in faults:
        if fault.method == call.method and re.search(fault.path, call.path):
            faults.remove(fault)
            return fault
    return None


def _response(status: int, data: Any, headers: Mapping[str, str]) -> Response:
    if isinstance(data, str | bytes):
        return Response(data, status, dict(headers), media_type="text/plain")
    return JSONResponse(data, status, dict(headers)) if status != 204 else Response(status_code=204)


def _basic(header: str) -> str:
    try:
        return base64.b64decode(header.removeprefix("Basic "), validate=True).decode()
    except ValueError:
        return ""


def only(given: Mapping[str, Any], *known: str) -> None:
    """Refuses a parameter that the forge does not know: the real ones would drop it without a word."""
    if unknown := set(given) - set(known):
        raise Fail(400, {"error": f"the stand-in knows no parameter {', '.join(sorted(unknown))}"})


def page(items: list[Any], call: Call, url: str, size: str) -> tuple[int, list[Any], dict[str, str]]:
    """One page of a list with a Link header, as all three forges give it; ``size`` names the size's parameter."""
    length, number = min(int(call.query.get(size, "20")), 100), int(call.query.get("page", "1"))
    headers = {"X-Total-Count": str(len(items)), "X-Total": str(len(items))}
    if number * length < len(items):
        query = "&".join(f"{key}={value}" for key, value in {**call.query, "page": str(number + 1)}.items())
        headers["Link"] = f'<{url}{call.path}?{query}>; rel="next"'
    return 200, items[(number - 1) * length : number * length], headers


def stamp() -> str:
    """Now, as forges write it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@contextmanager
def serving(stand_in: S) -> Iterator[S]:
    """Serves a stand-in from a thread until the end of the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    stand_in.port = listener.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(stand_in.app(), log_level="warning", ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
