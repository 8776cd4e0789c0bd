"""`swarm salvage` with the daemon down and the database gone: everything on the disk is found, shown and taken.

jwbron/egg#2463: after a restart the salvage tool saw one of 34 work trees, just when it was needed.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.trees.keeping import Keeping
from swarm.cli import app
from swarm.salvage import entries
from swarm.salvage.entries import About
from swarm.types import Step
from tests.swarm.salvage.conftest import BASE, WORK, Left, git, put, read, whole

COUNT = 34


@pytest.fixture
async def installation(left: Left, tmp_path: Path) -> Any:
    """Runs `swarm` on a state folder that holds nothing but git folders; output and exit code."""
    config = tmp_path / "swarm.toml"
    config.write_text(
        f'[daemon]\nstate = "{left.state}"\nsocket = "{tmp_path}/none.sock"\n'
        '[[pool.endpoints]]\nname = "box"\nurl = "http://127.0.0.1:1"\ntier = "small"\n'
    )

    async def run(*words: str) -> int:
        return await asyncio.to_thread(app.main, ["--config", str(config), *words])

    return run


async def _told(left: Left, attempt: str) -> None:
    """A transcript of an attempt."""
    task, number = entries.task_of(attempt)
    about = About(
        task=task,
        attempt=attempt,
        repository="demo",
        number=number,
        title=f"mend {task}",
        ended=2.0,
        ending="gave_up",
        last=1,
    )
    step = Step(
        task=task, attempt=attempt, seq=1, at=1.0, kind="note", data={"text": "a line of \x1b[31mits\x1b[0m story"}
    )
    files = {entries.ABOUT: about.model_dump_json().encode(), "journal/000000000001.jsonl": entries.part([step])}
    await Keeping(left.folder / "demo.git").append(
        f"refs/transcripts/{attempt}", files, entries.words(about), anew=True
    )


@pytest.mark.slow
async def test_all_that_was_left_is_listed_without_daemon_and_database(
    left: Left, installation: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(COUNT):
        await left.leave(f"t{number}-1-abcd", WORK)
    await left.leave("t1-1-abcd", BASE, ref="refs/left/swarm-x-1")
    await _told(left, "t2-1-abcd")
    await _told(left, "only-1-told")
    assert await installation("salvage", "list", "--json") == 0
    out, err = capsys.readouterr()
    found = {entry["id"]: entry for entry in json.loads(out)}
    assert len(found) == COUNT + 2
    assert "without the database" in err
    assert (found["swarm-x-1"]["kind"], found["swarm-x-1"]["attempt"]) == ("left", "t1-1-abcd")
    assert (found["t2-1-abcd"]["title"], found["t2-1-abcd"]["ending"], found["t2-1-abcd"]["whole"]) == (
        "mend t2",
        "gave_up",
        True,
    )
    assert not (left.state / "swarm.db").exists()


async def test_one_is_shown_with_its_files_its_change_and_its_story(
    left: Left, installation: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await left.leave("t2-1-abcd", WORK)
    await _told(left, "t2-1-abcd")
    assert await installation("salvage", "show", "t2", "--diff", "--transcript") == 0
    out = capsys.readouterr().out
    assert "new/deep/file.txt" in out
    assert "+TWO" in out
    assert "a line of its story" in out
    assert "\x1b" not in out
    assert await installation("salvage", "show", "t9") == 6


async def test_work_is_applied_or_told_why_not(
    left: Left, installation: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = left.checkout(tmp_path / "mine")
    await left.leave("t2-1-abcd", WORK)
    put(mine, {"bin": b"\0mine"})
    assert await installation("salvage", "apply", "t2", "--to", str(mine)) == 7
    assert "binary" in capsys.readouterr().out
    assert read(mine) == whole({**BASE, "bin": b"\0mine"})
    git("checkout", "-q", "bin", cwd=mine)
    assert await installation("salvage", "apply", "t2", "--to", str(mine)) == 0
    assert read(mine) == whole(WORK)
    capsys.readouterr()
    assert await installation("salvage", "apply", "t2", "--to", str(mine), "--branch", "mended", "--json") == 0
    assert git("rev-parse", "mended", cwd=mine) == json.loads(capsys.readouterr().out)["commit"]


async def test_a_folder_or_branch_that_does_not_take_the_work_is_the_persons_own_matter(
    left: Left, installation: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = left.checkout(tmp_path / "mine")
    await left.leave("t2-1-abcd", WORK)
    git("branch", "taken", cwd=mine)
    before = git("rev-parse", "taken", cwd=mine)
    empty = tmp_path / "empty"
    empty.mkdir()
    for words, told in (
        (("--to", str(mine), "--branch", "taken"), "has a branch taken already"),
        (("--to", str(mine), "--branch", "no..name"), "no name of a branch"),
        (("--to", str(empty), "--branch", "new"), "is in no git repository"),
        (("--to", str(tmp_path / "nowhere")), "nowhere"),
    ):
        assert await installation("salvage", "apply", "t2", *words) == 7, words
        said = capsys.readouterr().err
        assert told in said
        assert "mend: name" in said
        assert "sandbox doctor" not in said
        assert "fatal" not in said
    assert git("rev-parse", "taken", cwd=mine) == before


async def test_nothing_is_cleared_away_where_no_database_tells_what_is_finished(
    left: Left, installation: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await left.leave("t2-1-abcd", WORK)
    assert await installation("salvage", "prune", "--yes") == 1
    assert "swarm.db" in capsys.readouterr().err
    assert len(await Keeping(left.folder / "demo.git").kept("refs/salvage/")) == 1
