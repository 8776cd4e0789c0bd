"""An installation to aim commands at: a real broker process, and the daemon's real api, store and coordinator over runs
that follow a script named in the task's instructions."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from pool.config import EndpointConfig
from pool.errors import PoolConfigError
from pool.placement.view import Decision, Row
from pool.types import EndpointStatus
from swarm.acceptance import plan
from swarm.api.application import application
from swarm.api.desk import Desk
from swarm.budgets.ledger import BudgetLedger
from swarm.cli import app
from swarm.config_file import VARIABLE, load
from swarm.coordinating.station import station
from swarm.coordinator import Coordinator
from swarm.pulse import Pulse
from swarm.runs import Ended, Flow, RunView
from swarm.serving import http_server
from swarm.shown import BrokerView, DaemonHealth, DaemonStatus, EndpointView, SandboxView
from swarm.store.rows import Claim, Kept, Plan
from swarm.store.snapshots import Beginning
from swarm.store.store import Store
from swarm.store.verbs import Stand
from swarm.types import (
    AttemptResult,
    CheckReport,
    Conclusion,
    Failure,
    Fault,
    Outcome,
    Sealed,
    Spent,
    TaskRequest,
    TaskView,
    TestRun,
)

ROOT = Path(__file__).parents[3]
DIFF = "--- a/x\n+++ b/x\n+\x1b[31mred\x1b[0m\n"
COMMIT = "1" * 40
DECISION = Decision(
    request="r-1",
    session="s",
    endpoint="box",
    reason="its prefix lives there",
    rows=(
        Row("box", hit_tokens=640, seconds={"queue": 0.5, "prefill": 0.25}),
        Row("far", left_out="its window of 4096 tokens is too small"),
    ),
    expected_ttft=0.75,
    actual_ttft=0.8,
    expected_hit=640,
    actual_hit=512,
    regret=0.0,
)


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


@dataclass
class Installation:
    """Where everything is, and how to run the real command against it."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.folder / "swarm.toml"

    def words(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "swarm", "--config", str(self.config), *arguments]

    def run(self, *arguments: str, stdin: str = "", cwd: Path | None = None) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "swarm", *arguments],
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=cwd or self.folder,
            env=self.env,
        )
        return Ran(done.returncode, done.stdout, done.stderr)


def environment(folder: Path) -> dict[str, str]:
    """Nothing of the caller's own settings."""
    home = {name: str(folder / "home") for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", "COLUMNS": "100", **home}


SETTINGS = """
[daemon]
state = "state"
socket = "daemon.sock"
[broker]
socket = "broker.sock"
[[pool.endpoints]]
name = "box"
url = "http://127.0.0.1:9"
tier = "fast"
[repositories.sample]
test_command = "python3 -m pytest -q"
"""

BROKER = """
socket = "{folder}/broker.sock"
state = "{folder}/broker-state"
[roles]
person = [{uid}]
coordinator = [{uid}]
[repositories.sample]
forge = "local"
path = "{folder}/sample.git"
"""


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One for all tests; each makes tasks of its own."""
    folder = tmp_path_factory.mktemp("cli")
    made = Installation(folder, environment(folder))
    made.config.write_text(SETTINGS)
    (folder / "state").mkdir()
    _repository(folder)
    broker_config = folder / "broker.toml"
    broker_config.write_text(BROKER.format(folder=folder, uid=os.getuid()))
    broker_config.chmod(0o600)
    daemon = Daemon(made.config)
    with (folder / "broker.log").open("wb") as log:
        words = [sys.executable, "-m", "broker", "serve", "--config", str(broker_config)]
        broker = subprocess.Popen(words, env=made.env, cwd=folder, stdout=log, stderr=log)
        try:
            daemon.start()
            for socket in ("broker.sock", "person.sock"):
                _wait_for(folder / socket, folder / "broker.log")
            yield made
        finally:
            broker.terminate()
            broker.wait(20)
            daemon.stop()


def _repository(folder: Path) -> None:
    work = folder / "work"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q", str(work)], check=True)
    (work / "a.py").write_text("x = 1\n")
    subprocess.run([*git, "add", "."], check=True, cwd=work)
    subprocess.run([*git, "commit", "-qm", "base"], check=True, cwd=work)
    subprocess.run([*git, "clone", "-q", "--bare", str(work), str(folder / "sample.git")], check=True)


def _wait_for(socket: Path, log: Path) -> None:
    until = time.monotonic() + 30
    while not socket.exists():
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)


class Daemon:
    """The api in a thread of its own, over a real store and coordinator."""

    def __init__(self, config: Path) -> None:
        self._settings = load(config, {}).settings
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: Future[None] = Future()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()
        while not self._ready.wait(0.05):
            if self._running.done():
                self._running.result()

    def stop(self) -> None:
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._running.result(0)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001  # handed to the test as it is
            self._running.set_exception(error)
        else:
            self._running.set_result(None)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with Store(self._settings.daemon.state / "swarm.db") as store:
            coordinator = Coordinator(
                store, InlineEngine(), lambda claim: ScriptedRun(store, claim), station=station(workers=4), keep=_keep
            )
            desk = Desk(store, coordinator, self._plan, _diff, _health, self._status, servers=OneServer())
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(self._settings.daemon.socket))
            server = http_server(application(desk))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            working = asyncio.create_task(coordinator.run())
            while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
                await asyncio.sleep(0.01)
            self._ready.set()
            await self._stop.wait()
            desk.closing.set()
            server.should_exit = True
            await coordinator.drain(0)
            await asyncio.gather(serving, working)

    async def _plan(self, request: TaskRequest) -> Plan:
        return plan(request, self._settings, ("sample",))

    async def _status(self) -> DaemonStatus:
        return DaemonStatus(
            health=_health(),
            workers=4,
            repositories=("sample",),
            tiers=("fast",),
            endpoints=(EndpointView(name="box", tier="fast", url="http://127.0.0.1:9", up=True, detail="\x1b[31mhi"),),
            sandbox=SandboxView(backend="bwrap", version="0.8", proved=("no network",)),
            broker=BrokerView(socket=str(self._settings.broker.socket), reachable=True, uid=os.getuid()),
        )


class OneServer:
    """A pool of one endpoint that never changes."""

    def status(self) -> tuple[EndpointStatus, ...]:
        said = "\x1b[31mhi"
        return (
            EndpointStatus(name="box", tier="fast", url="http://127.0.0.1:9", state="up", model=said, phase="idle"),
        )

    def explain(self, request_id: str) -> Decision | None:
        return DECISION if request_id == DECISION.request else None

    def add(self, config: EndpointConfig) -> None:
        raise PoolConfigError(f"there is an endpoint {config.name!r} already")

    async def drain(self, name: str, within: float | None = None) -> bool:
        raise PoolConfigError(f"there is no endpoint {name!r}")

    def admit(self, name: str) -> None:
        raise PoolConfigError(f"there is no endpoint {name!r}")

    async def remove(self, name: str) -> None:
        raise PoolConfigError(f"there is no endpoint {name!r}")


async def _keep(_: Stand, task: str) -> Beginning:
    return Beginning(f"refs/forks/{task}", COMMIT, COMMIT, b"")


async def _diff(_: TaskView) -> str:
    return DIFF


def _health() -> DaemonHealth:
    return DaemonHealth(version="0", pid=os.getpid(), uid=os.getuid(), started=0.0)


class InlineEngine:
    """Runs a flow where it is asked to, and forgets it."""

    def __init__(self) -> None:
        self._flow: Flow | None = None
        self._tasks: dict[str, asyncio.Task[str]] = {}
        self._parked: set[str] = set()

    async def open(self, flow: Flow, ours: object = None, done: object = None) -> None:
        self._flow = flow

    async def adopt(self, *names: str) -> None:
        pass

    async def run(self, name: str) -> Ended:
        assert self._flow is not None
        task = self._tasks[name] = asyncio.create_task(self._flow(name))
        try:
            return Ended("done", await asyncio.shield(task))
        except asyncio.CancelledError:
            return Ended("parked" if name in self._parked else "cancelled")

    async def phase(self, name: str, act: object) -> str:
        raise NotImplementedError(name, act)

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()

    async def park(self, name: str) -> None:
        self._parked.add(name)
        self._tasks[name].cancel()

    async def runs(self, *states: object, limit: int = 0) -> tuple[RunView, ...]:
        return ()

    async def start(self, name: str) -> None:
        raise NotImplementedError(name)

    async def recover(self, flow: Flow) -> None:
        raise NotImplementedError(flow)

    async def wait(self, topic: str, seconds: float) -> str | None:
        raise NotImplementedError(topic, seconds)

    async def timer(self, seconds: float) -> None:
        raise NotImplementedError(seconds)

    async def signal(self, name: str, topic: str, value: str) -> bool:
        raise NotImplementedError(name, topic, value)

    async def close(self) -> None:
        pass


class ScriptedRun:
    """Does what the first word of the instructions says."""

    def __init__(self, store: Store, claim: Claim) -> None:
        self._store = store
        self._claim = claim
        self._word = claim.task.request.instructions.split()[0]
        self.ledger = BudgetLedger(claim.task.budget, claim.before, Spent(), self._spend)
        self.pulse = Pulse()

    async def standing(self) -> dict[str, object] | None:
        return None

    async def make(self) -> AttemptResult:
        await self._record("phase_started", phase="work")
        await self._record("note", text="\x1b]0;evil\x07working")
        if self._word == "hold":
            await asyncio.sleep(60)
        await self._record("phase_ended", phase="work", seconds=0.1)
        await self._store.salvaged(self._claim, Kept(f"refs/salvage/{self._claim.attempt.id}", COMMIT, "swarm-a"))
        return _RESULTS.get(self._word) or _RESULTS["deliver"]

    async def deliver(self, result: AttemptResult) -> Outcome:
        proposal = self._claim.task.id
        if self._word == "refuse":
            finding = {"rule": "protected_paths", "message": "\x1b[2Jtoo bold", "path": None, "mend": ""}
            return Outcome(result=result, verdict={"kind": "refusal", "proposal": proposal, "findings": [finding]})
        verdict = {
            "kind": "receipt", "proposal": proposal, "pull_request": "sample#1", "number": 1,
            "branch": "swarm/x", "commit": COMMIT, "url": "",
        }  # fmt: skip
        if self._word == "fault":
            fault = Fault(kind="person", failure=Failure(what="the broker", why="is away", mend="start it"))
            return Outcome(result=result, fault=fault)
        return Outcome(result=result, verdict=verdict)

    def _spend(self, spent: Spent) -> None:
        self._store.budgets.spend(self._claim.attempt.id, spent)

    async def _record(self, kind: str, **data: object) -> None:
        await self._store.record(self._claim, kind, data)


def _result(ending: str, *, changed: bool = True, passed: bool = True) -> AttemptResult:
    run = TestRun(command="pytest", exit_code=0 if passed else 1, passed=("a",), failed=() if passed else ("b",))
    verdict = "passed" if passed else "failed"
    report = CheckReport(base=run, proposal=run, verdict=verdict, reason="" if passed else "b fails")
    conclusion = Conclusion.model_validate({"ending": ending, "summary": f"it is {ending}"})
    sealed = Sealed(base=COMMIT, tree=COMMIT, files=("a.py",), changed=changed)
    return AttemptResult(conclusion=conclusion, sealed=sealed, report=report)


_LASTING = Fault(kind="lasting", failure=Failure(what="the sandbox", why="is gone", mend="install one"))
_RESULTS = {
    "deliver": _result("finished"),
    "no_change": _result("no_change", changed=False),
    "limit_hit": _result("limit_hit"),
    "gave_up": _result("gave_up"),
    "checks_failed": _result("finished", passed=False),
    "infra_failed": _result("finished").model_copy(update={"fault": _LASTING}),
}


@pytest.fixture
def bound() -> list[str]:
    """What to put before a command so that file modes bind it: root's power to ignore them is taken away first.

    Not another user: a checkout may lie where no other user can read it.
    """
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


class Swarm(Protocol):
    """The command run in this process, which is quicker than another one and misses none of its warnings."""

    def __call__(self, *arguments: str, cwd: Path | None = None, **env: str) -> Ran: ...


@pytest.fixture
def swarm(installation: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Swarm:
    """Runs `swarm` as a person in the installation's folder would."""
    for name, value in installation.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(VARIABLE, raising=False)

    def call(*arguments: str, cwd: Path | None = None, **env: str) -> Ran:
        monkeypatch.chdir(cwd or installation.folder)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        code = app.main(list(arguments))
        shown = capsys.readouterr()
        return Ran(code, shown.out, shown.err)

    return call


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose sockets have addresses short enough for the kernel (107 bytes)."""
    with tempfile.TemporaryDirectory(prefix="up-") as folder:
        yield Path(folder)
