"""Clean-up goes on whoever is cancelled, is told to whoever waits, and is waited for at the end."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.finishing import Finishing


async def test_work_goes_on_however_often_its_caller_is_cancelled() -> None:
    finishing, began, done = Finishing(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.sleep(0.05)
        done.set()

    async def caller() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await finishing.finish(work())

    task = asyncio.create_task(caller())
    await asyncio.sleep(0)
    task.cancel()
    await began.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert not done.is_set()
    await finishing.settle(10)
    assert done.is_set()


async def test_whoever_waits_is_told_how_it_ended_and_nobody_else_is_troubled() -> None:
    finishing, said = Finishing(), list[dict[str, object]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))

    async def fails() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await finishing.finish(fails())
    forsaken = asyncio.create_task(finishing.finish(fails()))
    await asyncio.sleep(0)
    forsaken.cancel()
    await finishing.settle(10)
    del forsaken
    await asyncio.sleep(0)
    assert said == []


async def test_one_that_settles_waits_neither_for_itself_nor_for_ever() -> None:
    finishing = Finishing()
    forever = finishing.keep(asyncio.create_task(asyncio.sleep(60)))
    await asyncio.wait_for(finishing.finish(finishing.settle(0.05)), 5)
    forever.cancel()
