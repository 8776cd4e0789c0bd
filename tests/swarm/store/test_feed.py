"""The moves of all tasks in one order and their pages, on both databases and with several daemons writing at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from swarm.answers import TaskFilter
from swarm.config_database import Address
from swarm.store.rows import Plan
from swarm.store.store import Store
from swarm.types import Budget, TaskRequest, TaskState

PLAN = Plan(budget=Budget(), tier="small", strategy="auto", user="ann")


async def add(store: Store, name: str) -> None:
    await store.add(TaskRequest(repository="demo", instructions="x", task=name), PLAN)


async def all_of(store: Store, after: int = 0) -> list[Any]:
    """Every move after a position, a few at a time."""
    found: list[Any] = []
    while True:
        some, reached = await store.feed.changes(after, TaskFilter(), 7)
        found += some
        if reached == after:
            return found
        after = reached


async def test_a_reader_who_comes_while_two_daemons_write_misses_and_repeats_nothing(where: Path | Address) -> None:
    """Numbers drawn when a row is written are seen out of order where transactions overlap: a reader skips some."""
    async with Store(where) as one, Store(where) as two:
        seen: list[Any] = []
        writing = asyncio.gather(
            *(add(one, f"a{number}") for number in range(20)), *(add(two, f"b{number}") for number in range(20))
        )
        while not writing.done():
            after = seen[-1].position if seen else 0
            seen += await all_of(two if len(seen) % 2 else one, after)
            await asyncio.sleep(0)
        await writing
        seen += await all_of(one, seen[-1].position if seen else 0)
        assert [move.position for move in seen] == list(range(1, 41))
        assert {move.task for move in seen} == {f"{who}{number}" for who in "ab" for number in range(20)}
        assert await all_of(two) == seen


async def test_pages_and_counts_hold_what_fits_on_both_databases(where: Path | Address) -> None:
    async with Store(where) as store:
        for number in range(5):
            await add(store, f"t{number}")
        first = await store.listing.page(TaskFilter(user="ann"), None, 3)
        rest = await store.listing.page(TaskFilter(user="ann"), first.next, 3)
        names = [view.task.id for view in (*first.items, *rest.items)]
        assert names == ["t4", "t3", "t2", "t1", "t0"]
        assert rest.next is None
        assert await store.listing.counts(TaskFilter(repository="demo")) == {TaskState.QUEUED: 5}
        assert (await store.listing.page(TaskFilter(user="bob"), None, 3)).items == ()


async def test_the_last_position_counts_moves_that_nobody_had_read(where: Path | Address) -> None:
    async with Store(where) as store:
        for number in range(3):
            await add(store, f"t{number}")
        assert await store.feed.last() == 3
        await store.verbs.cancel("t1")
        (move,) = await all_of(store, 3)
        assert (move.task, move.before, move.state) == ("t1", TaskState.QUEUED, TaskState.CANCELLED)
