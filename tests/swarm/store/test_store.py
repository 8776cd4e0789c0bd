"""The database under attack: races, stale workers, repeated calls, damage, newer versions."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from swarm.config_database import Address
from swarm.errors import IllegalMoveError, KeyReusedError, StaleClaimError, StoreError, TaskError, TaskNotFoundError
from swarm.scheduling.facts import HostFacts
from swarm.store.messages import MOST
from swarm.store.rows import Claim, Kept, Plan, Settlement
from swarm.store.schema import VERSION
from swarm.store.store import Store
from swarm.types import AttemptResult, Budget, Conclusion, Ending, Sealed, Spent, TaskRequest, TaskState, TaskView

HOST = HostFacts("here", slots=100)
PLAN = Plan(budget=Budget(), tier="small", strategy="auto")


@pytest.fixture
async def store(where: Path | Address) -> AsyncIterator[Store]:
    async with Store(where) as opened:
        yield opened


async def add(store: Store, task: str = "t1", **more: str) -> TaskView:
    view, _ = await store.add(TaskRequest(repository="demo", instructions="fix it", task=task, **more), PLAN)
    return view


async def claimed(store: Store, task: str = "t1") -> Claim:
    await add(store, task)
    claim = await store.queue.claim(HOST)
    assert claim is not None
    return claim


def ended(to: TaskState, ending: Ending = "finished", reason: str = "because") -> Settlement:
    return Settlement(to, reason, AttemptResult(conclusion=Conclusion(ending=ending)))


async def test_the_same_idempotency_key_gives_the_same_task(store: Store) -> None:
    request = TaskRequest(repository="demo", instructions="fix it", idempotency_key="k")
    first, new = await store.add(request, PLAN)
    again, renewed = await store.add(request, PLAN)
    assert (new, renewed) == (True, False)
    assert again.task == first.task
    with pytest.raises(KeyReusedError):
        await store.add(request.model_copy(update={"instructions": "other words"}), PLAN)


async def test_the_same_key_at_the_same_time_makes_one_task(where: Path | Address) -> None:
    request = TaskRequest(repository="demo", instructions="fix it", idempotency_key="k")
    async with Store(where) as one, Store(where) as two:
        found = await asyncio.gather(*(each.add(request, PLAN) for each in (one, two) * 10))
        assert len({view.task.id for view, _ in found}) == 1
        assert sum(new for _, new in found) == 1


async def test_an_id_that_is_taken_by_another_request_is_refused(store: Store) -> None:
    await add(store)
    same, new = await store.add(TaskRequest(repository="demo", instructions="fix it", task="t1"), PLAN)
    assert not new
    assert same.task.id == "t1"
    with pytest.raises(TaskError, match="there already"):
        await store.add(TaskRequest(repository="demo", instructions="other", task="t1"), PLAN)


async def test_a_view_never_shows_the_capability(store: Store) -> None:
    view = await add(store, capability="secret-right")
    assert "secret-right" not in view.model_dump_json()
    claim = await store.queue.claim(HOST)
    assert claim is not None
    assert claim.task.request.capability == "secret-right"


async def test_two_stores_never_claim_the_same_task(where: Path | Address) -> None:
    async with Store(where) as one, Store(where) as two:
        for number in range(10):
            await add(one, f"t{number}")
        claims = await asyncio.gather(*(each.queue.claim(HOST) for each in (one, two) * 8))
        ids = [claim.task.id for claim in claims if claim]
        assert sorted(ids) == sorted(set(ids))
        assert len(ids) == 10


async def test_who_waits_longest_is_claimed_first(store: Store) -> None:
    for name in ("t1", "t2", "t3"):
        await add(store, name)
    claims = [await store.queue.claim(HOST) for _ in range(4)]
    assert [claim.task.id if claim else None for claim in claims] == ["t1", "t2", "t3", None]


async def test_of_two_writers_of_a_final_state_the_first_wins(where: Path | Address) -> None:
    async with Store(where) as one, Store(where) as two:
        claim = await claimed(one)
        written = await asyncio.gather(
            one.settle(claim, ended(TaskState.NO_CHANGE, "no_change")),
            two.settle(claim, ended(TaskState.GAVE_UP, "gave_up")),
        )
        assert sorted(written) == [False, True]
        view = await one.view("t1")
        winner = TaskState.NO_CHANGE if written[0] else TaskState.GAVE_UP
        assert view.state is winner
        assert view.attempts[0].ending == winner.value
        moves = [step for step in await one.steps("t1") if step.kind == "state"]
        assert len(moves) == 3


async def test_a_worker_that_was_replaced_can_change_nothing(store: Store) -> None:
    stale = await claimed(store)
    await store.leases.give_back(stale, "its host is shut down")
    fresh = await store.queue.claim(HOST)
    assert fresh is not None
    assert fresh.fence > stale.fence
    assert fresh.attempt.id == stale.attempt.id
    for attack in (
        store.record(stale, "note", {"text": "still here"}),
        store.salvaged(stale, Kept("refs/salvage/x", "tree", "swarm-a")),
        store.deliver(stale, "mine"),
        store.settle(stale, ended(TaskState.GAVE_UP)),
        store.leases.check(stale),
    ):
        with pytest.raises(StaleClaimError):
            await attack
    assert (await store.view("t1")).state is TaskState.RUNNING
    await store.record(fresh, "note", {"text": "mine"})
    assert await store.settle(fresh, ended(TaskState.NO_CHANGE))


async def test_a_claim_is_worth_nothing_after_it_was_settled(store: Store) -> None:
    claim = await claimed(store)
    await store.settle(claim, ended(TaskState.QUEUED))
    with pytest.raises(StaleClaimError):
        await store.settle(claim, ended(TaskState.GAVE_UP))
    await store.queue.claim(HOST)
    with pytest.raises(StaleClaimError):
        await store.record(claim, "note", {})


async def test_cancelling_and_delivering_exclude_each_other(store: Store) -> None:
    claim = await claimed(store)
    await store.verbs.cancel("t1")
    assert not await store.deliver(claim, "passed")
    other = await claimed(store, "t2")
    assert await store.deliver(other, "passed")
    with pytest.raises(IllegalMoveError, match="too late"):
        await store.verbs.cancel("t2")


async def test_what_the_broker_holds_is_found_behind_any_number_that_it_does_not(where: Path | Address) -> None:
    async with Store(where) as store:
        held = await claimed(store)
        word = {"kind": "waiting", "proposal": "p", "reason": "stopped", "opens": None}
        over = {"kind": "refusal", "proposal": "q", "findings": [{"severity": "fatal"}]}
        assert await store.deliver(held, "the checks pass")
        result = AttemptResult(conclusion=Conclusion(ending="finished"))
        await store.settle(held, Settlement(TaskState.NEEDS_PERSON, "waits", result, verdict=word))
        for name in ("t2", "t3", "t4"):
            later = await claimed(store, name)
            assert await store.deliver(later, "the checks pass")
            verdict = None if name == "t2" else over
            await store.settle(later, Settlement(TaskState.NEEDS_PERSON, "no", result, verdict=verdict))
        assert [one.task for one in await store.held(0.0, 2)] == ["t1"]


async def test_a_task_with_all_its_messages_still_goes_on(where: Path | Address) -> None:
    async with Store(where) as store:
        claim = await claimed(store)
        await store.salvaged(claim, Kept("refs/salvage/t1", "tree", "sandbox"))
        for number in range(MOST):
            await store.messages.add("t1", f"{number}", "ann")
        with pytest.raises(TaskError, match="200 messages already"):
            await store.messages.add("t1", "one more", "ann")
        gave_up = AttemptResult(conclusion=Conclusion(ending="gave_up"))
        await store.settle(claim, Settlement(TaskState.GAVE_UP, "because", gave_up))
        assert (await store.verbs.resume("t1")).state is TaskState.QUEUED


async def test_a_task_waits_until_it_is_due(where: Path | Address) -> None:
    now = 1000.0
    async with Store(where, clock=lambda: now) as store:
        claim = await claimed(store)
        wait = Settlement(
            TaskState.QUEUED, "later", AttemptResult(conclusion=Conclusion(ending="infra_failed")), wait=60
        )
        await store.settle(claim, wait)
        assert await store.queue.claim(HOST) is None
        assert await store.queue.due() == 1060.0
        now = 1060.0
        again = await store.queue.claim(HOST)
    assert again is not None
    assert again.attempt.number == 2
    assert again.before.attempts == 1


async def test_what_was_spent_is_on_disk_before_any_later_line(where: Path | Address) -> None:
    async with Store(where) as store, Store(where) as other:
        claim = await claimed(store)
        for count in range(1, 50):
            store.budgets.spend(claim.attempt.id, Spent(steps=count, tokens=count, wall=count))
        await store.record(claim, "note", {})
        spent = (await other.view("t1")).spent
        assert (spent.steps, spent.tokens) == (49, 49)


async def test_the_journal_cannot_be_rewritten(store: Store) -> None:
    await add(store)
    for attack in ("UPDATE steps SET kind = 'nothing'", "DELETE FROM steps", "UPDATE steps SET seq = 7"):
        with pytest.raises(StoreError, match="only grows"):
            await store._db.do(lambda connection, attack=attack: connection.exec_driver_sql(attack))


async def test_lines_are_numbered_without_gaps_whoever_writes(where: Path | Address) -> None:
    async with Store(where) as one, Store(where) as two:
        claim = await claimed(one)
        await asyncio.gather(*(each.record(claim, "note", {"n": n}) for n in range(20) for each in (one, two)))
        steps = await one.steps("t1")
        assert [step.seq for step in steps] == list(range(1, len(steps) + 1))
        assert len(steps) == 43
        assert [step.seq for step in await one.steps("t1", after=40)] == [41, 42, 43]


async def test_half_characters_and_odd_values_do_not_break_the_journal(store: Store) -> None:
    claim = await claimed(store)
    odd = {"text": "broken \ud800 half", "bytes": b"\xff", "path": Path("a"), "set": {"b", "a"}, "nul": "\0"}
    step = await store.record(claim, "note", odd)
    read = (await store.steps("t1"))[-1]
    assert read.seq == step.seq
    assert read.data["text"] == "broken ? half"
    assert read.data["set"] == ["a", "b"]
    read.model_dump_json()


async def test_an_id_may_be_shortened_while_it_is_unique(store: Store) -> None:
    await add(store, "abc1")
    await add(store, "abd2")
    assert (await store.view("abc")).task.id == "abc1"
    with pytest.raises(TaskNotFoundError, match="more than one"):
        await store.view("ab")
    for nothing in ("zzz", "", "%", "_bc1"):
        with pytest.raises(TaskNotFoundError):
            await store.view(nothing)


async def test_a_shortened_id_cancels_and_retries_the_right_task(store: Store) -> None:
    await add(store, "abc1")
    await add(store, "xyz1")
    assert (await store.verbs.cancel("ab")).state is TaskState.CANCELLED
    assert (await store.verbs.retry("ab")).state is TaskState.QUEUED
    assert (await store.view("xyz1")).state is TaskState.QUEUED


async def test_a_retry_grants_the_budget_once_more_and_carries_finished_work(store: Store) -> None:
    claim = await claimed(store)
    result = AttemptResult(
        conclusion=Conclusion(ending="finished"), sealed=Sealed(base="b", tree="t", files=("f",), changed=True)
    )
    await store.salvaged(claim, Kept("refs/salvage/1", "t", "swarm-a"))
    await store.settle(claim, Settlement(TaskState.NEEDS_PERSON, "broker away", result))
    view = await store.verbs.retry("t1")
    assert view.task.budget.steps == 2 * Budget().steps
    again = await store.queue.claim(HOST)
    assert again is not None
    assert again.carried == result
    assert again.attempt.salvage == "refs/salvage/1"


async def test_views_are_newest_first_and_filtered(store: Store) -> None:
    for name in ("t1", "t2", "t3"):
        await add(store, name)
    await store.verbs.cancel("t2")
    assert [view.task.id for view in await store.views(None, 2)] == ["t3", "t2"]
    assert [view.task.id for view in await store.views(TaskState.CANCELLED, 50)] == ["t2"]
    assert await store.counts() == {TaskState.QUEUED: 2, TaskState.CANCELLED: 1}


async def test_everything_is_there_after_closing(where: Path | Address) -> None:
    async with Store(where) as store:
        claim = await claimed(store)
        await store.record(claim, "note", {"text": "x"})
        before = (await store.view("t1"), await store.steps("t1"))
    async with Store(where) as store:
        assert (await store.view("t1"), await store.steps("t1")) == before


def private_files(folder: Path) -> dict[str, bool]:
    return {file.name: file.stat().st_mode & 0o077 == 0 for file in folder.iterdir()}


class TestBadFiles:
    def test_a_file_that_is_no_database(self, tmp_path: Path) -> None:
        (tmp_path / "swarm.db").write_bytes(b"nothing of the kind" * 500)
        with pytest.raises(StoreError, match="cannot be used") as told:
            Store(tmp_path / "swarm.db")
        assert "mv " in told.value.mend

    async def test_a_database_with_a_damaged_page(self, tmp_path: Path) -> None:
        async with Store(tmp_path / "swarm.db") as store:
            for number in range(40):
                await add(store, f"t{number}")
        data = bytearray((tmp_path / "swarm.db").read_bytes())
        data[4096 : len(data) - 4096] = b"\xa5" * (len(data) - 8192)
        (tmp_path / "swarm.db").write_bytes(data)
        with pytest.raises(StoreError):
            Store(tmp_path / "swarm.db")

    async def test_one_of_a_newer_version(self, tmp_path: Path) -> None:
        async with Store(tmp_path / "swarm.db"):
            pass
        with sqlite3.connect(tmp_path / "swarm.db") as other:
            other.execute(f"PRAGMA user_version = {VERSION + 1}")
        other.close()
        with pytest.raises(StoreError, match="newer version") as told:
            Store(tmp_path / "swarm.db")
        assert "newer version" in told.value.mend

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError):
            Store(tmp_path / "nowhere" / "swarm.db")

    async def test_a_table_that_went_away_is_an_error_of_the_store(self, store: Store) -> None:
        await store._db.do(lambda connection: connection.exec_driver_sql("DROP TABLE steps"))
        with pytest.raises(StoreError, match="steps"):
            await add(store)

    async def test_the_database_is_for_its_owner_and_has_a_write_ahead_log(self, tmp_path: Path) -> None:
        async with Store(tmp_path / "swarm.db") as store:
            await add(store)
            files = private_files(tmp_path)
        assert files == {"swarm.db": True, "swarm.db-wal": True, "swarm.db-shm": True}


def test_every_statement_goes_through_a_transaction_that_writes_from_its_start(tmp_path: Path) -> None:
    store = Store(tmp_path / "swarm.db")
    seen: list[str] = []
    sa.event.listen(store._db._made.engine, "before_cursor_execute", lambda *args: seen.append(args[2]))
    store._db._transact(lambda connection: connection.exec_driver_sql("SELECT 1"))
    assert seen[0] == "BEGIN IMMEDIATE"
    store._db._thread.shutdown()
    store._db._made.engine.dispose()


async def test_what_a_phase_says_that_is_made_once_more_stands_once(store: Store) -> None:
    """Killed between its last line and its end, it is made again: a task had two receipts of one delivery."""
    claim = await claimed(store)
    receipt = {"number": 1, "urls": ("a", "b")}
    first = await store.record_once(claim, "receipt", receipt)
    await store.record(claim, "note", {"text": "in between"})
    again = await store.record_once(claim, "receipt", receipt)
    assert again.seq == first.seq
    await store.record_once(claim, "receipt", receipt | {"number": 2})
    await store.record_once(await claimed(store, "t2"), "receipt", receipt)
    found = {task: [step.data for step in await store.steps(task) if step.kind == "receipt"] for task in ("t1", "t2")}
    assert [each["number"] for each in found["t1"]] == [1, 2]
    assert [each["number"] for each in found["t2"]] == [1]
