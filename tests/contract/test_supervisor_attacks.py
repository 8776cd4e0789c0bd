"""Attacks on the supervisor, which runs as the agent's own user: whatever is done to it costs the agent alone."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import textwrap
import time

import pytest

from sandbox.base import Sandbox, SandboxBackend
from sandbox.errors import SandboxPathError
from sandbox.line.resident import ResidentSandbox
from sandbox.types import MIB, Command, Limits, Outcome, SandboxSpec

SPEC = SandboxSpec(limits=Limits(memory=192 * MIB, processes=64, disk=80 * MIB, output=64 * 1024, wall=30))
FIND = """
import ctypes, os, resource, signal, socket, sys, time
SUPERVISOR = os.getppid()
def act(work, *arguments):
    try:
        return work(*arguments)
    except OSError as error:
        return error.strerror
"""


async def sh(box: Sandbox, script: str, **fields: object) -> Outcome:
    return await box.run(Command(argv=("sh", "-c", script), **fields))


async def python(box: Sandbox, program: str, **fields: object) -> Outcome:
    return await box.run(Command(argv=("/usr/bin/python3", "-c", FIND + textwrap.dedent(program)), **fields))


async def usable(box: Sandbox) -> None:
    outcome = await sh(box, "echo alive | cat")
    assert (outcome.text, outcome.exit_code) == ("alive\n", 0)


async def test_its_memory_descriptors_and_environment_are_closed_to_a_command(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        for name in ("mem", "environ", "maps", "auxv", "io", "syscall", "stack"):
            outcome = await python(box, f"print(act(open, f'/proc/{{SUPERVISOR}}/{name}', 'rb'))")
            assert outcome.text.strip() in {"Permission denied", "No such file or directory"}, name
        for name in ("mem", "oom_score_adj", "clear_refs", "coredump_filter", "timerslack_ns"):
            outcome = await python(box, f"print(act(open, f'/proc/{{SUPERVISOR}}/{name}', 'wb'))")
            assert outcome.text.strip() in {"Permission denied", "No such file or directory"}, name
        for name in ("fd", "map_files"):
            assert (await python(box, f"print(act(os.listdir, f'/proc/{{SUPERVISOR}}/{name}'))")).text in {
                "Permission denied\n",
                "No such file or directory\n",
            }
        for name in ("cwd", "root", "exe", "fd/3"):
            outcome = await python(box, f"print(act(os.readlink, f'/proc/{{SUPERVISOR}}/{name}'))")
            assert outcome.text == "Permission denied\n", name


async def test_a_command_holds_none_of_its_descriptors(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        outcome = await sh(box, "ls -l /proc/self/fd | sed -n 's/.* \\([0-9]* -> .*\\)/\\1/p'")
        lines = [line.split(" -> ") for line in outcome.text.splitlines()]
        assert {fd for fd, _ in lines} <= {"0", "1", "2", "3"}
        assert dict(lines)["0"] == "/dev/null"


@pytest.mark.parametrize("signal", ["KILL", "STOP", "TERM", "INT", "SEGV", "ALRM"])
async def test_signals_to_it_and_to_all_hurt_the_command_alone(jail: SandboxBackend, signal: str) -> None:
    async with jail.open(SPEC) as box:
        await box.write("kept", b"1")
        for target in ("$PPID", "-1"):
            outcome = await sh(box, f"kill -{signal} {target}; sleep 0.2; echo after", timeout=3)
            assert outcome.exit_code in {0, 128 + 9, 128 + 2, 128 + 15, 128 + 11, 128 + 14}
            assert await box.read("kept") == b"1"
            await usable(box)


async def test_where_landlock_keeps_signals_in_it_does_not_even_notice(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        assert isinstance(box, ResidentSandbox)
        await box.ping()
        if not box.facts["scoped"]:
            pytest.skip("the kernel's Landlock has no scopes (ABI 6)")
        outcome = await python(box, "print(act(os.kill, SUPERVISOR, 9), act(os.kill, SUPERVISOR, signal.SIGSTOP))")
        assert outcome.text == "Operation not permitted Operation not permitted\n"


async def test_limits_put_on_it_do_not_outlast_the_command(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        for attack in (
            "resource.prlimit(SUPERVISOR, resource.RLIMIT_NOFILE, (4, 4))",
            "resource.prlimit(SUPERVISOR, resource.RLIMIT_FSIZE, (0, 0))",
            "resource.prlimit(SUPERVISOR, resource.RLIMIT_NPROC, (0, 0))",
            "resource.prlimit(SUPERVISOR, resource.RLIMIT_CPU, (0, 0))",
            "os.setpriority(os.PRIO_PROCESS, SUPERVISOR, 19)",
            "os.sched_setscheduler(SUPERVISOR, os.SCHED_IDLE, os.sched_param(0))",
            "os.sched_setaffinity(SUPERVISOR, [0])",
        ):
            await python(box, f"print(act(lambda: {attack}))")
            await box.write("file", bytes(200_000))
            assert len(await box.read("file")) == 200_000
            shown = await python(
                box, "print(resource.getrlimit(7)[0] > 100, os.getpriority(0, 0), os.sched_getscheduler(0))"
            )
            assert shown.text == "True 0 0\n", attack


async def test_what_a_command_left_cannot_wait_for_the_next(jail: SandboxBackend, processes_with) -> None:
    mark = f"4{os.getpid()}{time.time_ns() % 10**6}"
    leave = f"""
    import subprocess
    for how in range(6):
        if os.fork() == 0:
            os.setsid() if how % 2 else os.setpgid(0, 0)
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "{mark}"])
            if how > 3:
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(100)
    time.sleep(0.3)
    """
    async with jail.open(SPEC) as box:
        outcome = await python(box, leave)
        assert outcome.exit_code == 0
        assert processes_with(mark) == []
        assert (await sh(box, f"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep {mark}'")).text == "0\n"


async def test_holding_the_output_open_or_flooding_it_ends_with_the_command(jail: SandboxBackend) -> None:
    async with jail.open(SPEC) as box:
        began = time.monotonic()
        outcome = await sh(box, "setsid sh -c 'while :; do echo more; done' & sleep 0.3; echo end; exit 4")
        assert outcome.exit_code == 4
        assert time.monotonic() - began < 10
        assert len(outcome.output) <= SPEC.limits.output
        await usable(box)


async def test_output_that_looks_like_its_frames_is_only_output(jail: SandboxBackend) -> None:
    forged = "\\043\\0\\0\\0\\001\\0\\0\\0\\016" * 50
    async with jail.open(SPEC) as box:
        outcome = await sh(box, f"printf '{forged}'; exit 7")
        assert outcome.exit_code == 7
        assert outcome.output == b"#\0\0\0\x01\0\0\0\x0e" * 50


async def test_fifty_megabytes_of_any_bytes_arrive_by_standard_input(jail: SandboxBackend) -> None:
    data = os.urandom(50 * MIB)
    async with jail.open(SPEC) as box:
        outcome = await sh(box, "sha256sum | cut -d ' ' -f 1", stdin=data)
        assert outcome.text.strip() == hashlib.sha256(data).hexdigest()
        ignored = await sh(box, "sleep 0.1; echo done", stdin=data)
        assert ignored.text == "done\n"


async def test_a_swap_of_folders_during_a_read_or_write_never_leads_out(jail: SandboxBackend) -> None:
    swap = """
    os.makedirs("real", exist_ok=True); open("real/passwd", "w").write("mine")
    while True:
        for target in ("real", "/etc", "/proc/self"):
            try:
                os.unlink("d")
            except OSError:
                pass
            act(os.symlink, target, "d")
    """
    async with jail.open(SPEC) as box:
        running = asyncio.create_task(python(box, swap, timeout=4))
        got = set()
        for _ in range(300):
            with contextlib.suppress(SandboxPathError):
                got.add(await box.read("d/passwd"))
                await box.write("d/mem", b"x")
        assert got <= {b"mine", b""}
        assert (await running).timed_out
        await usable(box)
