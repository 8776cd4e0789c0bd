"""What bubblewrap sandboxes have of their own: uids, groups, files; and what a backend finds out before it is used."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.base import Sandbox
from sandbox.bubblewrap.backend import BwrapBackend, namespaces_mend
from sandbox.bubblewrap.seccomp import compile_filter
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxError, SandboxLostError, SandboxUnavailableError
from sandbox.owner import owner_of
from sandbox.types import MIB, Command, Limits, SandboxSpec


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mounted() -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if line.split()[1].startswith("/mnt")]


def has_pids(folder: Path) -> bool:
    return (folder / "pids.max").exists()


async def read_again(box: Sandbox, path: str) -> bytes:
    """Once the loss was noticed a new supervisor answers."""
    for _ in range(100):
        try:
            return await box.read(path)
        except SandboxLostError:
            await asyncio.sleep(0.05)
    raise AssertionError("no supervisor came back")


@pytest.mark.root
async def test_a_filter_that_lets_everything_through_is_found_out(backend: BwrapBackend) -> None:
    hole = os.memfd_create("hole")
    os.write(hole, compile_filter(()))
    machine = await backend.machine()
    os.close(machine.filter)
    backend._machine = replace(machine, filter=hole)
    with pytest.raises(SandboxUnavailableError, match="does not keep") as caught:
        await backend.self_test()
    for claim in ("no io_uring", "no ptrace", "no socket family but unix and inet"):
        assert claim in str(caught.value)


@pytest.mark.root
async def test_every_sandbox_has_a_uid_of_its_own_and_leaves_nothing(tmp_path: Path) -> None:
    before, mounts = open_files(), mounted()
    backend = BwrapBackend(SandboxConfig(), owner_of(tmp_path))
    try:
        async with backend.open(SandboxSpec()) as one, backend.open(SandboxSpec()) as two, one.fork() as fork:
            assert one.cell.uid != two.cell.uid
            assert one.cell.uid == fork.cell.uid, "the frozen layers are owned by it"
            await fork.run(Command(argv=("true",)))
            assert mounted() == mounts
            groups = [folder for box in (one, two, fork) for folder in box.cell.group.folders]
            assert all(folder.is_dir() for folder in groups)
        assert not any(folder.exists() for folder in groups)
    finally:
        await backend.close()
    assert open_files() == before


@pytest.mark.root
async def test_a_killed_supervisor_is_started_again_and_the_workspace_is_still_there(backend: BwrapBackend) -> None:
    async with backend.open(SandboxSpec()) as box:
        await box.write("kept", b"1")
        home = await box.run(Command(argv=("sh", "-c", "echo 2 >~/kept")))
        assert home.exit_code == 0
        for _ in range(3):
            assert await box.cell.group.empty()
            assert await read_again(box, "kept") == b"1"
        assert (await box.run(Command(argv=("sh", "-c", "cat ~/kept")))).text == "2\n"


@pytest.mark.root
async def test_a_killed_helper_loses_processes_but_no_workspace(backend: BwrapBackend) -> None:
    async with backend.open(SandboxSpec()) as box:
        await box.write("kept", b"1")
        os.kill(backend._helper._pid, 9)
        for _ in range(200):
            if not box.cell.group.processes():
                break
            await asyncio.sleep(0.02)
        assert not box.cell.group.processes(), "bubblewrap outlived the process that started it"
        assert await read_again(box, "kept") == b"1"


@pytest.mark.root
async def test_the_argument_list_of_bubblewrap_is_not_readable_inside(backend: BwrapBackend, tmp_path: Path) -> None:
    async with backend.open(SandboxSpec(env={"CANARY": "ca" + "nary"})) as box:
        seen = await box.run(
            Command(argv=("sh", "-c", "cat /proc/*/cmdline /proc/*/environ /proc/mounts | tr '\\0' ' '"))
        )
    for word in ("--ro-bind", "site-packages", str(tmp_path), "agent-swarm"):
        assert word not in seen.text


@pytest.mark.root
async def test_a_closed_sandbox_says_so_and_forks_of_it_live_on(backend: BwrapBackend) -> None:
    async with backend.open(SandboxSpec()) as box:
        await box.write("kept", b"1")
        forking = box.fork()
        fork = await forking.__aenter__()
    with pytest.raises(SandboxLostError, match="closed"):
        await box.run(Command(argv=("true",)))
    assert await fork.read("kept") == b"1"
    await forking.__aexit__(None, None, None)


@pytest.mark.root
async def test_an_open_that_is_cancelled_leaves_no_group(backend: BwrapBackend) -> None:
    parent = (await backend.machine()).parent

    async def forever() -> None:
        async with backend.open(SandboxSpec()):
            await asyncio.sleep(60)

    for delay in (0, 0.002, 0.01, 0.03, 0.1):
        task = asyncio.create_task(forever())
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await backend.close()
    assert not [name for name in parent.children() if backend._owner.tag in name]


@pytest.mark.root
async def test_a_sandbox_whose_end_is_cancelled_again_and_again_leaves_nothing(tmp_path: Path) -> None:
    """Neither its groups nor its namespaces, which hold the memory of its workspace."""
    backend = BwrapBackend(SandboxConfig(), owner_of(tmp_path))
    machine = await backend.machine()
    async with backend.open(SandboxSpec()):
        pass
    before = open_files()

    async def one() -> None:
        async with backend.open(SandboxSpec()) as box, box.fork() as fork:
            await asyncio.gather(*(each.run(Command(argv=("sleep", "60"))) for each in (box, fork)))

    for delay in range(0, 120, 8):
        task = asyncio.create_task(one())
        await asyncio.sleep(delay / 1000)
        for pause in (0.0, 0.001, 0.003, 0.002):
            task.cancel()
            await asyncio.sleep(pause)
        await asyncio.gather(task, return_exceptions=True)
    await backend._finishing.settle(20)
    await asyncio.sleep(0.1)  # the place made ahead
    left = open_files() - before
    await backend.close()
    assert left <= 1  # that place's process
    ours = [name for name in machine.parent.children() if f"-{os.getpid()}-" in name]
    assert ours == []


@pytest.mark.root
async def test_a_sandbox_full_of_files_can_be_saved_and_emptied_and_has_its_limit_again(backend: BwrapBackend) -> None:
    limits = Limits(memory=96 * MIB, disk=64 * MIB, wall=20)
    fill = "head -c 60M /dev/zero >/work/big; head -c 60M /dev/zero >$HOME/big; true"
    async with backend.open(SandboxSpec(limits=limits)) as box:
        await box.write("precious", b"my work")
        for _ in range(2):
            await box.run(Command(argv=("sh", "-c", fill)))
            assert await box.read("precious") == b"my work"
            assert sum([len(chunk) async for chunk in box.export()]) > 30 * MIB
            removed = await box.run(Command(argv=("sh", "-c", "rm -f /work/big ~/big; echo gone")))
            assert (removed.exit_code, removed.text) == (0, "gone\n")
            hog = Command(argv=("python3", "-c", "x = bytearray(100 << 20)"))
            assert (await box.run(hog)).exit_code != 0


@pytest.mark.root
async def test_a_backend_that_was_closed_can_be_used_again_and_keeps_nothing(backend: BwrapBackend) -> None:
    async with backend.open(SandboxSpec()):
        pass
    await backend.close()
    async with backend.open(SandboxSpec()) as box:
        assert (await box.run(Command(argv=("echo", "x")))).text == "x\n"


@pytest.mark.root
async def test_a_program_that_cannot_start_the_sandbox_is_told_in_its_own_words(backend: BwrapBackend) -> None:
    machine = await backend.machine()
    backend._machine = replace(machine, bwrap=replace(machine.bwrap, path="/usr/bin/no-such-bwrap"))
    with pytest.raises(SandboxError, match="no-such-bwrap: No such file"):
        async with backend.open(SandboxSpec()):
            pass


@pytest.mark.parametrize(
    ("name", "value", "mend"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces"),
        ("none", "0", "use Docker"),
    ],
)
def test_the_mend_names_what_this_kernel_restricts(name: str, value: str, mend: str) -> None:
    assert mend in namespaces_mend({name: value}.get)


@pytest.mark.root
async def test_a_place_made_ahead_is_used_once_and_is_no_sandbox_before(backend: BwrapBackend) -> None:
    async with backend.open(SandboxSpec()) as box:
        ahead = (await backend._seats._making).group
        assert box.cell.group.limited
        assert not ahead.limited
        async with backend.open(SandboxSpec(limits=Limits(processes=21))) as other:
            assert other.name == ahead.name
            assert any((folder / "pids.max").read_text() == "21\n" for folder in ahead.folders if has_pids(folder))
            assert (await other.run(Command(argv=("true",)))).exit_code == 0
            assert (await backend._seats._making).group.name not in {box.name, other.name}


@pytest.mark.root
async def test_a_place_whose_process_was_killed_is_still_a_place(backend: BwrapBackend) -> None:
    async with backend.open(SandboxSpec()):
        ahead = await backend._seats._making
        assert await ahead.group.empty()
        async with backend.open(SandboxSpec()) as box:
            assert box.name == ahead.group.name
            assert (await box.run(Command(argv=("true",)))).exit_code == 0
