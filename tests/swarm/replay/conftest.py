"""Attempts of the real agent loop, recorded on the bench, and what replays them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pool.types import Choice, ToolCall
from sandbox.types import SandboxSpec
from swarm.agent import Agent
from swarm.config import Settings
from swarm.replay.making import recording
from swarm.replay.record import Recording
from swarm.replay.replayer import Means, Replayer
from swarm.replay.verdict import Verdict
from swarm.salvage.shelf import Shelf
from swarm.strategies.choice import strategy_named

MEND = "sed -i 's/min(x, low)/min(x, high)/' clamp.py"


def call(name: str, **arguments: Any) -> Choice:
    """An answer with one call."""
    return Choice(
        tool_calls=(ToolCall(id="c", name=name, arguments=json.dumps(arguments)),), finish_reason="tool_calls"
    )


def finish() -> Choice:
    return call("finish", title="Fix clamp", summary="the upper bound was wrong")


@pytest.fixture
def record(bench: Any) -> Callable[..., Any]:
    """Has a task worked on by the agent with these answers; the recording and its objects."""

    async def recorded(name: str) -> tuple[Recording, bytes]:
        shelf = Shelf(bench.folder / "git", bench.store)
        return await recording(bench.store, shelf, Settings(), name)

    bench.strategies = {"agent": Agent(), "sampled_repair": strategy_named("sampled_repair"), **bench.strategies}
    return recorded


@pytest.fixture
def replay(bench: Any, tmp_path: Path) -> Callable[..., Any]:
    """Replays a recording in sandboxes of the bench's kind."""
    count = iter(range(100))

    async def replayed(recorded: Recording, objects: bytes, **more: Any) -> Verdict:
        folder = tmp_path / f"replay-{next(count)}"
        folder.mkdir()
        named = more.pop("strategy", strategy_named)
        means = Means(bench.rooms, SandboxSpec(), named, folder, patience=more.pop("patience", 20.0))
        return await Replayer(recorded, means).run(objects)

    return replayed
