"""Host processes under a limit: nothing hangs, nothing is left, nothing grows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from sandbox.process import Finished, run_process

ENV = {"PATH": "/usr/bin:/bin"}


async def sh(script: str, *, limit: float = 20, output: int = 1000) -> Finished:
    return await run_process(["/bin/sh", "-c", script], ENV, timeout=limit, output=output)


async def test_what_it_says_and_how_it_ends() -> None:
    assert await sh("echo out; echo err >&2; exit 3") == Finished(3, b"out\nerr\n", timed_out=False)
    assert (await sh("kill -TERM $$")).exit_code == 143
    assert set((await sh("env")).output.splitlines()) == {b"PATH=/usr/bin:/bin", b"PWD=/"}


async def test_output_over_the_cap_is_dropped_and_blocks_nobody() -> None:
    ended = await sh("echo first; head -c 1000000 /dev/zero; exit 4", output=6)
    assert (ended.output, ended.exit_code) == (b"first\n", 4)


@pytest.mark.slow
async def test_a_process_in_a_session_of_its_own_that_holds_the_output_does_not_hold_us() -> None:
    began = time.monotonic()
    assert (await sh("setsid sleep 30 & echo done")).output == b"done\n"
    assert time.monotonic() - began < 10


async def test_a_time_out_kills_the_group(processes_with: Callable[[str], list[int]]) -> None:
    mark = f"3{time.time_ns() % 10**9}"
    ended = await sh(f"sleep {mark} & sleep {mark}", limit=0.3)
    assert (ended.timed_out, ended.exit_code) == (True, 137)
    assert processes_with(mark) == []


async def test_a_program_that_is_not_there_is_an_error_of_the_machinery() -> None:
    with pytest.raises(FileNotFoundError):
        await run_process(["/no/such"], ENV, timeout=1, output=10)


async def test_many_at_once_do_not_mix() -> None:
    ended = await asyncio.gather(*(sh(f"echo {n}") for n in range(20)))
    assert [one.output for one in ended] == [f"{n}\n".encode() for n in range(20)]
