"""Several daemons on one real Postgres, each in a network of its own: one is cut off and comes back, one is killed.

Every daemon has its own state folder and git folder; they share the database, the broker's socket and the model server.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pool.testing import Slow, call, pretend_vllm
from swarm.client import DaemonClient
from swarm.config_database import Address
from swarm.errors import SwarmError
from swarm.store.store import Store
from swarm.types import TaskRequest, TaskState, TaskView
from tests.postgres_server import a_server

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.postgres, pytest.mark.timeout(420)]

CHILD = Path(__file__).with_name("daemon_child.py")
GOOD = "def clamp(x, low, high):\n    return max(low, min(x, high))\n"
WRITE = call("write", path="clamp.py", content=GOOD)
FINISH = call("finish", title="Fix clamp", summary="The upper bound was wrong.")
TESTS = f"{sys.executable} -m unittest -v"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@dataclass
class Network:
    """A bridge, and a namespace behind it for each host. Names and addresses are this process's own."""

    tag: str = field(default_factory=lambda: f"{os.getpid() % 10000:04d}")
    spaces: list[str] = field(default_factory=list)

    @property
    def bridge(self) -> str:
        return f"swb{self.tag}"

    @property
    def prefix(self) -> str:
        return f"10.{100 + int(self.tag) % 100}.{int(self.tag) // 100}"

    @property
    def address(self) -> str:
        return f"{self.prefix}.1"

    def link(self, name: str) -> str:
        return f"swl{name}{self.tag}"

    def add(self, name: str) -> str:
        """A namespace whose only way out is the bridge."""
        space, number = f"swarm-{name}-{self.tag}", len(self.spaces) + 2
        ip("netns", "add", space)
        self.spaces.append(space)
        ip("link", "add", self.link(name), "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", self.link(name), "master", self.bridge, "up")
        ip("-n", space, "addr", "add", f"{self.prefix}.{number}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")
        return space

    def cut(self, name: str) -> None:
        ip("link", "set", self.link(name), "down")

    def join(self, name: str) -> None:
        ip("link", "set", self.link(name), "up")


@contextmanager
def network() -> Iterator[Network]:
    made = Network()
    ip("link", "add", made.bridge, "type", "bridge")
    try:
        ip("addr", "add", f"{made.address}/24", "dev", made.bridge)
        ip("link", "set", made.bridge, "up")
        yield made
    finally:
        for space in made.spaces:
            ip("netns", "del", space)
        ip("link", "del", made.bridge)


@asynccontextmanager
async def relayed(address: str, port: int) -> AsyncIterator[int]:
    """A port at ``address`` that leads to one of the loopback."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    server = await asyncio.start_server(serve, address, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@dataclass
class Fleet:
    """Daemons over one database."""

    folder: Path
    network: Network
    database: Address
    broker: Any
    model: int
    pause: list[float]
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    def configure(self, name: str) -> Path:
        home = self.folder / name
        home.mkdir(exist_ok=True)
        password = home / "password"
        password.write_text(self.database.password or "")
        password.chmod(0o600)
        config = home / "swarm.toml"
        config.write_text(
            f'[daemon]\nstate = "{home}/state"\nsocket = "{home}/d.sock"\nhost = "{name}"\nworkers = 2\n'
            f'database = "{self.database.url}"\ndatabase_password_file = "{password}"\n'
            f"heartbeat = 0.5\nlease = 10\ngrace = 5\ndrain_timeout = 5\n"
            f'[broker]\nsocket = "{self.broker.socket}"\n'
            f'[[pool.endpoints]]\nname = "a"\nurl = "http://{self.network.address}:{self.model}/v1"\ntier = "small"\n'
            f"[repositories.demo]\ntest_command = '''{TESTS}'''\nstrategy = \"agent\"\n"
        )
        return config

    async def start(self, name: str) -> None:
        space = f"swarm-{name}-{self.network.tag}"
        if space not in self.network.spaces:
            self.network.add(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                *("ip", "netns", "exec", space, sys.executable, str(CHILD), str(self.configure(name))),
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(90):
            while not await self._answers(name):
                assert self.processes[name].returncode is None, self.log(name)
                await asyncio.sleep(0.1)

    async def _answers(self, name: str) -> bool:
        try:
            async with self.client(name) as client:
                await client.health()
        except SwarmError:
            return False
        return True

    def client(self, name: str) -> DaemonClient:
        return DaemonClient(self.folder / name / "d.sock")

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    async def submit(self, name: str, *tasks: str) -> None:
        async with self.client(name) as client:
            for task in tasks:
                grant = await asyncio.to_thread(self.broker.grant, task)
                request = TaskRequest(
                    repository="demo",
                    instructions="make clamp right",
                    capability=grant.capability,
                    base_commit=grant.base_commit,
                    task=task,
                )
                await client.submit(request)

    async def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        process = self.processes.pop(name)
        process.send_signal(number)
        return await asyncio.wait_for(process.wait(), 60)


@asynccontextmanager
async def fleet(folder: Path, broker: Any, pause: float) -> AsyncIterator[tuple[Fleet, Store]]:
    """A fleet without hosts, and the database as the test itself sees it."""

    pauses = [pause]  # before the model's last answer, in seconds

    def script(request: Any) -> Any:
        if "clamp" not in request.prompt:
            return None
        last = request.body["messages"][-1]
        done = last["role"] == "tool" and "interrupted" not in str(last["content"])  # a write that was cut off is lost
        return Slow(pauses[0], FINISH) if done else WRITE

    async with AsyncExitStack() as stack:
        net = stack.enter_context(network())
        server = stack.enter_context(a_server("--listen", net.address))
        server.sql("CREATE DATABASE fleet")
        database = server.database("fleet")
        model = await stack.enter_async_context(pretend_vllm(script))
        port = await stack.enter_async_context(relayed(net.address, urlsplit(model.url).port or 0))
        made = Fleet(folder, net, database, broker, port, pauses)
        try:
            await made.start("a")
            async with Store(database) as store:
                yield made, store
        finally:
            for process in made.processes.values():
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


async def until_running(store: Store, host: str, count: int) -> None:
    """Wait until a host has so many tasks whose agents have saved their work."""
    async with asyncio.timeout(90):
        while True:
            hosts = {each.name: each.tasks for each in await store.hosts.all()}
            held = hosts.get(host, ())
            saved = [task for task in held if any(step.kind == "salvage" for step in await store.steps(task))]
            if len(saved) >= count:
                return
            await asyncio.sleep(0.1)


async def until_back(store: Store, host: str) -> None:
    """Wait until a host's heartbeats come through again."""
    async with asyncio.timeout(60):
        while True:
            if any(each.name == host and each.silent < 3 for each in await store.hosts.all()):
                return
            await asyncio.sleep(0.3)


async def ended(store: Store, tasks: list[str], seconds: float = 240) -> list[TaskView]:
    async with asyncio.timeout(seconds):
        while True:
            views = [await store.view(task) for task in tasks]
            if all(view.state.final for view in views):
                return views
            await asyncio.sleep(0.3)


async def test_a_host_that_is_cut_off_and_one_that_is_killed_cost_nothing_and_double_nothing(
    tmp_path: Path, own_broker: Any, name: str
) -> None:
    """NousResearch/hermes-agent#21141, stablyai/orca#18368: late workers are stopped, and land nothing."""
    own_broker.start()
    tasks = [f"{name}-{number}" for number in range(8)]
    async with fleet(tmp_path, own_broker, pause=5.0) as (made, store):
        await made.start("b")
        await made.submit("a", *tasks)
        await until_running(store, "a", 2)
        made.network.cut("a")
        await until_running(store, "b", 1)
        await made.start("c")
        await made.end("b", signal.SIGKILL)
        views = await ended(store, tasks)
        made.network.join("a")
        await until_back(store, "a")
        late = f"{name}-late"
        await made.submit("a", late)
        await ended(store, [late])
        steps = {task: await store.steps(task) for task in tasks}
        assert await made.end("a") == 0, made.log("a")
        assert await made.end("c") == 0, made.log("c")
        logs = made.log("a") + made.log("c")
    assert [view.state for view in views] == [TaskState.DELIVERED] * len(tasks), [view.reason for view in views]
    assert [own_broker.pulls(task) for task in tasks] == [1] * len(tasks)
    assert all(len(view.attempts) == 1 for view in views)  # every one went on, none was begun anew
    assert any("is gone" in step.data.get("reason", "") for lines in steps.values() for step in lines)
    for lines in steps.values():
        asked = [step.data["request"] for step in lines if step.kind == "model_call"]
        assert len(asked) == len(set(asked)), "an answer that was there was paid for again"
    assert "Traceback" not in logs, logs


async def test_what_a_host_parks_at_its_end_another_one_goes_on_with_at_once(
    tmp_path: Path, own_broker: Any, name: str
) -> None:
    own_broker.start()
    async with fleet(tmp_path, own_broker, pause=300.0) as (made, store):
        await made.submit("a", name)
        await until_running(store, "a", 1)
        await made.start("b")
        assert await made.end("a") == 0
        await until_running(store, "b", 1)
        async with made.client("b") as client:
            view = await client.pause(name)
            assert view.state is TaskState.PAUSED
            made.pause[0] = 0.1
            await client.resume(name)
        (view,) = await ended(store, [name])
    assert view.state is TaskState.DELIVERED
    assert len(view.attempts) == 1
    assert own_broker.pulls(name) == 1
