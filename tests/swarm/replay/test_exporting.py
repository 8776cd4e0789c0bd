"""The file that leaves the house is the recording, without its right and without a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pool.testing import ScriptedPool
from swarm.config import Settings
from swarm.errors import ReplayError
from swarm.replay import bundle
from swarm.replay.exporting import exported
from swarm.salvage.shelf import Shelf
from swarm.types import TaskState
from tests.swarm.replay.conftest import MEND, call, finish

KEY = "the-key-of-the-model-server-0123456789"
POOL = {"endpoints": [{"name": "box", "url": "http://127.0.0.1:9", "api_key_env": "BOX_KEY"}]}


@pytest.mark.slow
async def test_what_is_exported_is_the_recording_without_the_right_or_any_secret_that_is_known(
    bench: Any, name: str, record: Any, tmp_path: Path
) -> None:
    bench.pool = ScriptedPool([call("shell", command=f"{MEND} # {KEY}"), finish(), finish()])
    settings = Settings.model_validate({"pool": POOL})
    async with bench.open():
        await bench.submit(name, strategy="agent")
        shelf = Shelf(bench.folder / "git", bench.store)
        await bench.until(name, TaskState.DELIVERED)
        facts, content = await exported(bench.store, shelf, settings, {"BOX_KEY": KEY}, name)
        unknown, _ = await exported(bench.store, shelf, settings, {}, facts.attempt)
        recorded, objects = await record(name)
        with pytest.raises(ReplayError, match="is not in this host's git folder of demo"):
            await exported(bench.store, Shelf(tmp_path, bench.store), settings, {}, name)
    bundle.write(tmp_path / "x.tar.gz", content)
    read, read_objects = bundle.read(tmp_path / "x.tar.gz")
    assert (facts.attempt, facts.bytes, facts.unknown_secrets) == (recorded.attempt.id, len(content), ())
    assert facts.struck >= 1
    assert read_objects == objects
    assert read.sealed == recorded.sealed
    assert KEY not in read.model_dump_json()
    assert read.task.request.capability == ""
    assert KEY in recorded.model_dump_json()
    assert unknown.unknown_secrets == ("pool.endpoints[0].api_key_env (BOX_KEY)",)
