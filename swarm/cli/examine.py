"""What `swarm doctor` looks at, one function a subject: facts are gathered here, and judged by the pure `judge_*`."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shutil
import stat
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from sandbox.factory import choose_backend

from pool.config import EmbeddedConfig
from pool.embedded import FETCH, INSTALL, find_weights
from pool.errors import EmbeddedError
from sandbox.errors import SandboxError
from swarm.cli.clean import one_line
from swarm.cli.probe import examine
from swarm.client import DaemonClient
from swarm.config import Settings
from swarm.delivery import BrokerClient
from swarm.errors import BrokerError, DaemonError
from swarm.types import DaemonStatus, EndpointView, Frozen, SandboxView

GIB = 1024**3
GIT = (2, 30)  # Debian 11's; older ones lack index-pack and rev-list options that the workspace uses
DOCKER = Path("/var/run/docker.sock")
Level = Literal["ok", "warn", "fail"]


class Finding(Frozen):
    """One line of the doctor's report."""

    subject: str
    level: Level
    text: str
    mend: str = ""


def python() -> Finding:
    """The interpreter that runs this."""
    return Finding(subject="python", level="ok", text=".".join(map(str, sys.version_info[:3])))


async def git() -> Finding:
    """The git on PATH."""
    try:
        process = await asyncio.create_subprocess_exec("git", "--version", stdout=asyncio.subprocess.PIPE)
    except OSError as error:
        return Finding(subject="git", level="fail", text=f"cannot be run: {error.strerror}", mend="install git")
    out, _ = await process.communicate()
    return judge_git(out.decode("utf-8", "replace"))


def judge_git(said: str) -> Finding:
    """What ``git --version`` said."""
    found = re.search(r"(\d+)\.(\d+)[.\w]*", said)
    if not found:
        return Finding(
            subject="git", level="warn", text=f"says no version: {one_line(said)}", mend="install git 2.30 or later"
        )
    old = (int(found[1]), int(found[2])) < GIT
    mend = "install git 2.30 or later" if old else ""
    return Finding(subject="git", level="warn" if old else "ok", text=found[0], mend=mend)


def disk(state: Path) -> Finding:
    """Room where the state lives, or will live."""
    folder = next(place for place in (state, *state.parents) if _visible(place))
    return judge_disk(shutil.disk_usage(folder).free, folder)


def judge_disk(free: int, folder: Path) -> Finding:
    """Whether that many free bytes do; a run takes some hundred megabytes."""
    level: Level = "fail" if free < GIB // 2 else "warn" if free < 5 * GIB else "ok"
    mend = "" if level == "ok" else "free some, or set daemon.state to a folder on another disk"
    return Finding(subject="disk", level=level, text=f"{free / GIB:.1f} GiB free at {folder}", mend=mend)


async def daemon(settings: Settings) -> tuple[Finding, DaemonStatus | None]:
    """Whether the daemon answers, and what it says."""
    try:
        async with DaemonClient(settings.daemon.socket, timeout=10.0) as client:
            status = await client.status()
    except DaemonError as error:
        return Finding(subject="daemon", level="fail", text=str(error), mend=error.mend), None
    health = status.health
    text = f"version {health.version}, pid {health.pid}, {_user(health.uid)}"
    if health.draining:
        return Finding(
            subject="daemon", level="warn", text=f"{text}, draining", mend="wait, then start it again"
        ), status
    return Finding(subject="daemon", level="ok", text=text), status


async def broker(settings: Settings, daemon_uid: int | None) -> list[Finding]:
    """Whether the broker answers, as whom, and what it takes us for."""
    try:
        async with BrokerClient(settings.broker.socket, patience=0.0, timeout=10.0) as client:
            health = await client.health()
            names = [known.name for known in (await client.repositories()).repositories]
    except BrokerError as error:
        return [Finding(subject="broker", level="fail", text=str(error), mend=error.mend)]
    text = f"{_user(health.uid)}, takes you for: {', '.join(health.role) or 'nobody'}, knows {len(names)} repositories"
    return [
        Finding(subject="broker", level="ok", text=text),
        judge_users(health.uid, daemon_uid),
        *judge_names(names, tuple(settings.repositories)),
    ]


def judge_users(broker_uid: int, daemon_uid: int | None) -> Finding:
    """The broker's key is only safe from the daemon when another user holds it."""
    other = os.geteuid() if daemon_uid is None else daemon_uid
    whose = "you" if daemon_uid is None else "the daemon"
    if other == broker_uid:
        mend = "run the broker as a user of its own: useradd --system swarm-broker"
        return Finding(subject="users", level="warn", text=f"the broker runs as the same user as {whose}", mend=mend)
    if other == 0:
        mend = "run the daemon as a user of its own: useradd --system swarm"
        return Finding(
            subject="users", level="warn", text=f"{whose} run as root, which reads the broker's key", mend=mend
        )
    return Finding(subject="users", level="ok", text=f"the broker runs as another user than {whose}")


def judge_names(known: Sequence[str], configured: Sequence[str]) -> list[Finding]:
    """Repositories that the settings speak of and the broker does not know."""
    missing = [name for name in configured if name not in known]
    if not missing:
        return []
    text = f"the broker does not know {', '.join(missing)}"
    mend = f"add them to broker.toml, or correct the names; it knows: {', '.join(known) or 'none'}"
    return [Finding(subject="repositories", level="warn", text=text, mend=mend)]


def docker_socket(daemon_uid: int, path: Path = DOCKER) -> Finding | None:
    """Whether the daemon can command a Docker engine that runs as root, and through it read any file here."""
    try:
        there = path.stat()
        user = pwd.getpwuid(daemon_uid)
    except (OSError, KeyError):
        return None
    if there.st_uid != 0 or not may_write(there, daemon_uid, os.getgrouplist(user.pw_name, user.pw_gid)):
        return None
    text = f"the daemon can command the root Docker engine at {path}, which can read the broker's key"
    mend = (
        "run a rootless engine for the daemon, or the broker on another host, or take the user out of the group docker"
    )
    return Finding(subject="docker", level="warn", text=text, mend=mend)


def may_write(there: os.stat_result, uid: int, groups: Sequence[int]) -> bool:
    """Whether a user may write to a file, by its mode."""
    if uid == 0:
        return True
    if there.st_uid == uid:
        return bool(there.st_mode & stat.S_IWUSR)
    return bool(there.st_mode & (stat.S_IWGRP if there.st_gid in groups else stat.S_IWOTH))


async def endpoints(settings: Settings, status: DaemonStatus | None) -> list[Finding]:
    """Each model server, as the daemon sees it where it answers, else as it looks from here."""
    if status is not None:
        return judge_endpoints(status.endpoints)
    pool = settings.pool
    keys = {e.url: e.api_key.get_secret_value() if e.api_key else None for e in pool.endpoints}
    said = {answer.url: answer for answer in await examine(keys)}
    seen = [
        EndpointView(name=e.name, tier=e.tier, url=e.url, up=not said[e.url].trouble, detail=said[e.url].trouble)
        for e in pool.endpoints
    ]
    return [*judge_endpoints(seen), *([embedded(pool.embedded)] if pool.embedded.enabled else [])]


def judge_endpoints(seen: Sequence[EndpointView]) -> list[Finding]:
    """A server that is down is a warning while another of its tier is up, and a fault when none is."""
    alive = {view.tier for view in seen if view.up}
    found: list[Finding] = []
    for view in seen:
        text = f"tier {view.tier}, {view.url}: " + one_line(view.detail or ("up" if view.up else "down"), 200)
        level: Level = "ok" if view.up else "warn" if view.tier in alive else "fail"
        mend = "" if view.up else "start it, or correct its url in swarm.toml; swarm init finds servers on this machine"
        found.append(Finding(subject=f"endpoint {view.name}", level=level, text=text, mend=mend))
    return found


def embedded(config: EmbeddedConfig) -> Finding:
    """Whether the embedded model can be served: its server and its weights are here. The daemon starts it."""
    subject = "embedded model"
    if find_spec("xllamacpp") is None:
        return Finding(subject=subject, level="fail", text="its server, xllamacpp, is not installed", mend=INSTALL)
    try:
        weights = find_weights(config, os.environ)
    except EmbeddedError as error:
        return Finding(subject=subject, level="fail", text=str(error), mend=FETCH)
    return Finding(subject=subject, level="ok", text=f"its server is installed, its weights are {weights}")


async def sandbox(settings: Settings, status: DaemonStatus | None) -> Finding:
    """The sandbox that the daemon proved, or else the one that can be proved from here."""
    if status is not None and status.sandbox is not None:
        return judge_sandbox(status.sandbox)
    try:
        backend = await choose_backend(settings.sandbox, state=settings.daemon.state)
        test = await backend.self_test()
    except SandboxError as error:
        mend = "install Docker or bubblewrap, then: swarm doctor"
        return Finding(subject="sandbox", level="fail", text=str(error), mend=mend)
    seen = SandboxView(backend=test.backend, version=test.version, proved=test.proved, failed=test.failed)
    return judge_sandbox(seen, f" (as {_user(os.geteuid())})")


def judge_sandbox(view: SandboxView, whose: str = "") -> Finding:
    """A backend that does not keep every claim is not used."""
    text = f"{view.backend} {view.version}, {len(view.proved)} claims proved{whose}"
    if view.failed:
        mend = "sandboxes stay closed until these hold; see docs on the sandbox"
        return Finding(subject="sandbox", level="fail", text=f"{text}, not kept: {', '.join(view.failed)}", mend=mend)
    return Finding(subject="sandbox", level="ok", text=text)


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid {uid}"


def _visible(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError:
        return False
