"""Cases, pretend sandboxes, and runs of an evaluation over them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from sandbox.config import ImagesConfig
from sandbox.images.prepare import Preparer
from sandbox.images.realise import Realiser
from sandbox.images.setup import Ground
from sandbox.images.shelf import shelves_in
from sandbox.testing import ScriptedBackend
from sandbox.types import Command, SandboxSpec
from swarm.config import RepositoryConfig
from swarm.evaluation.case import Case, File, Hidden, Solution
from swarm.evaluation.plan import NO_TIER, Plan, Way
from swarm.evaluation.reference import SCRIPTED
from swarm.evaluation.results import Folder, Standing, Try
from swarm.evaluation.runner import Bounds, Runner
from swarm.evaluation.trying import Means
from swarm.rooms import Rooms
from swarm.strategies.choice import strategy_named
from swarm.types import Budget, Conclusion
from swarm.work import Strategy, Work

BUG = b"def clamp(x, low, high):\n    return max(low, min(x, low))\n"
GOOD = b"def clamp(x, low, high):\n    return max(low, min(x, high))\n"
TESTS = b"""import unittest
from clamp import clamp


class Clamp(unittest.TestCase):
    def test_high(self):
        self.assertEqual(clamp(9, 0, 5), 5)

    def test_low(self):
        self.assertEqual(clamp(-1, 0, 5), 0)
"""
UNITTEST = f"{sys.executable} -m unittest -v test_hidden"
PYTEST = f"{sys.executable} -m pytest -q test_hidden.py"


def case(name: str = "clamp", **more: Any) -> Case:
    """A case with a bug, hidden tests and the known solution."""
    files = more.pop("files", {"clamp.py": BUG})
    hidden = {"files": (File(path="test_hidden.py", content=TESTS),), "command": UNITTEST} | more.pop("hidden", {})
    more.setdefault("solution", Solution(files=(File(path="clamp.py", content=GOOD),)))
    return Case(
        id=name,
        statement=more.pop("statement", "clamp returns the lower bound; mend it"),
        files=tuple(File(path=path, content=content) for path, content in files.items()),
        hidden=Hidden.model_validate(hidden),
        **more,
    )


class Writes:
    """A strategy that runs a shell script, then says that it is done."""

    def __init__(self, script: str, ending: str = "finished") -> None:
        self._script = script
        self._ending = ending
        self.output = b""

    async def work(self, work: Work) -> Conclusion:
        outcome = await work.sandbox.run(Command(argv=("/bin/sh", "-c", self._script)))
        self.output = outcome.output
        return Conclusion(ending=self._ending, title="done")


def plan_of(cases: Iterable[Case], *ways: str, **more: Any) -> Plan:
    """What a run of these cases is begun with."""
    return Plan(
        program="1",
        set="test",
        origin="made for tests",
        licence="Apache-2.0",
        cases={one.id: one.digest for one in cases},
        ways=tuple(Way(strategy=way, tier=NO_TIER if way in SCRIPTED else "small") for way in ways),
        budget=more.pop("budget", Budget(attempts=1)),
        **more,
    )


def means_over(folder: Path) -> Means:
    """Over pretend sandboxes, which run real processes."""
    backend, config = ScriptedBackend(), ImagesConfig(disk_floor=0)
    shelves = shelves_in(folder, config)
    repositories: dict[str, RepositoryConfig] = {}
    preparer, realiser = Preparer(backend, shelves.setups), Realiser("bwrap", None, shelves.images, config)
    rooms = Rooms(backend, preparer, realiser, Ground(backend="bwrap", system="scripted"), repositories)
    return Means(rooms, repositories, SandboxSpec(), strategy_named)


@pytest.fixture
def means(tmp_path: Path) -> Means:
    """As `means_over` has them."""
    (tmp_path / "made").mkdir()
    return means_over(tmp_path / "made")


Evaluate = Callable[..., Awaitable[tuple[str, Folder, list[Try | Standing]]]]


@pytest.fixture
def evaluate(means: Means, tmp_path: Path) -> Evaluate:
    """Runs cases in ways; why it stopped, its folder, and what was told. ``named`` are strategies by name."""

    async def run(
        cases: Iterable[Case],
        *ways: str,
        named: dict[str, Strategy] | None = None,
        bounds: Bounds | None = None,
        out: str = "run",
        **more: Any,
    ) -> tuple[str, Folder, list[Try | Standing]]:
        known = {one.id: one for one in cases}
        told: list[Try | Standing] = []
        own = Means(means.rooms, means.repositories, means.spec, (named or {}).__getitem__, pool=more.pop("pool", None))
        folder = Folder(tmp_path / out)
        why = await Runner(
            plan_of(known.values(), *ways, **more), known, own, folder, bounds or Bounds(), told.append
        ).run()
        return why, folder, told

    return run


def tried(told: Iterable[Try | Standing]) -> list[Try]:
    """The tries alone."""
    return [row for row in told if isinstance(row, Try)]
