"""What `swarm doctor` looks at, one function a subject: facts are gathered here, and judged in `judge`."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import sys
from pathlib import Path

from pool.config import EmbeddedConfig
from pool.embedded import find_weights, shortage
from sandbox.errors import SandboxError
from sandbox.factory import chosen_backend
from swarm.cli import judge
from swarm.cli.judge import Finding
from swarm.cli.probe import examine
from swarm.client import DaemonClient
from swarm.config import Settings
from swarm.delivery import BrokerClient
from swarm.errors import BrokerError, DaemonError
from swarm.shown import DaemonStatus, EndpointView, SandboxView

DOCKER = Path("/var/run/docker.sock")


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
    return judge.git(out.decode("utf-8", "replace"))


def disk(state: Path) -> Finding:
    """Room where the state lives, or will live."""
    folder = next(place for place in (state, *state.parents) if _visible(place))
    return judge.disk(shutil.disk_usage(folder).free, folder)


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
            uid = settings.broker.socket.stat().st_uid  # health names the caller; whoever listens owns the socket
            names = [known.name for known in (await client.repositories()).repositories]
    except BrokerError as error:
        return [Finding(subject="broker", level="fail", text=str(error), mend=error.mend)]
    except OSError as error:
        return [Finding(subject="broker", level="fail", text=f"{settings.broker.socket}: {error.strerror}")]
    people = await _people(settings)
    text = f"runs as {_user(uid)}, takes you for: {', '.join(health.role) or 'nobody'}, knows: {', '.join(names)}"
    return [
        Finding(subject="broker", level="ok", text=text),
        *people,
        judge.users(uid, daemon_uid, os.geteuid()),
        *judge.names(names, tuple(settings.repositories)),
        *judge.untested(names, settings.repositories),
    ]


async def _people(settings: Settings) -> list[Finding]:
    """Whether tasks can be granted from here; nothing to tell if so."""
    try:
        async with BrokerClient(settings.broker.people, patience=0.0, timeout=10.0) as client:
            await client.health()
    except BrokerError as error:
        mend = f"{error.mend}; or set broker.person_socket to the person_socket of broker.toml"
        return [Finding(subject="grants", level="warn", text=f"no task can be granted from here: {error}", mend=mend)]
    return []


def docker_socket(daemon_uid: int, path: Path = DOCKER) -> Finding | None:
    """Whether the daemon can command a Docker engine that runs as root, and through it read any file here."""
    try:
        there = path.stat()
        user = pwd.getpwuid(daemon_uid)
    except (OSError, KeyError):
        return None
    if there.st_uid != 0 or not judge.may_write(there, daemon_uid, os.getgrouplist(user.pw_name, user.pw_gid)):
        return None
    text = f"the daemon can command the root Docker engine at {path}, which can read the broker's key"
    mend = (
        "run a rootless engine for the daemon, or the broker on another host, or take the user out of the group docker"
    )
    return Finding(subject="docker", level="warn", text=text, mend=mend)


async def endpoints(settings: Settings, status: DaemonStatus | None) -> list[Finding]:
    """Each model server, as the daemon sees it where it answers, else as it looks from here."""
    if status is not None:
        return judge.endpoints(status.endpoints)
    pool = settings.pool
    keys = {e.url: e.api_key.get_secret_value() if e.api_key else None for e in pool.endpoints}
    said = {answer.url: answer for answer in await examine(keys)}
    seen = [
        EndpointView(name=e.name, tier=e.tier, url=e.url, up=not said[e.url].trouble, detail=said[e.url].trouble)
        for e in pool.endpoints
    ]
    return [*judge.endpoints(seen), *([embedded(pool.embedded)] if pool.embedded.enabled else [])]


def embedded(config: EmbeddedConfig) -> Finding:
    """Whether the embedded model can be served: its server and its weights are here. The daemon starts it."""
    subject = "embedded model"
    if short := shortage(config, os.environ):
        return Finding(subject=subject, level="fail", text=short[0], mend=short[1])
    text = f"its server is installed, its weights are {find_weights(config, os.environ)}"
    return Finding(subject=subject, level="ok", text=text)


async def sandbox(settings: Settings, status: DaemonStatus | None) -> Finding:
    """The sandbox that the daemon proved, or else the one that can be proved from here."""
    if status is not None and status.sandbox is not None:
        return judge.sandbox(status.sandbox)
    try:
        async with chosen_backend(settings.sandbox, state=settings.daemon.state) as backend:
            test = await backend.self_test()
    except SandboxError as error:
        mend = "install Docker or bubblewrap, then: swarm doctor"
        return Finding(subject="sandbox", level="fail", text=str(error), mend=mend)
    seen = SandboxView(backend=test.backend, version=test.version, proved=test.proved, failed=test.failed)
    return judge.sandbox(seen, f" (as {_user(os.geteuid())})")


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
