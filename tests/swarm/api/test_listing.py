"""Pages of tasks and of a journal: bounded, stable while others come in, and honest about what a cursor is."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from swarm.answers import TaskFilter
from swarm.errors import TaskError
from swarm.types import TaskState
from tests.swarm.api.conftest import House


async def all_of(house: House, client: Any, wanted: TaskFilter, limit: int) -> list[str]:
    """Every id, page by page, while another task comes in between two pages."""
    found: list[str] = []
    cursor = None
    while True:
        page = await client.page(wanted, cursor=cursor, limit=limit)
        assert len(page.items) <= limit
        found += [view.task.id for view in page.items]
        cursor = page.next
        if cursor is None:
            return found
        await house.task(f"late-{len(found)}")


async def test_pages_hold_every_task_once_though_others_come_in_between(house: House) -> None:
    names = [f"t{number}" for number in range(7)]
    for name in names:
        await house.task(name)
    async with house.client() as client:
        assert await all_of(house, client, TaskFilter(), 2) == names[::-1]


@pytest.mark.slow
async def test_tasks_of_one_instant_are_paged_by_their_ids(house: House) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await house.task(name)
    await house.store._do(lambda connection: connection.exec_driver_sql("UPDATE tasks SET created = 5.0"))
    async with house.client() as client:
        first = await client.page(limit=3)
        second = await client.page(cursor=first.next, limit=3)
        assert [view.task.id for view in (*first.items, *second.items)] == ["e", "d", "c", "b", "a"]
        assert second.next is None


async def test_filters_leave_out_all_that_does_not_fit_everything_said(house: House) -> None:
    await house.task("one", batch="b1")
    await house.task("two", user="bob", batch="b1")
    await house.task("three", repository="web")
    async with house.client() as client:
        await client.cancel("two")
        for wanted, names in (
            (TaskFilter(), ["three", "two", "one"]),
            (TaskFilter(batch="b1"), ["two", "one"]),
            (TaskFilter(batch="b1", user="ann"), ["one"]),
            (TaskFilter(repository="web"), ["three"]),
            (TaskFilter(state=(TaskState.CANCELLED, TaskState.RUNNING)), ["two"]),
            (TaskFilter(since=4e9), []),
        ):
            assert [view.task.id for view in (await client.page(wanted)).items] == names
        assert await client.counts() == {TaskState.QUEUED: 2, TaskState.CANCELLED: 1}
        assert await client.counts(TaskFilter(user="bob")) == {TaskState.CANCELLED: 1}


@pytest.mark.parametrize(
    "cursor",
    ["x", "é", "e30", base64.urlsafe_b64encode(b'["a","b"]').decode(), base64.urlsafe_b64encode(b"[1]").decode()],
)
async def test_a_cursor_of_no_page_is_refused(house: House, cursor: str) -> None:
    async with house.client() as client:
        with pytest.raises(TaskError, match=r"^the request is not understood: .*cursor"):
            await client.page(cursor=cursor)


async def test_a_page_has_bounds_and_unknown_parameters_are_told(house: House) -> None:
    async with house.open():
        for query in ("limit=0", "limit=1001", "limit=x", "states=queued", "state=nope", "cursor=" + "x" * 201):
            answer = await house.raw("GET", f"/v1/tasks?{query}")
            assert answer.status_code == 422, query
            assert query.split("=")[0] in answer.json()["why"]


async def test_a_long_journal_comes_whole_in_pages(house: House) -> None:
    await house.task("long")
    for number in range(25):
        await house.store.remark("long", f"line {number}", "")
    async with house.client() as client:
        page = (await house.raw("GET", "/v1/tasks/long/steps?limit=10")).json()
        assert (len(page["items"]), page["next"]) == (10, "10")
        rest = (await house.raw("GET", "/v1/tasks/long/steps?limit=1000&cursor=10")).json()
        assert (len(rest["items"]), rest["next"]) == (16, None)
        assert [step.seq for step in await client.steps("long")] == list(range(1, 27))
        assert [step.seq for step in await client.steps("long", after=24)] == [25, 26]
        assert (await house.raw("GET", "/v1/tasks/long/steps?cursor=abc")).status_code == 422
