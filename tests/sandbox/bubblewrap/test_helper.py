"""The helper process: what it cannot do it says, it holds nothing, and it ends with whoever started it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.bubblewrap.helper import Helper, HelperError

STARTER = """
import asyncio, sys
from sandbox.bubblewrap.helper import Helper, HelperError

async def main():
    helper = Helper()
    try:
        await helper.ask({"do": "nothing known"}, [])
    except HelperError:
        print(helper._pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
async def helper() -> AsyncIterator[Helper]:
    made = Helper()
    yield made
    made.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_step_that_fails_is_named_with_its_reason(helper: Helper, tmp_path: Path) -> None:
    with pytest.raises(HelperError, match=r"entering the control group: No such file"):
        await helper.sit([str(tmp_path / "none" / "cgroup.procs")])
    with pytest.raises(HelperError, match="nothing known"):
        await helper.ask({"do": "nothing known"}, [])


async def test_requests_of_any_size_and_many_at_a_time_are_answered(helper: Helper) -> None:
    asked = [helper.ask({"do": "x", "padding": "p" * 3_000_000}, []) for _ in range(8)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(answer, HelperError) for answer in answers)


async def test_a_killed_helper_is_started_again_and_a_seat_of_it_says_that_it_is_gone(
    helper: Helper, tmp_path: Path
) -> None:
    seat = await helper.sit([str(tmp_path / "entrance")])
    assert (tmp_path / "entrance").read_text() == "0"
    first = helper._pid
    waiting = children(first)
    os.kill(first, 9)
    for _ in range(200):
        if not any(map(alive, [first, *waiting])):
            break
        await asyncio.sleep(0.02)
    with pytest.raises(HelperError, match="killed"):
        await seat.ask({"do": "probe"}, [])
    again = await helper.sit([str(tmp_path / "entrance")])
    again.close()
    assert helper._pid != first


async def test_an_error_of_what_a_seat_was_asked_comes_to_who_asked_it(helper: Helper, tmp_path: Path) -> None:
    seat = await helper.sit([str(tmp_path / "entrance")])
    with pytest.raises(HelperError, match="nothing known"):
        await seat.ask({"do": "nothing known"}, [])


async def test_an_unused_seat_goes_when_it_is_closed(helper: Helper, tmp_path: Path) -> None:
    before = children(os.getpid())
    seat = await helper.sit([str(tmp_path / "entrance")])
    waiting = children(helper._pid)
    assert len(waiting) == 1
    seat.close()
    for _ in range(200):
        if not any(map(alive, waiting)):
            break
        await asyncio.sleep(0.02)
    assert not any(map(alive, waiting))
    helper.close()
    assert children(os.getpid()) == before, "no helper, not even a dead one"


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_helper_ends_when_its_starter_is_killed() -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    assert alive(pid)
    starter.kill()
    starter.wait()
    starter.stdout.close()
    for _ in range(200):
        if not alive(pid):
            return
        time.sleep(0.02)
    raise AssertionError(f"{pid} lives on")
