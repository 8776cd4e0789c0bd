"""What an engine cannot keep is refused with the mend, before anything runs on it."""

from __future__ import annotations

import pytest

from sandbox.container.facts import detail_of, options_of, refusal_of, runc_told, users_mend

GOOD = {
    "OSType": "linux",
    "Architecture": "x86_64",
    "Runtimes": {"runc": {}, "crun": {}},
    "DefaultRuntime": "runc",
    "SecurityOptions": ["name=seccomp,profile=default"],
    "MemoryLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
    "SwapLimit": True,
    "CgroupVersion": "2",
}
VERSION = {"Components": [{"Name": "Engine", "Version": "20.10.24"}, {"Name": "runc", "Version": "1.1.5+ds1"}]}


def test_a_good_engine_is_taken() -> None:
    assert refusal_of(GOOD, None) is None
    assert refusal_of(GOOD, "crun") is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"MemoryLimit": False, "PidsLimit": False}, "cannot limit memory, processes; mend: enable"),
        ({"CpuCfsQuota": False}, "cannot limit processor time"),
        ({"SecurityOptions": ["name=rootless", "name=seccomp,profile=builtin"], "MemoryLimit": False}, "cgroup v2"),
        ({"SecurityOptions": []}, "filters no system calls"),
        ({"OSType": "windows"}, "runs windows containers"),
        ({"Architecture": "riscv64"}, "no system call filter for riscv64"),
    ],
)
def test_a_weaker_engine_is_refused(change: dict[str, object], words: str) -> None:
    refusal = refusal_of(GOOD | change, None)
    assert refusal is not None
    assert words in refusal
    assert "mend: " in refusal


def test_a_runtime_that_is_not_there_is_named_with_those_that_are() -> None:
    refusal = refusal_of(GOOD, "runsc")
    assert refusal == "it has no runtime runsc, only crun, runc; mend: scripts/start-docker start --runtime runsc"


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("1.1.5+ds1", True),
        ("1.0.0-rc93", True),
        ("1.1.15", True),
        ("1.2.7", True),
        ("1.2.8", False),
        ("1.3.2", True),
        ("1.3.3-0ubuntu1", False),
        ("1.4.0-rc.2", True),
        ("1.4.0-rc.3", False),
        ("1.4.0", False),
        ("2.0.1", False),
    ],
)
def test_a_runc_older_than_the_last_known_escapes_is_told(version: str, old: bool) -> None:
    """CVE-2024-21626, CVE-2025-31133, CVE-2025-52565, CVE-2025-52881."""
    told = runc_told(version)
    assert told.startswith(version)
    assert ("backported" in told) == old


def test_the_detail_names_runtime_groups_and_users() -> None:
    detail = detail_of(GOOD, VERSION, None)
    assert detail["runtime"] == "runc"
    assert detail["cgroup"] == "v2"
    assert detail["runc"].startswith("1.1.5+ds1 (older than 1.2.8; check that your distribution has backported")
    assert "runc" not in detail_of(GOOD, VERSION, "crun")
    remapped = GOOD | {"SecurityOptions": ["name=seccomp,profile=default", "name=userns"]}
    assert detail_of(remapped, VERSION, None)["users"] == "remapped"
    assert options_of(remapped) == {"seccomp", "userns"}
    assert "subuid" in users_mend(remapped)
    assert users_mend(GOOD) == ""
