"""What commands leave running, holding or open: nothing, however they try."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandbox.base import SandboxBackend
from sandbox.types import Command
from tests.contract.inside import SPEC, mark, python, sh, usable

SURVIVORS = {
    "in the background": "sleep {tag} &",
    "in a session of its own": "setsid sleep {tag} &",
    "past the hang-up": "nohup sleep {tag} >/dev/null 2>&1 &",
    "disowned": "bash -c 'sleep {tag} & disown -a'",
    "in a subshell": "(sleep {tag} &)",
    "deaf to signals": "(trap '' TERM HUP INT QUIT USR1; sleep {tag} & wait) &",
    "stopped": "sleep {tag} & kill -STOP $!",
    "as a coprocess": "bash -c 'coproc sleep {tag}; exit'",
    "by timeout": "timeout 5000 sleep {tag} &",
    "from a trap at the end": "trap 'setsid sleep {tag} &' EXIT",
    "under another name": "bash -c 'exec -a init sleep {tag}' &",
    "behind a pipe that stays open": "mkfifo p; sleep {tag} <p & exec 3>p; sleep {tag} &",
}


@pytest.mark.claim("nothing survives a command")
@pytest.mark.parametrize("how", SURVIVORS)
async def test_no_process_outlives_its_command(jail: SandboxBackend, processes_with, how: str) -> None:
    tag = mark()
    async with jail.open(SPEC) as box:
        began = time.monotonic()
        outcome = await sh(box, SURVIVORS[how].format(tag=tag) + "\nsleep 0.2; echo done")
        assert outcome.text.splitlines()[-1] == "done"
        assert time.monotonic() - began < 15  # a process that holds the output open does not hold the command up
        assert processes_with(tag) == []
        await usable(box)


@pytest.mark.claim("nothing survives a command")
async def test_a_daemon_that_forks_on_and_on_is_gone_with_its_command(jail: SandboxBackend, processes_with) -> None:
    tag = mark()
    program = """
    import time
    if os.fork() == 0:
        while True:  # each lives for a moment and leaves a child: there is never a pid that could be killed in time
            os.setsid() if os.getpid() != os.getpgid(0) else None
            if os.fork():
                os._exit(0)
    time.sleep(0.3)
    """
    async with jail.open(SPEC) as box:
        await python(box, program, tag)
        assert processes_with(tag) == []
        await usable(box)


@pytest.mark.claim("nothing survives a command")
async def test_a_server_of_one_command_is_not_there_for_the_next(jail: SandboxBackend) -> None:
    serve = """
    import time
    if os.fork() == 0:
        server = socket.create_server(("127.0.0.1", 8123))
        time.sleep(60)
    time.sleep(0.3)
    """
    async with jail.open(SPEC) as box:
        await python(box, serve)
        again = await python(box, "print(act(lambda: socket.create_connection(('127.0.0.1', 8123), 2)))")
        assert again.text == "ECONNREFUSED\n"


@pytest.mark.claim("time limited")
async def test_a_command_that_ignores_all_signals_ends_in_time(jail: SandboxBackend, processes_with) -> None:
    tag = mark()
    program = """
    import signal, time
    for number in range(1, 65):
        act(lambda: signal.signal(number, signal.SIG_IGN)) if number not in (9, 19, 32, 33) else None
    while True:
        time.sleep(0.01)
    """
    async with jail.open(SPEC) as box:
        outcome = await python(box, program, tag, timeout=1)
        assert (outcome.timed_out, outcome.exit_code) == (True, 137)
        assert outcome.seconds < 10
        assert processes_with(tag) == []
        await usable(box)


@pytest.mark.claim("nothing survives a command")
async def test_nothing_runs_after_a_command_was_cancelled(jail: SandboxBackend, processes_with) -> None:
    tag = mark()
    async with jail.open(SPEC) as box:
        command = Command(argv=("sh", "-c", f"setsid sleep {tag} & (trap '' TERM; sleep {tag})"))
        running = asyncio.create_task(box.run(command))
        for _ in range(200):
            if processes_with(tag):
                break
            await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        for _ in range(200):
            if not processes_with(tag):
                break
            await asyncio.sleep(0.05)
        assert processes_with(tag) == []
        await usable(box)


@pytest.mark.claim("processes limited")
async def test_threads_count_as_processes_and_the_limit_leaves_room_to_work(jail: SandboxBackend) -> None:
    """A limit of processes broke JVM builds without a word (gh-aw-firewall #7148): here it is told, and all goes on."""
    program = """
    import threading
    stop, started = threading.Event(), 0
    try:
        while started < 500:
            threading.Thread(target=stop.wait, daemon=True).start()
            started += 1
    except RuntimeError as error:
        print(error)
    print(started)
    stop.set()
    """
    async with jail.open(SPEC) as box:
        outcome = await python(box, program)
        assert 4 <= int(outcome.text.split()[-1]) < SPEC.limits.processes
        await usable(box)


@pytest.mark.claim("nothing survives a command")
async def test_folders_that_a_command_shut_are_open_to_what_comes_after(jail: SandboxBackend) -> None:
    """Nothing would start there again, so nobody could open them, and the work would be lost."""
    shut = 'echo kept > work; chmod 000 /work "$HOME"; chmod 000 /tmp 2>/dev/null; true'
    async with jail.open(SPEC) as box:
        for kill in ("", "; kill -KILL $PPID"):
            await sh(box, shut + kill)
            assert await box.read("work") == b"kept\n"
            await sh(box, shut + kill)
            await box.write("other", b"x")
            await sh(box, shut + kill)
            held = b"".join([chunk async for chunk in box.export()])
            assert b"./work" in held
            assert b"kept" in held
            await sh(box, shut + kill)
            async with box.fork() as other:
                assert (await sh(other, 'cat work; touch "$HOME/x" /tmp/x && echo fine')).text == "kept\nfine\n"
            await sh(box, shut + kill)
            assert (await sh(box, 'cat work; touch "$HOME/x" /tmp/x && echo fine')).text == "kept\nfine\n"
        await usable(box)
