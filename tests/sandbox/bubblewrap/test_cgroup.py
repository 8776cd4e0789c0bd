"""Where control groups are found, and what is written there; the limits themselves are proved by the contract suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.bubblewrap.cgroup import Group, Parent, _mounts, _settings, find_parent
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
    (unified / "cgroup.procs").write_text("999999999\n")
    assert group.processes() == {999999999}
    group._kill(group.processes())
    assert (unified / "cgroup.kill").read_text() == "1"


def test_a_limit_that_cannot_be_set_is_an_error_and_leaves_no_group(tmp_path: Path) -> None:
    parent = Parent((tmp_path,), unified=True)
    with pytest.raises(SandboxError, match=r"memory\.max"):
        parent.child("box", PROFILE)
    assert parent.children() == {}


def test_a_parent_that_cannot_be_made_is_refused_with_the_mend() -> None:
    with pytest.raises(SandboxUnavailableError, match="mend: "):
        find_parent("cgroup.procs/below-a-file")
