"""`swarm replay` tells apart what is another tree and what cannot be replayed, with its own exit codes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from pool.testing import ScriptedPool
from swarm.cli import app
from swarm.replay import bundle
from swarm.types import TaskState
from tests.swarm.replay.conftest import MEND, call, finish
from tests.swarm.replay.test_bundle import recorded


def test_a_file_that_is_none_ends_with_its_own_code_and_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(b"no archive")
    assert app.main(["replay", str(path)]) == 21
    err = capsys.readouterr().err
    assert str(path) in err
    assert "mend: " in err
    assert "Traceback" not in err


@pytest.mark.root
def test_an_attempt_that_cannot_be_replayed_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.tar.gz"
    one = recorded()
    bundle.write(path, bundle.packed(one, b""))
    assert app.main(["replay", str(path)]) == 21
    assert "never came to work" in capsys.readouterr().err
    path.unlink()
    strange = one.attempt.model_copy(update={"strategy": "cli:codex"})
    bundle.write(path, bundle.packed(one.model_copy(update={"attempt": strange}), b""))
    assert app.main(["replay", str(path)]) == 21
    assert "from inside its sandbox" in capsys.readouterr().err


SETTINGS = """
[daemon]
state = "{state}"
[sandbox]
backend = "bwrap"
[sandbox.images]
disk_floor = 0
[pool.embedded]
enabled = true
[repositories.demo]
setup = ["echo made >made"]
setup_inputs = ["*.txt"]
[repositories.plain]
setup = ["exit 7"]
"""


async def _replay(path: Path, *options: str) -> tuple[int, str]:
    argv = (sys.executable, "-m", "swarm", "replay", str(path), *options)
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_strangers_file_is_set_up_by_nobodys_settings_and_touches_nothing_of_the_daemons(
    bench: Any, name: str, record: Any, tmp_path: Path
) -> None:
    """A file whose manifest named a repository of the reader's left its set-up for that repository's next task."""
    bench.test_command = "python3 -m unittest -v"
    bench.pool = ScriptedPool([call("shell", command=MEND), finish(), finish()])
    async with bench.open():
        await bench.submit(name, strategy="agent")
        await bench.until(name, TaskState.DELIVERED)
        one, objects = await record(name)
    assert one.task.request.repository == "demo"
    path, state, settings = tmp_path / "x.tar.gz", tmp_path / "daemon", tmp_path / "swarm.toml"
    bundle.write(path, bundle.packed(one, objects))
    state.mkdir(mode=0o700)
    settings.write_text(SETTINGS.format(state=state))
    found = [await _replay(path, *more, "--config", str(settings)) for more in ((), ("--as", "demo"))]
    assert [code for code, _ in found] == [0, 0], found
    assert "'the default'" not in found[0][1]
    assert ["--network" in said for _, said in found] == [False, True], found
    assert list(state.iterdir()) == []
    code, said = await _replay(path, "--as", "plain", "--config", str(settings))
    assert (code, "exit 7" in said) == (9, True), said
    code, said = await _replay(path, "--as", "nobody", "--config", str(settings))
    assert (code, "[repositories.nobody]" in said) == (21, True), said
