"""A running stack: broker and daemon as separate processes on given paths, each stopped by its pid."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from git import Actor, Repo

from house import CHECKOUT, Account, House

STOP_SECONDS = 20.0
CGROUP = "agent-swarm-demo"  # of the daemon's user, in stacks of three users
PREPARE = CHECKOUT / "scripts" / "prepare-sandbox"


class StackError(Exception):
    """A process of the stack did not do what it should; the message holds the end of its log."""


@dataclass(frozen=True)
class Layout:
    """Where a stack keeps what. Everything lies under ``base``, each user's part in a folder of its own."""

    base: Path

    @property
    def swarm_toml(self) -> Path:
        """The daemon's and the command line's settings, readable by all."""
        return self.base / "etc" / "swarm.toml"

    @property
    def broker_toml(self) -> Path:
        """The broker's settings and secrets, readable by the broker's user alone."""
        return self.base / "broker" / "broker.toml"

    @property
    def daemon_state(self) -> Path:
        """Database, git objects and logs of the daemon."""
        return self.base / "swarm" / "state"

    @property
    def broker_state(self) -> Path:
        """What the broker keeps."""
        return self.base / "broker" / "state"

    @property
    def daemon_socket(self) -> Path:
        """Where the daemon listens."""
        return self.base / "swarm" / "run" / "swarm.sock"

    @property
    def broker_socket(self) -> Path:
        """Where the broker listens."""
        return self.base / "broker-run" / "broker.sock"

    @property
    def person_socket(self) -> Path:
        """Where the broker listens for people."""
        return self.base / "broker-run" / "person.sock"

    @property
    def forge(self) -> Path:
        """The local forge: a folder of bare repositories that the broker's user owns."""
        return self.base / "broker" / "forge"

    def repository(self, name: str) -> Path:
        """The bare repository of that name."""
        return self.forge / f"{name}.git"

    @property
    def credential(self) -> Path:
        """The file with the one secret of the stack."""
        return self.base / "broker" / "credential"

    @property
    def logs(self) -> Path:
        """What the two processes print."""
        return self.base / "log"

    def clear(self) -> None:
        """Remove what an earlier stack left here; installations and weights stay."""
        for name in ("etc", "log", "swarm", "broker", "broker-run", "person"):
            shutil.rmtree(self.base / name, ignore_errors=True)

    def make(self, house: House) -> None:
        """Make the folders, each with its owner and no more rights than needed."""
        for path, owner, mode in (
            (self.base, house.person, 0o755),
            (self.base / "etc", house.person, 0o755),
            (self.logs, house.person, 0o755),
            (self.base / "swarm", house.daemon, 0o755),
            (self.daemon_state, house.daemon, 0o700),
            (self.daemon_socket.parent, house.daemon, 0o755),
            (self.base / "broker", house.broker, 0o700),
            (self.broker_state, house.broker, 0o700),
            (self.forge, house.broker, 0o700),
            (self.broker_socket.parent, house.broker, 0o755),
        ):
            path.mkdir(parents=True, exist_ok=True)
            give(path, owner, mode)


def give(path: Path, owner: Account, mode: int) -> None:
    """Hand ``path`` to ``owner`` with exactly ``mode``."""
    if os.getuid() == 0:
        os.chown(path, owner.uid, owner.gid)
    path.chmod(mode)


def write(path: Path, text: str, owner: Account, mode: int) -> None:
    """Write a file that never was readable by more than ``mode`` says."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    give(path, owner, mode)


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The few variables that a process of the stack gets; nothing is inherited."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", **(extra or {})}


@dataclass
class Process:
    """One long-running process of the stack."""

    name: str
    argv: tuple[str, ...]
    account: Account
    env: dict[str, str]
    log: Path
    popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id. Raises StackError when it was not started."""
        if self.popen is None:
            raise StackError(f"the {self.name} was not started")
        return self.popen.pid

    def start(self) -> None:
        """Start it in a session of its own, its output going to its log."""
        user, group, groups = identity(self.account)
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=self.env,
                start_new_session=True, user=user, group=group, extra_groups=groups,
            )  # fmt: skip

    def wait_for(self, path: Path, seconds: float = 60.0) -> None:
        """Wait until the unix socket ``path`` takes connections. Raises StackError when it does not."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.popen is None or self.popen.poll() is not None:
                break
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(str(path)) == 0:
                    return
            time.sleep(0.05)
        raise StackError(f"the {self.name} does not listen on {path}\n{self.tail()}")

    def kill(self) -> None:
        """Kill this one process at once, as a crash would; what it started is left to notice by itself."""
        if self.popen is not None:
            self.popen.kill()
            self.popen.wait()

    def stop(self) -> None:
        """Ask it to end, insist after a while, and end whatever is left of its session."""
        if self.popen is None:
            return
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        self.popen.wait()
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen = None

    def tail(self, lines: int = 40) -> str:
        """The end of its log."""
        text = self.log.read_text("utf-8", "replace") if self.log.exists() else ""
        return f"--- the end of {self.log}\n" + "\n".join(text.splitlines()[-lines:])


def identity(account: Account) -> tuple[int | None, int | None, list[int] | None]:
    """What subprocess takes as user, group and extra_groups to run as ``account``; all None for who runs this."""
    if os.getuid() != 0 or account.uid == 0:
        return None, None, None
    return account.uid, account.gid, []


@dataclass(frozen=True)
class Source:
    """A folder that becomes the repository ``name`` of the local forge, and how the operator tests it."""

    name: str
    folder: Path
    test_command: str


def broker_toml(layout: Layout, house: House, sources: tuple[Source, ...]) -> str:
    """A broker.toml for a local forge whose repositories share one credential file."""
    lines = [
        f'socket = "{layout.broker_socket}"',
        f'person_socket = "{layout.person_socket}"',
        f'state = "{layout.broker_state}"',
        "[roles]",
        f"person = [{house.person.uid}]",
        f"coordinator = [{house.daemon.uid}]",
    ]
    for source in sources:
        lines += [
            f"[repositories.{source.name}]",
            'forge = "local"',
            f'path = "{layout.repository(source.name)}"',
            f'credential.token.file = "{layout.credential}"',
        ]
    return "\n".join(lines) + "\n"


def swarm_toml(layout: Layout, house: House, sources: tuple[Source, ...], pool: str) -> str:
    """A swarm.toml; ``pool`` is the pool's part of it."""
    lines = [f'[sandbox]\ncgroup = "{CGROUP}"'] if house.parted else []
    lines += [
        "[daemon]",
        f'state = "{layout.daemon_state}"',
        f'socket = "{layout.daemon_socket}"',
        "drain_timeout = 10.0",
        "[broker]",
        f'socket = "{layout.broker_socket}"',
        f'person_socket = "{layout.person_socket}"',
    ]
    for source in sources:
        lines += [f"[repositories.{source.name}]", f"test_command = '{source.test_command}'"]
    return "\n".join([*lines, pool, ""])


def bare_repository(source: Path, target: Path, owner: Account) -> None:
    """Turn the folder ``source`` into a bare repository with one commit, which belongs to ``owner``."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        shutil.copytree(source, tree, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
        with Repo.init(tree, initial_branch="main") as repository:
            repository.git.add("--all", "--force")
            person = Actor("A Person", "person@example.org")
            repository.index.commit("Begin", author=person, committer=person, skip_hooks=True)
            with repository.clone(str(target), bare=True, no_hardlinks=True) as bare:
                bare.delete_remote(bare.remote("origin"))
    for path in (target, *target.rglob("*")):
        give(path, owner, path.stat().st_mode & 0o700)


def weights() -> str:
    """The embedded model's file, fetched when it is not there yet; readable by all. Raises StackError."""
    told = subprocess.run([CHECKOUT / "scripts" / "fetch-weights"], check=False, capture_output=True, text=True)
    if told.returncode != 0:
        raise StackError(told.stderr.strip() or told.stdout.strip())
    return told.stdout.strip().splitlines()[-1]


def prepare(layout: Layout, house: House, sources: tuple[Source, ...], pool: str) -> tuple[Stack, str]:
    """A new stack, not yet started, in place of any earlier one; and the canary that is the broker's credential."""
    layout.clear()
    layout.make(house)
    if house.parted:
        prepare_sandbox("user", house.daemon.name)
    canary = f"canary-{secrets.token_hex(24)}"
    write(layout.credential, canary + "\n", house.broker, 0o600)
    for source in sources:
        bare_repository(source.folder, layout.repository(source.name), house.broker)
    write(layout.broker_toml, broker_toml(layout, house, sources), house.broker, 0o600)
    write(layout.swarm_toml, swarm_toml(layout, house, sources, pool), house.person, 0o644)
    return Stack(layout, house, _docker(house)), canary


def prepare_sandbox(*words: str) -> None:
    """Run scripts/prepare-sandbox on the control group of three-user stacks. Raises StackError."""
    env = environment(Path("/"), {"AGENT_SWARM_CGROUP": CGROUP})
    done = subprocess.run([PREPARE, *words], check=False, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise StackError(done.stderr.strip())


def _docker(house: House) -> dict[str, str]:
    """The way to an engine of this user's, only where the daemon is this user: its socket is as good as root."""
    host = os.environ.get("DOCKER_HOST")
    return {"DOCKER_HOST": host} if host and not house.parted else {}


def git(repository: Path, *words: str) -> str:
    """What git says of the forge's bare repository, or its complaint."""
    done = subprocess.run(
        ["git", "--git-dir", str(repository), *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment(Path("/"), {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}),
    )
    return (done.stdout if done.returncode == 0 else done.stderr).strip()


class Stack:
    """Broker and daemon on one layout, and the two commands as the person uses them."""

    def __init__(self, layout: Layout, house: House, daemon_env: Mapping[str, str] | None = None) -> None:
        self.layout = layout
        self.house = house
        self.broker = Process(
            "broker",
            (*house.swarm_broker, "serve", "--config", str(layout.broker_toml)),
            house.broker,
            environment(layout.broker_state),
            layout.logs / "broker.log",
        )
        command = (*house.swarm, "--config", str(layout.swarm_toml), "daemon")
        self.daemon = Process(
            "daemon",
            (str(PREPARE), "enter", house.daemon.name, *command) if house.parted else command,
            house.person if house.parted else house.daemon,  # `enter` becomes the daemon's user by itself
            environment(layout.daemon_state, {"AGENT_SWARM_CGROUP": CGROUP, **(daemon_env or {})}),
            layout.logs / "daemon.log",
        )

    def start(self) -> None:
        """Start both and wait until they listen. Raises StackError."""
        self.broker.start()
        self.daemon.start()
        self.broker.wait_for(self.layout.broker_socket)
        self.broker.wait_for(self.layout.person_socket)
        self._daemon_listens()

    def start_daemon(self) -> None:
        """Start the daemon and wait until it listens; the model it serves is loaded by then. Raises StackError."""
        self.daemon.start()
        self._daemon_listens()

    def _daemon_listens(self) -> None:
        self.daemon.wait_for(self.layout.daemon_socket, seconds=180.0)

    def stop(self) -> None:
        """End both, the daemon first."""
        self.daemon.stop()
        self.broker.stop()

    def swarm(self, *words: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run `swarm` as the person and capture what it says."""
        return self._ask((*self.house.swarm, "--config", str(self.layout.swarm_toml), *words), seconds)

    def swarm_broker(self, *words: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run `swarm-broker` as the person, over the broker's socket for people, and capture what it says."""
        return self._ask((*self.house.swarm_broker, *words, "--socket", str(self.layout.person_socket)), seconds)

    def watch(self, *words: str) -> int:
        """Run `swarm` as the person and let its output through; its exit code."""
        argv = (*self.house.swarm, "--config", str(self.layout.swarm_toml), *words)
        env = environment(self._home(), {"TERM": os.environ.get("TERM", "dumb")})
        return subprocess.run(argv, check=False, cwd=self._home(), env=env).returncode

    def newest(self) -> dict[str, Any]:
        """The task that was submitted last. Raises StackError when there is none."""
        listed = self.swarm("list", "--json", "--limit", "1")
        views: list[dict[str, Any]] = json.loads(listed.stdout) if listed.returncode == 0 else []
        if not views:
            raise StackError(f"there is no task: {listed.stderr}")
        return self.view(views[0]["task"]["id"])

    def view(self, task: str) -> dict[str, Any]:
        """A task as the daemon shows it. Raises StackError."""
        shown = self.swarm("show", task, "--json")
        if shown.returncode != 0:
            raise StackError(f"swarm show {task}: {shown.stderr or shown.stdout}")
        view: dict[str, Any] = json.loads(shown.stdout)
        return view

    def submit(self, *words: str) -> str:
        """Submit a task without waiting; its id. Raises StackError."""
        done = self.swarm("submit", "--json", *words)
        if done.returncode != 0:
            raise StackError(f"swarm submit: {done.stderr or done.stdout}")
        task: str = json.loads(done.stdout)["task"]["id"]
        return task

    def journal(self, task: str) -> list[dict[str, Any]]:
        """All lines of a task's journal."""
        return [json.loads(line) for line in self.swarm("logs", task, "--json").stdout.splitlines()]

    def until_step(self, task: str, kind: str, seconds: float = 90.0, **data: Any) -> None:
        """Wait for a journal line of that kind with that data. Raises StackError when it does not come."""
        seen = []
        with self._followed(task, seconds) as lines:
            for line in lines:
                if line["type"] == "step" and line["kind"] == kind and data.items() <= line["data"].items():
                    return
                seen.append(line)
        raise StackError(f"no {kind} {data} in {seconds} s: {seen}")

    def until_final(self, task: str, seconds: float = 150.0) -> dict[str, Any]:
        """Wait for the end of a task; the task. Raises StackError when it does not come."""
        with self._followed(task, seconds) as lines:
            view = next((line for line in lines if line["type"] == "task"), None)
        if view is None:
            raise StackError(f"{task} has not ended in {seconds} s: {self.view(task)}")
        return view

    def branches(self, repository: str) -> list[str]:
        """The branches of a repository on the forge, as git itself tells."""
        return git(
            self.layout.repository(repository), "for-each-ref", "--format=%(refname:short)", "refs/heads"
        ).split()

    def pulls(self, repository: str) -> list[dict[str, Any]]:
        """The pull requests of a repository, as the broker tells. Raises StackError."""
        done = self.swarm_broker("pr", "list", repository, "--json")
        if done.returncode != 0:
            raise StackError(f"swarm-broker pr list: {done.stderr}")
        pulls: list[dict[str, Any]] = json.loads(done.stdout)["pulls"]
        return pulls

    @contextmanager
    def _followed(self, task: str, seconds: float) -> Iterator[Iterator[dict[str, Any]]]:
        """What `swarm follow` says as it is written, to the task's end or until ``seconds`` are over: no polling, which
        would take from the model the processor that it works on."""
        argv = (*self.house.swarm, "--config", str(self.layout.swarm_toml), "follow", "--json", task)
        home = self._home()
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=home, env=environment(home)) as watcher:
            limit = threading.Timer(seconds, watcher.kill)
            limit.start()
            try:
                yield (json.loads(line) for line in watcher.stdout or () if line.endswith("\n"))
            finally:
                limit.cancel()
                watcher.kill()

    def _ask(self, argv: tuple[str, ...], seconds: float) -> subprocess.CompletedProcess[str]:
        home = self._home()
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=seconds, check=False, cwd=home, env=environment(home)
        )

    def _home(self) -> Path:
        home = self.layout.base / "person"
        home.mkdir(exist_ok=True, mode=0o700)
        return home
