"""Where control groups are found, and what is written there; the limits themselves are proved by the contract suite."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.bubblewrap.cgroup import (
    Group,
    Parent,
    _mounts,
    _settings,
    _step_aside,
    _unified,
    delegated_group,
    find_parent,
)
from sandbox.errors import SandboxError, SandboxUnavailableError
from sandbox.rules.profile import profile_of
from sandbox.types import MIB, Limits, SandboxSpec

PROFILE = profile_of(SandboxSpec(limits=Limits(memory=64 * MIB, processes=9, cpus=1.5)))
HYBRID = """\
30 29 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
31 29 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 29 0:28 / /sys/fs/cgroup/pids rw,relatime shared:1 master:2 - cgroup none rw,pids
33 29 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 29 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
35 29 0:31 / /proc rw - proc proc rw
"""


def test_controllers_are_found_where_they_are_mounted() -> None:
    assert _mounts(HYBRID) == {
        "cpu": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "memory": Path("/sys/fs/cgroup/memory"),
        "pids": Path("/sys/fs/cgroup/pids"),
        "unified": Path("/sys/fs/cgroup/unified"),
    }


def test_both_versions_say_the_same_limits() -> None:
    old, new = dict(_settings(PROFILE, unified=False)), dict(_settings(PROFILE, unified=True))
    assert old["memory.limit_in_bytes"] == old["memory.memsw.limit_in_bytes?"] == new["memory.max"] == str(64 * MIB)
    assert new["memory.swap.max?"] == "0"
    assert old["pids.max"] == new["pids.max"] == "9"
    assert new["memory.oom.group?"] == "0"
    assert new["cpu.max"] == f"{old['cpu.cfs_quota_us']} {old['cpu.cfs_period_us']}" == "150000 100000"


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    """A folder that looks like version 2 to the code; no kernel behind it."""
    folder = tmp_path / "box"
    folder.mkdir()
    for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cgroup.procs", "cgroup.kill"):
        (folder / name).write_text("")
    (folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    return folder


async def test_version_2_files_are_read_and_written(unified: Path) -> None:
    group = Group((unified,), unified=True)
    assert group.oom_kills() == 2
    assert group.entrances == (unified / "cgroup.procs",)
    (unified / "pids.max").write_text("9\n")
    assert await group.empty()
    assert (unified / "pids.max").read_text() == "9"
    assert group.limited
    (unified / "pids.max").write_text("max\n")
    assert not group.limited
    (unified / "cgroup.procs").write_text("999999999\n")
    assert group.processes() == {999999999}
    group._kill(group.processes())
    assert (unified / "cgroup.kill").read_text() == "1"


def test_processes_that_we_cannot_see_are_neither_our_own_nor_gone(unified: Path) -> None:
    """To the kernel, pid 0 is the caller's own process group; cgroup.procs shows it for another namespace's."""
    program = f"""
import asyncio
from pathlib import Path
from sandbox.bubblewrap import cgroup
cgroup._PATIENCE = 0.1
print(asyncio.run(cgroup.Group((Path({str(unified)!r}),), unified=True).empty()))
"""
    (unified / "cgroup.procs").write_text("0\n0\n1\n")
    root = Path(__file__).parents[3]
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        start_new_session=True,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (0, "False\n"), ended.stderr
    assert (unified / "cgroup.kill").read_text() == "1"


def test_a_limit_that_cannot_be_set_is_an_error(tmp_path: Path) -> None:
    parent = Parent((tmp_path,), unified=True)
    group = parent.child("box")
    with pytest.raises(SandboxError, match=r"memory\.max"):
        group.limit(PROFILE)
    with pytest.raises(SandboxError, match="exists"):
        parent.child("box")


def test_a_parent_that_cannot_be_made_is_refused_with_the_mend() -> None:
    with pytest.raises(SandboxUnavailableError, match="mend: "):
        find_parent("cgroup.procs/below-a-file")


def folder_of(path: Path, *files: str) -> Path:
    """A version 2 group as the code sees it."""
    path.mkdir(parents=True)
    for name in files:
        (path / name).write_text("")
    return path


FILES = ("cgroup.procs", "cgroup.subtree_control")


def test_the_group_of_a_delegated_service_is_found_also_when_it_was_found_before(tmp_path: Path) -> None:
    own = folder_of(tmp_path / "user.slice/app.slice/swarm.service", *FILES)
    said = "12:pids:/other\n0::/user.slice/app.slice/swarm.service\n"
    assert delegated_group(tmp_path, said) == own
    assert delegated_group(tmp_path, said.replace("service\n", "service/daemon\n")) == own
    assert delegated_group(tmp_path, "0::/user.slice\n") is None, "not handed over"
    assert delegated_group(tmp_path, "0::/\n") is None, "the root is nobody's"
    assert delegated_group(tmp_path, "5:memory:/x\n") is None


def test_a_delegated_group_is_used_where_the_root_is_closed_and_its_processes_step_aside(tmp_path: Path) -> None:
    own = folder_of(tmp_path / "swarm.service", *FILES)
    (own / "cgroup.procs").write_text("999999\n")
    (tmp_path / "agent-swarm").touch()  # cannot be made into a folder, as a root that is not ours
    folder_of(own / "daemon", "cgroup.procs")
    parent = _unified(tmp_path, "agent-swarm", own)
    assert parent == Parent((own / "agent-swarm",), unified=True)
    assert (own / "daemon" / "cgroup.procs").read_text() == "999999"
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    with pytest.raises(SandboxUnavailableError, match="prepare-sandbox"):
        _unified(tmp_path, "agent-swarm", None)
    (tmp_path / "mine").touch()
    with pytest.raises(SandboxUnavailableError, match="run AGENT_SWARM_CGROUP=mine scripts/prepare-sandbox "):
        _unified(tmp_path, "mine", None)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Path]:
    """A real version 2 group, in whatever hierarchy this kernel has one; its controllers do not matter here."""
    unified = _mounts(Path("/proc/self/mountinfo").read_text()).get("unified")
    if unified is None:
        pytest.skip("no version 2 hierarchy is mounted")
    folder = unified / f"agent-swarm-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    for path in (*(entry for entry in folder.iterdir() if entry.is_dir()), folder):
        path.rmdir()


def started(group: Path, script: str) -> subprocess.Popen[bytes]:
    enter = f"echo 0 >{group}/cgroup.procs; echo in; {script}"
    process = subprocess.Popen(["sh", "-c", enter], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


@pytest.mark.root
async def test_a_real_version_2_group_is_killed_with_all_that_left_its_session(real: Path) -> None:
    process = started(
        real, "for n in 1 2 3 4 5; do setsid sleep 600 & done; trap '' TERM; while :; do sleep 0.01; done"
    )
    group = Group((real,), unified=True)
    assert process.pid in group.processes()
    assert await group.empty()
    assert group.processes() == set()
    assert process.wait(5) == -signal.SIGKILL


@pytest.mark.root
def test_processes_of_a_real_group_step_aside_so_that_it_may_limit_others(real: Path) -> None:
    process = started(real, "exec sleep 600")
    try:
        _step_aside(real)
        assert (real / "cgroup.procs").read_text() == ""
        assert (real / "daemon" / "cgroup.procs").read_text().split() == [str(process.pid)]
    finally:
        process.kill()
        process.wait()
