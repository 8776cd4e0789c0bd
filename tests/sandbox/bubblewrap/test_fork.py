"""Forks share frozen layers: what one side does, the other never sees, and the limits still hold."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.base import Sandbox
from sandbox.bubblewrap.backend import BwrapBackend, Forking
from sandbox.bubblewrap.layers import DEEPEST
from sandbox.line.resident import ResidentSandbox
from sandbox.types import MIB, Command, Limits, SandboxSpec

SPEC = SandboxSpec(limits=Limits(memory=128 * MIB, processes=48, disk=8 * MIB, wall=30))
FILES = """
import os
for n in range(5000):
    os.makedirs(f"d{n % 50}", exist_ok=True)
    open(f"d{n % 50}/{n}", "w").write(str(n))
"""


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def sh(box: Sandbox, script: str) -> str:
    outcome = await box.run(Command(argv=("sh", "-c", script)))
    assert outcome.exit_code == 0, outcome.text
    return outcome.text


@pytest.mark.root
async def test_neither_side_sees_what_the_other_does_to_what_they_share(backend: BwrapBackend) -> None:
    async with backend.open(SPEC) as box:
        await sh(box, "mkdir -p a/b; echo 1 >a/b/f; echo 1 >g; ln g hard; chmod 700 .; echo h >~/h; ln -s g link")
        async with box.fork() as fork:
            await sh(fork, "rm -r a; mkdir a; echo 2 >g; chmod 600 g; rm ~/h; mv hard moved")
            await sh(box, "echo 3 >a/b/f; echo 3 >>g; rm link")
            assert await sh(fork, "ls -A a; cat g; stat -c %a . g; cat moved link; ls ~") == "2\n700\n600\n1\n2\n"
            assert await sh(box, "cat a/b/f g hard ~/h; stat -c %a . g") == "3\n1\n3\n1\nh\n700\n644\n"


@pytest.mark.root
async def test_forks_of_forks_carry_everything_however_deep(backend: BwrapBackend) -> None:
    async with AsyncExitStack() as stack:
        box = await stack.enter_async_context(backend.open(SPEC))
        for generation in range(2 * DEEPEST + 3):
            await sh(box, f"echo {generation} >>all; echo {generation} >only{generation}; echo {generation} >>~/all")
            box = await stack.enter_async_context(box.fork())
        lines = "".join(f"{generation}\n" for generation in range(2 * DEEPEST + 3))
        assert await sh(box, "cat all") == await sh(box, "cat ~/all") == lines
        assert int(await sh(box, "ls -d only* | wc -l")) == 2 * DEEPEST + 3


@pytest.mark.root
async def test_what_was_not_touched_is_forked_again_without_another_layer(backend: BwrapBackend) -> None:
    async with backend.open(SPEC) as box, AsyncExitStack() as stack:
        await box.write("f", b"1")
        for _ in range(20):
            fork = await stack.enter_async_context(box.fork())
            assert await fork.read("f") == b"1"
            assert await box.read("f") == b"1"
        assert all(len(store.frozen) == 1 for store in box.cell._stores)


@pytest.mark.root
async def test_frozen_files_count_against_the_disk_limit_of_both(backend: BwrapBackend) -> None:
    async with backend.open(SPEC) as box:
        await box.write("big", bytes(6 * MIB))
        async with box.fork() as fork:
            for side in (box, fork):
                await sh(side, "cat /dev/zero >more 2>/dev/null || :; sync")
                assert int(await sh(side, "du -m . | cut -f1")) <= 9
                assert int(await sh(side, "stat -c %s more")) <= 2 * MIB
            await sh(fork, "rm more; echo fits >more")


@pytest.mark.root
async def test_nothing_runs_on_in_the_source_and_its_session_goes_along(backend: BwrapBackend) -> None:
    async with backend.open(SPEC) as box:
        await box.run(Command(argv=("sh", "-c", "mkdir in; cd in; export A=1"), session=True))
        running = asyncio.create_task(box.run(Command(argv=("sh", "-c", "sleep 0.3; echo done >late"))))
        await asyncio.sleep(0.1)
        async with box.fork() as fork:
            assert (await running).exit_code == 0, "a fork waits for the command before it"
            assert await fork.read("late") == b"done\n"
            for side in (box, fork):
                told = await side.run(Command(argv=("sh", "-c", "pwd; echo $A"), session=True))
                assert told.text == "/work/in\n1\n"


@pytest.mark.root
async def test_parallel_forks_of_one_source_are_all_whole(backend: BwrapBackend) -> None:
    async with backend.open(SPEC) as box, AsyncExitStack() as stack:
        await box.write("f", b"1")
        forks = await asyncio.gather(*(stack.enter_async_context(box.fork()) for _ in range(6)))
        for number, fork in enumerate(forks):
            await fork.write("f", str(number).encode())
        assert [await fork.read("f") for fork in forks] == [str(number).encode() for number in range(6)]
        assert await box.read("f") == b"1"


@pytest.mark.root
async def test_where_overlays_are_refused_a_fork_is_a_copy_of_the_same(backend: BwrapBackend) -> None:
    backend._machine = replace(await backend.machine(), forking=Forking(layers=False, told="copy"))
    async with backend.open(SPEC) as box:
        await sh(box, "echo 1 >f; echo 2 >~/h; mkfifo p; ln -s f l")
        async with box.fork() as fork:
            assert box.cell.uid != fork.cell.uid
            assert await sh(fork, "cat f ~/h l; rm f") == "1\n2\n1\n"
        assert await box.read("f") == b"1\n"
    assert (await backend.self_test()).detail["fork"] == "copy"


@pytest.mark.root
async def test_a_fork_of_five_thousand_files_copies_none(backend: BwrapBackend) -> None:
    async with backend.open(SPEC.model_copy(update={"limits": Limits(disk=64 * MIB)})) as box:
        assert (await box.run(Command(argv=("python3", "-c", FILES)))).exit_code == 0
        async with box.fork() as fork:
            assert int(await sh(fork, "cat d*/* | wc -c")) == len("".join(map(str, range(5000))))
            assert int(await sh(fork, "df -k --output=used . | tail -1")) <= 64
            assert int(await sh(fork, "df --output=iused . | tail -1")) <= 16


@pytest.mark.root
async def test_a_folder_from_before_a_fork_can_be_renamed_as_git_and_npm_do(backend: BwrapBackend) -> None:
    rename = "import os; os.rename('old', 'new'); os.rename('new/in', 'moved')"
    async with backend.open(SPEC) as box:
        await sh(box, "mkdir -p old/in/deep; echo 1 >old/in/deep/f; echo 2 >old/g")
        async with box.fork() as fork:
            outcome = await fork.run(Command(argv=("python3", "-c", rename)))
            assert outcome.exit_code == 0, outcome.text
            async with fork.fork() as again:
                await sh(again, "mv moved old; echo 3 >old/deep/f")
                assert await sh(again, "cat old/deep/f new/g; ls") == "3\n2\nnew\nold\n"
            assert await sh(fork, "cat moved/deep/f new/g; ls") == "1\n2\nmoved\nnew\n"
        assert await sh(box, "cat old/in/deep/f; ls") == "1\nold\n"


@pytest.mark.root
async def test_a_deep_stack_that_memory_cannot_hold_twice_is_copied_through_the_supervisors(
    backend: BwrapBackend,
) -> None:
    async with AsyncExitStack() as stack:
        spec = SandboxSpec(limits=Limits(memory=96 * MIB, disk=80 * MIB, wall=60))
        box = await stack.enter_async_context(backend.open(spec))
        for generation in range(DEEPEST):
            await box.write("f", str(generation).encode())
            box = await stack.enter_async_context(box.fork())
        await sh(box, "head -c 60M /dev/urandom >big")
        async with box.fork() as fork:
            assert fork.cell.uid != box.cell.uid, "it is no layer"
            assert await sh(fork, "stat -c %s big; cat f") == f"{60 * MIB}\n{DEEPEST - 1}"
        await box.write("still", b"writable")


@pytest.mark.root
async def test_a_fork_that_is_cancelled_at_any_moment_leaves_the_source_writable_and_nothing_behind(
    backend: BwrapBackend,
) -> None:
    async def forking(box: ResidentSandbox) -> None:
        async with box.fork():
            pass

    async with backend.open(SPEC) as box:
        await box.write("f", b"0")
        before = open_files()
        for delay in range(0, 60, 3):
            task = asyncio.create_task(forking(box))
            await asyncio.sleep(delay / 1000)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await box.write("f", str(delay).encode())
            assert await box.read("f") == str(delay).encode()
        if backend._seats._making is not None:  # none is made where the last fork to take one did not come that far
            await asyncio.wait([backend._seats._making])
        assert open_files() <= before + 1, "the one place made ahead"
