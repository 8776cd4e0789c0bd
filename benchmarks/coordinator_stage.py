"""What the coordinator's benchmarks share: a daemon process with everything real but its sandboxes and its models.

Store, engine, coordinator, pool client, broker (a process over a bare repository) and api are those of the product. A
sandbox is a tar stream in memory whose commands and files take the time that they name, so that a thousand of them cost
what the coordinator costs; the model is `pool.testing`'s, in the benchmark's own process.

`python -m benchmarks.coordinator_stage SWARM.TOML` is the daemon.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from broker.client import Client
from broker.wire import Grant, GrantRequest
from sandbox.base import Exits, OnOutput, Rescue
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxPathError
from sandbox.types import Command, LeftBehind, Outcome, SandboxSpec, SelfTest
from swarm.client import DaemonClient
from swarm.config_database import Address
from swarm.config_file import load
from swarm.daemon import run_daemon
from swarm.errors import DaemonError
from swarm.types import TaskRequest
from swarm.wiring import house

REPOSITORY = "demo"
ROOT = Path(__file__).resolve().parent.parent
_SLEEP = re.compile(r"^sleep ([0-9.]+)$")
_SLOW_FILE = re.compile(r"^sleep/([0-9.]+)/")
_LONG_FILE = re.compile(r"^lines/([0-9]{1,4})/")
_GIT = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/nonexistent"} | {
    f"GIT_{who}_{key}": "a@b" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
}


# --- the sandbox


@dataclass
class PaperSandbox:
    """A workspace that is the tar stream it was opened with. Nothing is isolated, and nothing runs."""

    name: str
    tar: bytes = b""

    async def run(self, command: Command, on_output: OnOutput | None = None) -> Outcome:  # noqa: ARG002 - the protocol's
        """``sleep SECONDS`` takes its time; every command succeeds and says nothing."""
        found = _SLEEP.match(command.argv[-1])
        seconds = float(found[1]) if found else 0.0
        await asyncio.sleep(seconds)
        return Outcome(exit_code=0, output=b"", seconds=seconds)

    async def ping(self) -> None:
        """It is there."""

    async def read(self, path: str, limit: int = 1_000_000) -> bytes:  # noqa: ARG002 - the protocol's
        """``sleep/SECONDS/ANYTHING`` takes its time and is a line, ``lines/N/ANYTHING`` so many; no other is there."""
        if (long := _LONG_FILE.match(path)) is not None:
            return f"what {path} says\n".encode() * int(long[1])
        found = _SLOW_FILE.match(path)
        if found is None:
            raise SandboxPathError(f"there is no {path}")
        await asyncio.sleep(float(found[1]))
        return f"what {path} says\n".encode()

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Taken and forgotten."""

    async def export(self) -> AsyncIterator[bytes]:
        """The stream that it was opened with."""
        yield self.tar

    async def unpack(self, stream: AsyncIterator[bytes]) -> None:
        """Another stream in its place."""
        self.tar = b"".join([piece async for piece in stream])

    async def adopt(self, labels: Mapping[str, str], workspace: AsyncIterator[bytes] | None = None) -> None:  # noqa: ARG002
        """Take the workspace."""
        if workspace is not None:
            await self.unpack(workspace)

    @asynccontextmanager
    async def fork(self, labels: Mapping[str, str] | None = None) -> AsyncIterator[PaperSandbox]:  # noqa: ARG002
        """Another one with the same stream."""
        yield PaperSandbox(f"{self.name}-fork", self.tar)


class PaperBackend:
    """Makes `PaperSandbox`es."""

    def __init__(self) -> None:
        self._count = 0

    async def self_test(self) -> SelfTest:
        """Claims nothing."""
        return SelfTest(backend="bwrap", version="paper", proved=())

    @asynccontextmanager
    async def open(
        self,
        spec: SandboxSpec,
        workspace: AsyncIterator[bytes] | None = None,
    ) -> AsyncIterator[PaperSandbox]:
        """As the protocol says."""
        self._count += 1
        sandbox = PaperSandbox(f"paper-{self._count}")
        await sandbox.adopt(spec.labels, workspace)
        yield sandbox

    async def left_behind(self) -> tuple[LeftBehind, ...]:
        """Nothing is left behind."""
        return ()

    async def sweep(self, rescue: Rescue | None = None, only: Collection[str] | None = None) -> int:  # noqa: ARG002
        """Nothing is left behind."""
        return 0

    async def close(self) -> None:
        """Nothing is held."""


# --- the processes


def git(*args: str, cwd: Path) -> str:
    """Run git without anybody's settings."""
    done = subprocess.run(["git", *args], cwd=cwd, env=_GIT, capture_output=True, check=True, text=True)
    return done.stdout.strip()


@contextmanager
def broker(folder: Path) -> Iterator[Path]:
    """A broker over a bare repository of one file; the folder of its sockets."""
    tree = folder / "tree"
    tree.mkdir()
    git("init", "-q", "-b", "main", ".", cwd=tree)
    (tree / "README").write_text("A repository to work in.\n")
    git("add", ".", cwd=tree)
    git("commit", "-q", "-m", "base", cwd=tree)
    git("clone", "-q", "--bare", str(tree), str(folder / "origin.git"), cwd=folder)
    config = folder / "broker.toml"
    uid = os.getuid()
    config.write_text(
        f'socket = "{folder}/broker.sock"\nstate = "{folder}/broker-state"\n'
        f"[roles]\nperson = [{uid}]\ncoordinator = [{uid}]\n"
        f'[repositories.{REPOSITORY}]\nforge = "local"\npath = "{folder}/origin.git"\n'
        f"[repositories.{REPOSITORY}.policy]\nmax_open_pulls = 1000\nmax_per_hour = 500\n"
    )
    config.chmod(0o600)
    command = [sys.executable, "-m", "broker", "serve", "--config", str(config)]
    with (folder / "broker.log").open("ab") as log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as run:
        try:
            until = time.monotonic() + 30
            while not (folder / "person.sock").exists():  # bound after the coordinator's
                if time.monotonic() > until or run.poll() is not None:
                    raise SystemExit((folder / "broker.log").read_text())
                time.sleep(0.05)
            yield folder
        finally:
            run.terminate()


@dataclass
class Stage:
    """A state folder, a broker, and daemons that are started on them. ``database``: None is the embedded one."""

    folder: Path
    model: str
    workers: int
    database: Address | None = None
    settings: str = ""
    in_flight: int = 64
    daemon: subprocess.Popen[bytes] | None = None
    _grants: dict[str, Grant] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        """The daemon's socket."""
        return self.folder / "d.sock"

    @property
    def pid(self) -> int:
        """The daemon's process. Only while it runs."""
        if self.daemon is None:
            raise RuntimeError("no daemon runs")
        return self.daemon.pid

    def client(self) -> DaemonClient:
        """A client of the daemon."""
        return DaemonClient(self.socket)

    def configure(self) -> Path:
        """Write swarm.toml."""
        config = self.folder / "swarm.toml"
        where = ""
        if self.database is not None:
            password = self.folder / "password"
            password.touch(mode=0o600)
            password.write_text(self.database.password or "")
            where = f'database = "{self.database.url}"\ndatabase_password_file = "{password}"\n'
        config.write_text(
            f'[daemon]\nstate = "{self.folder}/state"\nsocket = "{self.socket}"\nworkers = {self.workers}\n'
            f'drain_timeout = 5\nhost = "one"\ndisk_floor = 0\n{where}'
            f'[broker]\nsocket = "{self.folder}/broker.sock"\n'
            f'[[pool.endpoints]]\nname = "a"\nurl = "{self.model}"\ntier = "small"\nmax_in_flight = {self.in_flight}\n'
            f'[repositories.{REPOSITORY}]\ntest_command = "true"\nstrategy = "agent"\n{self.settings}'
        )
        return config

    async def start(self, seconds: float = 60) -> None:
        """Start a daemon and wait until it answers."""
        self.daemon = await asyncio.to_thread(self._launch)
        async with asyncio.timeout(seconds):
            while True:
                if self.daemon.poll() is not None:
                    raise SystemExit((self.folder / "daemon.log").read_text()[-4000:])
                with suppress(DaemonError):
                    async with self.client() as client:
                        if (await client.health()).pid == self.daemon.pid:
                            return
                await asyncio.sleep(0.05)

    def _launch(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "benchmarks.coordinator_stage", str(self.configure())]
        with (self.folder / "daemon.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the daemon, and wait until it is gone."""
        if self.daemon is not None:
            self.daemon.send_signal(number)
            self.daemon.wait(60)
            self.daemon = None

    def grant(self, tasks: Collection[str]) -> None:
        """Have a person grant each task what it needs."""
        with Client(self.folder / "person.sock") as person:
            for task in tasks:
                self._grants[task] = person.grant(GrantRequest(repository=REPOSITORY, task=task))

    def request(self, task: str, instructions: str) -> TaskRequest:
        """A request for a task that was granted."""
        grant = self._grants[task]
        return TaskRequest(
            repository=REPOSITORY,
            instructions=instructions,
            capability=grant.capability,
            base_commit=grant.base_commit,
            task=task,
        )


@asynccontextmanager
async def staged(
    folder: Path, model: str, workers: int, database: Address | None = None, settings: str = ""
) -> AsyncIterator[Stage]:
    """A stage with its broker; what was started is ended."""
    with broker(folder):
        stage = Stage(folder, model, workers, database, settings)
        try:
            yield stage
        finally:
            stage.kill()


@contextmanager
def postgres(folder: Path) -> Iterator[Address]:
    """A Postgres server of its own, which writes to the disk as one should."""
    script = str(ROOT / "scripts" / "postgres")
    done = subprocess.run([script, "start", str(folder)], stdout=subprocess.PIPE, check=True, text=True)
    try:
        yield Address(done.stdout.strip(), (folder / "password").read_text())
    finally:
        subprocess.run([script, "stop", str(folder), "--crash"], stderr=subprocess.DEVNULL, check=True)


def main() -> int:
    """The daemon on paper sandboxes."""

    async def paper(_: SandboxConfig, *, state: Path, exits: Exits) -> PaperBackend:  # noqa: ARG001 - the protocol's
        return PaperBackend()

    settings = load(Path(sys.argv[1]), os.environ).settings
    return asyncio.run(run_daemon(settings, open_house=partial(house, choose=paper)))


if __name__ == "__main__":
    sys.exit(main())
