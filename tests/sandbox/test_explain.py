"""What a spec becomes, told for each backend from the very settings that are used."""

from __future__ import annotations

import pytest

from sandbox.rules.bwrap import bwrap_arguments
from sandbox.rules.docker import docker_settings
from sandbox.rules.explain import calls_told, explain
from sandbox.rules.profile import profile_of
from sandbox.types import MIB, Limits, SandboxSpec

SPEC = SandboxSpec(
    limits=Limits(memory=96 * MIB, processes=33, cpus=0.5, disk=7 * MIB, wall=12), env={"EXTRA": "1"}, network="model"
)


def told() -> dict[str, tuple[str, str, str]]:
    return {row.property: (row.asked, row.docker, row.bwrap) for row in explain(SPEC).rows}


def test_every_property_that_is_locked_has_a_row_and_every_limit_its_number() -> None:
    rows = told()
    assert {
        *("network", "capabilities", "new privileges", "system calls", "files, second layer", "system", "user"),
        *("/work", "/home/agent", "/tmp", "/dev/shm", "masked", "host name", "namespaces", "environment"),
        *("memory", "processes", "processors", "largest file", "open files", "core dumps", "output kept", "time"),
    } <= set(rows)
    assert "33" in rows["processes"][1]
    assert str(96 * MIB) in rows["memory"][1]
    assert "50000 of 100000" in rows["processors"][2]
    assert "EXTRA" in rows["environment"][0]
    assert "model gateway" in rows["network"][0]
    assert rows["network"][1:] == ("network_mode=none", "--unshare-net")
    assert "12 s" in rows["time"][0]


def test_the_raw_settings_are_those_that_are_used() -> None:
    profile, raw = profile_of(SPEC), explain(SPEC).raw
    assert {line.split(" = ")[0] for line in raw["docker"]} == set(docker_settings(profile, "x86_64"))
    held = {folder.path: f"KEPT{folder.path}" for folder in profile.folders}
    used = bwrap_arguments(profile, [], held=held, environment=dict(profile.environment), masked=profile.masked)
    shown = [word for line in raw["bwrap"] for word in line.split(" ")]
    assert [word for word in used if word not in shown] == []


def test_home_has_the_workspaces_quota() -> None:
    rows = told()
    assert "7 MiB" in rows["/work"][0]
    assert "7 MiB" in rows["/home/agent"][0]


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(KeyError):
        explain(SPEC, "riscv64")


def test_each_refused_call_is_told_once_with_its_reason() -> None:
    reasons = calls_told()
    assert len({why for why, _ in reasons}) == len(reasons)
    assert any("io_uring_setup" in names for _, names in reasons)
    assert ("new namespaces", "(clone)") in reasons
    for _, names in reasons:
        assert len(names.split()) == len(set(names.split()))
