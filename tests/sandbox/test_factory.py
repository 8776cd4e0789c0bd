"""Which backend is taken, and what is said when none can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandbox.base import Exits
from sandbox.bubblewrap.backend import BwrapBackend
from sandbox.config import SandboxConfig
from sandbox.container.backend import ContainerBackend
from sandbox.errors import SandboxUnavailableError
from sandbox.factory import choose_backend
from sandbox.owner import Owner, orphaned, owner_of
from sandbox.testing import ScriptedBackend
from sandbox.types import SelfTest


class Refusing(ScriptedBackend):
    closed = 0

    async def self_test(self) -> SelfTest:
        raise SandboxUnavailableError("it is not here; mend: install it")

    async def close(self) -> None:
        Refusing.closed += 1


def good(config: SandboxConfig, owner: Owner, exits: Exits) -> ScriptedBackend:
    return ScriptedBackend(exits=exits)


def bad(config: SandboxConfig, owner: Owner, exits: Exits) -> ScriptedBackend:
    return Refusing()


async def test_auto_takes_the_first_that_proves_its_claims(tmp_path: Path) -> None:
    closed = Refusing.closed
    chosen = await choose_backend(SandboxConfig(), state=tmp_path, backends={"docker": bad, "bwrap": good})
    assert not isinstance(chosen.bare, Refusing)
    assert isinstance(chosen.bare, ScriptedBackend)
    assert Refusing.closed == closed + 1  # what is turned down holds nothing
    await chosen.close()


async def test_the_ways_out_get_to_the_sandboxes(tmp_path: Path) -> None:
    ways = {"model": object()}
    seen = []

    def maker(config: SandboxConfig, owner: Owner, exits: Exits) -> ScriptedBackend:
        seen.append(exits)
        return ScriptedBackend()

    await (await choose_backend(SandboxConfig(), state=tmp_path, exits=ways, backends={"docker": maker})).close()
    assert seen == [ways]


async def test_a_named_backend_is_never_replaced_by_another(tmp_path: Path) -> None:
    config = SandboxConfig(backend="docker")
    with pytest.raises(SandboxUnavailableError, match="docker: it is not here"):
        await choose_backend(config, state=tmp_path, backends={"docker": bad, "bwrap": good})


async def test_with_none_every_reason_and_mend_is_told(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailableError) as caught:
        await choose_backend(SandboxConfig(), state=tmp_path, backends={"docker": bad, "bwrap": bad})
    assert str(caught.value).count("mend: install it") == 2
    assert "docker:" in str(caught.value)
    assert "bwrap:" in str(caught.value)


async def test_no_engine_is_told_in_plain_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    backend = ContainerBackend(SandboxConfig(), owner_of(tmp_path))
    with pytest.raises(SandboxUnavailableError, match=r"no Docker engine listens.*mend"):
        await backend.self_test()


async def test_a_machine_without_a_control_group_of_ours_is_told(tmp_path: Path) -> None:
    backend = BwrapBackend(SandboxConfig(cgroup="cgroup.procs/below-a-file"), owner_of(tmp_path))
    with pytest.raises(SandboxUnavailableError, match="mend"):
        await backend.self_test()


@pytest.mark.parametrize("name", ["", "..", "../x", "a/../b", "/abs", "a b", "a'; x", "a//b", "a/", ".hidden"])
def test_a_control_group_cannot_be_named_outside_its_hierarchy(name: str) -> None:
    with pytest.raises(ValidationError):
        SandboxConfig(cgroup=name)


def test_a_name_is_left_behind_only_by_a_dead_process_of_the_same_state(tmp_path: Path) -> None:
    mine, other = owner_of(tmp_path), owner_of(tmp_path / "other")
    dead = Owner(mine.tag, 2**22 + 1, 5)
    reborn = Owner(mine.tag, os.getpid(), mine.start + 1)
    assert not mine.left_behind(mine.new_name())
    assert mine.left_behind(dead.new_name())
    assert mine.left_behind(reborn.new_name())
    assert not mine.left_behind(Owner(other.tag, dead.pid, 5).new_name())
    for name in ("", "agent-swarm", "swarm-x", dead.new_name() + "x", "swarm-" + mine.tag):
        assert not mine.left_behind(name)
    assert mine.new_name() != mine.new_name()
    assert orphaned(Owner(other.tag, dead.pid, 5).new_name())
    assert not orphaned(other.new_name())
