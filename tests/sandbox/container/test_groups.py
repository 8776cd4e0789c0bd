"""What a removed container left in its control group is found and ended, and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.container.groups import empty, groups_of, inside

ID = "ab" * 32


@pytest.mark.parametrize("where", ["pids/docker/{}", "docker/{}", "system.slice/docker-{}.scope"])
async def test_a_survivor_is_ended_and_a_neighbour_is_not(tmp_path: Path, where: str) -> None:
    group, neighbour = tmp_path / where.format(ID) / "nested", tmp_path / where.format("cd" * 32)
    for folder in (group, neighbour):
        folder.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"]) as survivor, subprocess.Popen(["sleep", "60"]) as other:  # noqa: ASYNC220
        file = group / "cgroup.procs"
        file.write_text(f"{survivor.pid}\n")
        (neighbour / "cgroup.procs").write_text(f"{other.pid}\n")
        assert inside(groups_of(ID, tmp_path)) == {survivor.pid}
        ending = asyncio.create_task(empty(ID, tmp_path))
        assert await asyncio.to_thread(survivor.wait, 10) == -9
        file.write_text("")  # as the kernel does
        assert await ending == 1
        assert other.poll() is None
        other.kill()


async def test_a_group_that_is_gone_or_a_name_that_is_no_id_means_nothing_to_do(tmp_path: Path) -> None:
    assert await empty(ID, tmp_path) == 0
    for name in ("", "..", "ab", ID[:-1], ID + "/..", "../" * 22):
        assert groups_of(name, tmp_path) == []


async def test_survivors_that_we_cannot_see_are_told_and_our_own_group_lives(tmp_path: Path) -> None:
    """To the kernel, pid 0 is the caller's own process group; cgroup.procs shows it for another namespace's."""
    group = tmp_path / "docker" / ID
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("0\n")
    (group / "cgroup.kill").write_text("")
    program = f"""
import asyncio
from pathlib import Path
from sandbox.container import groups
groups._PATIENCE = 0.1
try:
    asyncio.run(groups.empty({ID!r}, Path({str(tmp_path)!r})))
except groups.SandboxError as error:
    print(error)
"""
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        start_new_session=True,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert "outlived their container" in ended.stdout
    assert (group / "cgroup.kill").read_text() == "1"
