"""What is missing keeps the queue still, and what is there again sets it going."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pool.types import EndpointStatus
from swarm.config_scheduling import SchedulingConfig
from swarm.preflight import Ground, Preflight
from swarm.scheduling.facts import Caps
from swarm.store.store import Store

UP = EndpointStatus(name="box", tier="fast", url="http://127.0.0.1:9", state="up", window=8192)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store(tmp_path / "swarm.db") as opened:
        yield opened


async def well() -> str:
    return ""


async def test_each_thing_that_is_missing_is_told_and_what_comes_back_wakes_the_queue(
    store: Store, tmp_path: Path
) -> None:
    """AO#2652, aimee PR#1951, gh-aw-firewall#361: the disk has a floor before anything begins."""
    ground = Ground((tmp_path,), 0, ("fast",), 2048, lambda: (UP,), well, {})
    woken: list[int] = []

    async def held(ground: Ground) -> list[str]:
        await Preflight(ground, store.queue, lambda: woken.append(1)).once()
        return [hold.scope for hold in store.queue.holds]

    async def away() -> str:
        return "nobody listens"

    assert await held(ground) == []
    assert await held(replace(ground, floor=2**62)) == ["fleet"]
    assert woken == []
    assert await held(replace(ground, images={"web": tmp_path / "none"})) == ["repository:web"]
    assert woken == [1]
    assert await held(replace(ground, servers=lambda: (UP.model_copy(update={"draining": True}),))) == ["tier:fast"]
    assert await held(replace(ground, window=100_000)) == ["tier:fast"]
    assert await held(replace(ground, broker=away)) == ["fleet"]
    assert await held(ground) == []
    assert len(woken) == 4


async def test_the_disk_of_a_folder_that_is_still_to_be_made_is_looked_at(store: Store, tmp_path: Path) -> None:
    ground = Ground((tmp_path / "not" / "yet",), 2**62, (), 0, tuple, well, {})
    assert len(await Preflight(ground, store.queue, lambda: None).once()) == 1


def test_the_settings_are_the_caps() -> None:
    """aws-samples/sample-autonomous-cloud-coding-agents PR#307: a setting that changed nothing."""
    said = SchedulingConfig(fleet=9, per_repository=1, per_user=2, per_tier=3, users={"ann": 4})
    assert said.caps == Caps(fleet=9, per_repository=1, per_user=2, per_tier=3, users={"ann": 4})
