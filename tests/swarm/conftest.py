"""A real broker process over a bare repository with a bug, and everything of the hall that stands on it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client
from broker.wire import Grant, GrantRequest
from pool.testing import ScriptedPool
from sandbox.config import ImagesConfig
from sandbox.images.prepare import Preparer
from sandbox.images.realise import Realiser
from sandbox.images.setup import Ground
from sandbox.images.shelf import shelves_in
from sandbox.testing import ScriptedBackend
from sandbox.trees.workspace import Workspace
from sandbox.types import SandboxSpec, SelfTest
from swarm.attempt import AttemptRun, Parts
from swarm.config import RepositoryConfig
from swarm.coordinating.pace import Pace
from swarm.coordinating.station import Station, station
from swarm.coordinator import Coordinator
from swarm.delivery import BrokerClient
from swarm.engine import DbosEngine
from swarm.knowledge.briefing import Briefer
from swarm.knowledge.shelf import Shelf as Commands
from swarm.rooms import Rooms
from swarm.store.rows import Claim, Plan
from swarm.store.snapshots import Beginning
from swarm.store.store import Store
from swarm.store.verbs import Stand
from swarm.types import Budget, Conclusion, Spent, Step, TaskRequest, TaskState, TaskView
from swarm.work import Models, Work
from swarm.workroom import keep_for_fork

BUG = "def clamp(x, low, high):\n    return max(low, min(x, low))\n"
GOOD = "def clamp(x, low, high):\n    return max(low, min(x, high))\n"
TESTS = """import unittest
from clamp import clamp


class Clamp(unittest.TestCase):
    def test_high(self):
        self.assertEqual(clamp(9, 0, 5), 5)

    def test_low(self):
        self.assertEqual(clamp(-1, 0, 5), 0)
"""
TEST_COMMAND = f"{sys.executable} -m unittest -v"
GIT = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/nonexistent"} | {
    f"GIT_{who}_{key}": "a@b" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
}


def git(*args: str, cwd: Path) -> str:
    return subprocess.run(["git", *args], cwd=cwd, env=GIT, capture_output=True, check=True, text=True).stdout.strip()


def bare_repository(folder: Path) -> Path:
    """A bare repository whose main branch holds the bug and a test for it."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    git("init", "-q", "-b", "main", ".", cwd=tree)
    (tree / "clamp.py").write_text(BUG)
    (tree / "test_clamp.py").write_text(TESTS)
    git("add", ".", cwd=tree)
    git("commit", "-q", "-m", "base", cwd=tree)
    git("clone", "-q", "--bare", str(tree), str(folder / "demo.git"), cwd=folder)
    return folder / "demo.git"


@dataclass
class BrokerProcess:
    """`swarm-broker serve` in a process of its own."""

    folder: Path
    origin: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "broker.sock"

    @property
    def people(self) -> Path:
        return self.folder / "person.sock"

    def start(self) -> None:
        uid = os.getuid()
        config = self.folder / "broker.toml"
        config.write_text(
            f'socket = "{self.socket}"\nstate = "{self.folder}/broker-state"\n'
            f"[roles]\nperson = [{uid}]\ncoordinator = [{uid}]\n"
            f'[repositories.demo]\nforge = "local"\npath = "{self.origin}"\n'
            f'[repositories.demo.policy]\nprotected_paths = ["secret/*"]\nmax_open_pulls = 1000\nmax_per_hour = 500\n'
        )
        config.chmod(0o600)
        command = [sys.executable, "-m", "broker", "serve", "--config", str(config)]
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self._until_it_answers()

    def _until_it_answers(self) -> None:
        until = time.monotonic() + 20
        while True:
            with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
                probe.connect(str(self.people))  # bound after the coordinator's
                return
            if time.monotonic() > until or self.process is None or self.process.poll() is not None:
                raise RuntimeError((self.folder / "broker.log").read_text())
            time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def grant(self, task: str, **more: Any) -> Grant:
        with Client(self.people) as client:
            return client.grant(GrantRequest(repository="demo", task=task, **more))

    def branches(self) -> list[str]:
        found = git("for-each-ref", "--format=%(refname:short)", "refs/heads/swarm/", cwd=self.origin)
        return found.splitlines()

    def pulls(self, task: str) -> int:
        """How many pull requests a task has."""
        with Client(self.people) as client:
            return sum(1 for pull in client.pulls("demo").pulls if pull.branch == f"swarm/{task}")


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests that do not stop it; their tasks have names of their own."""
    folder = tmp_path_factory.mktemp("broker")
    running = BrokerProcess(folder, bare_repository(folder / "forge"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that a test may stop; it is not started yet."""
    (tmp_path / "own").mkdir()
    running = BrokerProcess(tmp_path / "own", bare_repository(tmp_path / "own" / "forge"))
    yield running
    running.stop()


PROVED = SelfTest(backend="bwrap", version="scripted", proved=("nothing is isolated",))
DONE = Conclusion(ending="finished", title="Fix clamp", summary="the upper bound was wrong", model="m")


@dataclass
class Fixing:
    """A strategy that writes what it is given, journals like a real one, and may stop to be interrupted.

    ``gate`` is waited for after the first save; ``saw`` are the works it was given.
    """

    content: str = GOOD
    conclusion: Conclusion = DONE
    gate: asyncio.Event | None = None
    error: Exception | None = None
    path: str = "clamp.py"
    tokens: int = 10
    saw: list[Work] = field(default_factory=list)
    found: list[bytes] = field(default_factory=list)

    async def work(self, work: Work) -> Conclusion:
        self.saw.append(work)
        self.found.append(await work.sandbox.read("clamp.py"))
        work.ledger.charge(Spent(steps=1, tokens=self.tokens))
        await work.record(
            "model_call", {"endpoint": "e", "model": "m", "prompt_tokens": 9, "completion_tokens": 1, "seconds": 0.1}
        )
        await work.sandbox.write(self.path, self.content.encode())
        await work.save()
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.conclusion


@dataclass
class Bench:
    """Store, engine and coordinator on one state folder, opened as often as a test wants: each time is a new daemon."""

    folder: Path
    broker: BrokerProcess
    strategies: dict[str, Any] = field(default_factory=lambda: {"auto": Fixing()})
    backend: ScriptedBackend = field(default_factory=ScriptedBackend)
    pool: ScriptedPool = field(default_factory=lambda: ScriptedPool([]))
    test_command: str | None = TEST_COMMAND
    workers: int = 2
    ladder: tuple[str, ...] = ("small", "large")
    repositories: dict[str, RepositoryConfig] = field(default_factory=dict)
    models: Models | None = None
    agent_setup: Callable[[str], tuple[str, ...]] = lambda _: ()
    patience: float = 0.5
    pace: Pace = field(default_factory=Pace)
    stall: float = 0.0
    delivery: float = 0.0
    offset: float = 0.0  # seconds that the store's clock is ahead
    ticking: Callable[[], float] = time.monotonic  # the clock of budgets
    store: Store = field(init=False)
    coordinator: Coordinator = field(init=False)
    engine: DbosEngine = field(init=False)

    @cached_property
    def workspace(self) -> Workspace:
        return Workspace(self.folder / "git" / "demo.git")

    def clock(self) -> float:
        return time.time() + self.offset

    @cached_property
    def rooms(self) -> Rooms:
        """Sandboxes as the repositories' settings want them; of none there are any unless a test says so."""
        config = ImagesConfig(disk_floor=0)
        shelves = shelves_in(self.folder, config)
        return Rooms(
            self.backend,
            Preparer(self.backend, shelves.setups),
            Realiser("bwrap", None, shelves.images, config),
            Ground(backend="bwrap", system="scripted"),
            self.repositories,
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Coordinator]:
        """One life of a daemon. It ends by parking what still runs."""
        async with (
            Store(self.folder / "swarm.db", clock=self.clock) as self.store,
            BrokerClient(self.broker.socket, patience=self.patience) as client,
        ):
            self.engine = DbosEngine(self.folder / "engine.db")
            parts = Parts(
                rooms=self.rooms,
                spec=SandboxSpec(),
                pool=self.pool,
                broker=client,
                workspace=lambda _: self.workspace,
                strategy=lambda name: self.strategies[name],
                test_command=lambda _: self.test_command,
                proved=PROVED,
                models=self.models,
                agent_setup=self.agent_setup,
                stall=self.stall,
                delivery=self.delivery,
                clock=self.ticking,
                briefer=Briefer(self.repositories, Commands(self.folder / "discovered")),
                ladder=self.ladder,
            )

            def begin(claim: Claim) -> AttemptRun:
                return AttemptRun(parts, self.store, self.engine, claim)

            self.coordinator = Coordinator(self.store, self.engine, begin, station=self.station(), keep=self.keep)
            running = asyncio.create_task(self.coordinator.run())
            try:
                yield self.coordinator
                await self.coordinator.drain(0.0)
                await running
            finally:
                if not running.done():
                    running.cancel()
                    await asyncio.wait({running})
                await self.engine.close()

    def station(self) -> Station:
        """The host that this bench is."""
        return station("bench", workers=self.workers, pace=self.pace, ladder=self.ladder)

    async def keep(self, stand: Stand, task: str) -> Beginning:
        """What a fork takes along."""
        return await keep_for_fork(self.workspace, self.store, stand, task)

    async def submit(self, task: str, *, capability: str | None = None, **more: Any) -> TaskView:
        """A task under a fresh grant."""
        grant = None if capability is not None else await asyncio.to_thread(self.broker.grant, task)
        request = TaskRequest(
            repository="demo",
            instructions="make clamp right",
            capability=grant.capability if grant else capability or "",
            base_commit=grant.base_commit if grant else "",
            task=task,
            **more,
        )
        plan = Plan(budget=request.budget or Budget(), tier=request.tier or "small", strategy=request.strategy)
        view, _ = await self.coordinator.submit(request, plan)
        return view

    async def until(self, task: str, state: TaskState | None = None, seconds: float = 20) -> TaskView:
        """Wait until a task is in a state; without one, until it is final."""

        async def there(view: TaskView) -> bool:
            return view.state is state if state else view.state.final

        return await self._poll(task, there, seconds)

    async def until_step(self, task: str, kind: str, seconds: float = 20, **data: Any) -> Step:
        """Wait for a line of the journal."""
        async with asyncio.timeout(seconds):
            while True:
                for step in await self.store.steps(task):
                    if step.kind == kind and data.items() <= step.data.items():
                        return step
                await asyncio.sleep(0.01)

    async def kinds(self, task: str) -> list[str]:
        return [step.kind for step in await self.store.steps(task)]

    async def _poll(self, task: str, there: Callable[[TaskView], Awaitable[bool]], seconds: float) -> TaskView:
        until = time.monotonic() + seconds
        while True:
            view = await self.store.view(task)
            if await there(view):
                return view
            if time.monotonic() > until:
                raise AssertionError(f"{task} is {view.state}: {view.reason}; {await self.kinds(task)}")
            await asyncio.sleep(0.02)


@pytest.fixture
def bench(tmp_path: Path, shared_broker: BrokerProcess) -> Bench:
    return Bench(tmp_path, shared_broker)


@pytest.fixture
def fixing() -> type[Fixing]:
    return Fixing


@pytest.fixture
def name() -> str:
    """A task's name that no other test of the run uses."""
    return f"t{os.urandom(4).hex()}"
