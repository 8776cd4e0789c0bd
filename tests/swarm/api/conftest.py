"""The daemon's door over a real store whose tasks nobody works on: quick, and every state is at the test's own word."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from swarm.answers import Exported
from swarm.api.application import application
from swarm.api.desk import Desk
from swarm.api.tokens import Tokens
from swarm.client import DaemonClient
from swarm.config_door import TcpConfig
from swarm.coordinating.verbs import Verbs
from swarm.errors import TaskError
from swarm.serving import Doors, listening_tcp
from swarm.shown import BrokerView, DaemonHealth, DaemonStatus
from swarm.store.rows import Plan
from swarm.store.snapshots import Beginning
from swarm.store.store import Store
from swarm.store.verbs import Stand
from swarm.tokens import add, made
from swarm.types import Budget, TaskRequest, TaskView

LONG = 60.0  # seconds in which an answer comes on a machine however busy; no test waits for them unless it fails
HEALTH = DaemonHealth(version="1", pid=1, uid=0, started=0.0)


class Still(Verbs):
    """Writes down what people ask, and works on nothing."""

    def wake(self) -> None:
        pass

    async def stop(self, task: str) -> None:
        pass

    async def park(self, task: str) -> None:
        pass


@dataclass
class House:
    """A desk, and the doors to it."""

    folder: Path
    desk: Desk
    secrets: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.desk.store

    @property
    def socket(self) -> Path:
        return self.folder / "d.sock"

    def token(self, name: str, role: Any = "operator", per_minute: int = 600) -> str:
        secret, kept = made(name, role, per_minute)
        add(self.folder / "tokens.json", kept)
        return secret

    @asynccontextmanager
    async def open(self, tcp: TcpConfig | None = None) -> AsyncIterator[str]:
        """Answer on the socket and, where wanted, on TCP; the latter's host and port."""
        with socket.socket(socket.AF_UNIX) as listener, listening_tcp(tcp) as other:
            listener.bind(str(self.socket))
            listener.listen()
            doors = Doors(application(self.desk), listener, other)
            serving = asyncio.create_task(doors.serve())
            try:
                yield f"127.0.0.1:{other[0].getsockname()[1]}" if other else ""
            finally:
                self.desk.closing.set()
                doors.stop()
                await serving
                self.socket.unlink()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[DaemonClient]:
        """A client on the unix socket."""
        async with self.open(), DaemonClient(self.socket) as client:
            yield client

    async def raw(self, method: str, path: str, **more: Any) -> httpx.Response:
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://swarm", timeout=LONG) as http:
            return await http.request(method, path, **more)

    async def task(self, name: str, user: str = "ann", **more: Any) -> TaskView:
        """A queued task."""
        wanted = request(task=name, **more)
        view, _ = await self.desk.coordinator.submit(wanted, replace(await plan(wanted), user=user))
        return view


def request(**more: Any) -> TaskRequest:
    values = {"repository": "demo", "instructions": "fix it", "capability": "c" * 20, "base_commit": "1" * 40}
    return TaskRequest.model_validate(values | more)


async def plan(wanted: TaskRequest) -> Plan:
    if not wanted.capability:
        raise TaskError("the task has no capability", "let swarm submit ask for one")
    return Plan(budget=Budget(), tier="small", strategy="auto")


async def diff(_: TaskView) -> str:
    return "--- a\n+++ b\n"


async def export(wanted: str) -> tuple[Exported, bytes]:
    """A file that says whose it is."""
    content = f"the file of {wanted}".encode()
    return Exported(attempt=f"{wanted}-1-ab12", bytes=len(content), struck=2, unknown_secrets=("a.key (KÖY)",)), content


async def keep(stand: Stand, task: str) -> Beginning:
    """The work that a fork begins with, as if it had been kept."""
    return Beginning(f"refs/forks/{task}", "1" * 40, stand.tree or "", b"PACK")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """Everything behind the door; a test opens it."""
    async with Store(tmp_path / "swarm.db") as store:
        broker = BrokerView(socket="b", reachable=True)

        async def status() -> DaemonStatus:
            return DaemonStatus(health=HEALTH, workers=2, counts=await store.counts(), broker=broker)

        tokens = Tokens((), tmp_path / "tokens.json")
        still: Any = Still(store, keep)
        desk = Desk(
            store, still, plan, diff, lambda: HEALTH, status, tokens=tokens, hosts=("swarm.example",), export=export
        )
        yield House(tmp_path, desk)


@dataclass(frozen=True)
class Authority:
    """A certificate for 127.0.0.1 and swarm.example, and the authority that signed it."""

    tcp: TcpConfig
    ca: Path


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("tls")
    signer = trustme.CA()
    signer.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued = signer.issue_cert("127.0.0.1", "swarm.example")
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    with (folder / "cert.pem").open("wb") as file:
        for part in issued.cert_chain_pems:
            file.write(part.bytes())
    tcp = TcpConfig(address="127.0.0.1:0", certificate=folder / "cert.pem", key=folder / "key.pem")
    return Authority(tcp, folder / "ca.pem")


PLAIN = TcpConfig(address="127.0.0.1:0", plain=True)
