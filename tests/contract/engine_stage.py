"""What the engine's contract suite shares: the databases that it is held against, and children that may be killed."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from swarm.config_database import Address
from swarm.engine import DbosEngine
from swarm.runs import Flow
from tests.postgres_server import Server

CHILD = Path(__file__).with_name("engine_child.py")
Where = Path | Address
Making = Callable[[DbosEngine], Flow]


@pytest.fixture(scope="session")
def engine_template(postgres_server: Server) -> str:
    """A database that an engine was opened on once: its tables take seconds to make, and copying them does not."""
    name = f"e{secrets.token_hex(6)}"
    postgres_server.sql(f"CREATE DATABASE {name}")

    async def make() -> None:
        engine = DbosEngine(postgres_server.database(name))
        await engine.open(counting([])(engine))
        await engine.close()

    asyncio.run(make())
    return name


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine_at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Where]:
    """Where an engine without runs is."""
    if request.param == "sqlite":
        yield tmp_path / "engine.db"
        return
    template: str = request.getfixturevalue("engine_template")
    server: Server = request.getfixturevalue("postgres_server")
    name = f"t{secrets.token_hex(6)}"
    server.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.database(name)
    server.sql(f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def opened(where: Where, flow: Making, host: str = "local", lives: int = 50) -> AsyncIterator[DbosEngine]:
    """One life of an engine in this process."""
    engine = DbosEngine(where, host, lives=lives)
    await engine.open(flow(engine))
    try:
        yield engine
    finally:
        await engine.close()


def counting(seen: list[str], gate: asyncio.Event | None = None) -> Making:
    """A flow of two phases that writes down what it runs; the second waits for the gate."""

    def make(engine: DbosEngine) -> Flow:
        async def flow(name: str) -> str:
            async def first() -> str:
                seen.append(f"{name} first")
                return "1"

            async def second() -> str:
                seen.append(f"{name} second")
                if gate is not None:
                    await gate.wait()
                return "2"

            return await engine.phase("first", first) + await engine.phase("second", second)

        return flow

    return make


async def reached(there: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds):
        while not there():  # noqa: ASYNC110 - a plain list or another process tells it
            await asyncio.sleep(0.01)


@dataclass
class Stage:
    """A database, and processes that run flows of four phases on it: see engine_child.py."""

    folder: Path
    where: Where
    living: list[asyncio.subprocess.Process] = field(default_factory=list)

    def lines(self, who: str = "") -> list[str]:
        """What the children wrote down, one of them or all."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{who} ")] if who else lines

    def let(self, name: str) -> None:
        """Open what a child waits for."""
        (self.folder / name).touch()

    async def start(self, who: str, *runs: str, **plan: object) -> asyncio.subprocess.Process:
        """A child. ``plan``: see engine_child.py."""
        where = self.where if isinstance(self.where, Path) else [self.where.url, self.where.password]
        whole = {"folder": str(self.folder), "where": where, "who": who, "runs": runs, **plan}
        path = self.folder / f"{who}.json"
        path.write_text(json.dumps(whole, default=str))
        child = await asyncio.create_subprocess_exec(sys.executable, str(CHILD), str(path))
        self.living.append(child)
        return child

    async def said(self, who: str, line: str) -> None:
        """Wait for a line of a child."""
        await reached(lambda: line in self.lines(who))

    async def end(self, child: asyncio.subprocess.Process) -> None:
        """Wait for a child's own end."""
        assert await asyncio.wait_for(child.wait(), 40) == 0


async def kill(child: asyncio.subprocess.Process) -> None:
    """End a child as a power cut would."""
    os.kill(child.pid, signal.SIGKILL)
    await child.wait()


@pytest.fixture
async def stage(tmp_path: Path, engine_at: Where) -> AsyncIterator[Stage]:
    made = Stage(tmp_path, engine_at)
    yield made
    for child in made.living:
        if child.returncode is None:
            await kill(child)
