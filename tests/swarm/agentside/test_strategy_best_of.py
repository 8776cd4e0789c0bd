"""Best of n: tests choose, agreement ends it early, siblings share what was read, nothing is left of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pool.testing import call
from pool.types import ChatRequest
from sandbox.types import Command
from swarm.agent import Agent
from swarm.errors import BudgetExceededError
from swarm.strategies.best_of import BestOf
from swarm.types import Budget, Conclusion, Spent
from swarm.work import Work

TESTS = "sh check.sh"
CASES = """\
code=0
t() { if grep -q "$2" m.py; then echo "$1 (t.T) ... ok"; else echo "$1 (t.T) ... FAIL"; code=1; fi; }
t test_one "^    return 1"
t test_two "^    return 2"
exit $code
"""
FILES = {"m.py": "def two():\n    return 2\n\n\ndef one():\n    return 7\n", "check.sh": CASES}
RIGHT, WRONG = "return 1", "return 8"


class Scribe:
    """Writes what it is told to, one text a try, and spends what it is told to."""

    def __init__(self, *texts: str, tokens: int = 10, wait: Callable[[Work], Any] | None = None) -> None:
        self.texts = dict(enumerate(texts, 1))
        self.tokens = tokens
        self.wait = wait
        self.began: list[str] = []

    async def work(self, work: Work) -> Conclusion:
        number = int(work.name.rpartition("-")[2])
        self.began.append(work.name)
        if self.wait is not None:
            await self.wait(work)
        work.ledger.admit()
        work.ledger.charge(Spent(tokens=self.tokens, steps=1))
        text = self.texts[number]
        if not text:
            return Conclusion(ending="gave_up", summary="no idea")
        await work.sandbox.write("m.py", FILES["m.py"].replace("return 7", text).encode())
        await work.record("edit", {"path": "m.py", "changed": True})
        return Conclusion(ending="finished", title=f"by {work.name}", summary="did it")


async def test_the_try_that_passes_the_tests_is_kept(desk) -> None:
    at = await desk(FILES, test_command=TESTS)
    done = await BestOf(Scribe(WRONG, RIGHT, ""), agree=2).work(at.work)
    assert (done.ending, done.title) == ("finished", "by try-2")
    assert at.text("m.py") == FILES["m.py"].replace("return 7", RIGHT)
    assert at.saves == 1
    assert any("try-2 is taken: 1 of 2 pass the tests" in note["text"] for note in at.kinds("note"))


@pytest.mark.slow
async def test_tries_end_once_enough_passed_what_had_failed(desk) -> None:
    at = await desk(FILES, test_command=TESTS)
    inner = Scribe(RIGHT, RIGHT, RIGHT, RIGHT, RIGHT)
    await BestOf(inner, n=5, agree=2).work(at.work)
    assert inner.began == ["try-1", "try-2"]
    assert at.work.ledger.spent().tokens == 20


@pytest.mark.slow
async def test_a_try_that_breaks_a_test_is_not_kept(desk) -> None:
    class Breaker(Scribe):
        async def work(self, work: Work) -> Conclusion:
            done = await super().work(work)
            if work.name == "try-1":
                await work.sandbox.write("m.py", b"def one():\n    return 1\n")
            return done

    at = await desk(FILES, test_command=TESTS)
    done = await BestOf(Breaker(WRONG, RIGHT, RIGHT), n=2, agree=2).work(at.work)
    assert done.title == "by try-2"
    assert any("test_two" in note["text"] for note in at.kinds("note"))


async def test_without_tests_the_patch_that_most_agree_on_is_kept(desk) -> None:
    at = await desk(FILES)
    done = await BestOf(Scribe("return 5", "return 4  # four", "return 4"), n=3).work(at.work)
    assert done.title == "by try-3"  # the same patch as the second, and smaller
    assert "2 agree on its patch" in done.summary


@pytest.mark.slow
async def test_a_try_that_weakened_the_tests_is_judged_by_the_first_ones(desk) -> None:
    class Cheat(Scribe):
        async def work(self, work: Work) -> Conclusion:
            done = await super().work(work)
            if work.name == "try-1":
                await work.sandbox.write("check.sh", CASES.replace("return 1", "return").encode())
            return done

    at = await desk(FILES, test_command=TESTS)
    done = await BestOf(Cheat(WRONG, RIGHT), n=2, agree=1).work(at.work)
    assert done.title == "by try-2"
    assert at.text("check.sh") == CASES


@pytest.mark.slow
async def test_where_no_try_changes_anything_its_reason_is_told(desk) -> None:
    at = await desk(FILES, test_command=TESTS)
    done = await BestOf(Scribe("", "", "")).work(at.work)
    assert done.ending == "gave_up"
    assert "none of 3 tries changed anything; the last one: no idea" in done.summary
    assert at.text("m.py") == FILES["m.py"]


@pytest.mark.slow
async def test_no_try_begins_once_the_budget_is_spent_and_each_has_a_fair_share(desk) -> None:
    class Greedy(Scribe):
        async def work(self, work: Work) -> Conclusion:
            self.began.append(work.name)
            try:
                while True:
                    work.ledger.admit()
                    work.ledger.charge(Spent(tokens=1))
            except BudgetExceededError as error:
                return Conclusion(ending="limit_hit", limit=error.limit)

    at = await desk(FILES, test_command=TESTS, budget=Budget(tokens=90))
    inner = Greedy()
    done = await BestOf(inner, n=3).work(at.work)
    assert inner.began == ["try-1", "try-2", "try-3"]
    assert at.work.ledger.spent().tokens == 90
    assert (done.ending, done.limit) == ("limit_hit", "task.tokens")


async def test_siblings_go_on_with_what_the_first_one_read(desk) -> None:
    def edit(text: str) -> Any:
        return call("edit", path="m.py", search="return 7", replace=text)

    def finish() -> Any:
        return call("finish", title="t")

    script = [call("view", path="m.py"), edit(WRONG), finish(), finish(), edit(RIGHT), finish()]
    at = await desk(FILES, script, test_command=TESTS)
    done = await BestOf(Agent(), n=2, agree=2).work(at.work)
    assert done.ending == "finished"
    assert "return 1" in at.text("m.py")
    asked = [request for request in at.pool.requests if isinstance(request, ChatRequest)]
    first = [request for request in asked if request.session == "t1.1~try-1"]
    second = [request for request in asked if request.session == "t1.1~try-2"]
    assert len(second) == 2  # it did not look again
    assert second[0].messages == first[1].messages
    assert at.pool.ended == ["t1.1~try-1", "t1.1~try-2"]


@pytest.mark.slow
async def test_cancelled_siblings_leave_no_sandbox(desk) -> None:
    async def wait(work: Work) -> None:
        if work.name != "try-1":
            await asyncio.sleep(60)

    at = await desk(FILES, test_command=TESTS)
    inner = Scribe(RIGHT, RIGHT, RIGHT, wait=wait)
    done = await BestOf(inner, n=3, agree=1, at_once=3).work(at.work)
    assert done.title == "by try-1"
    assert inner.began[0] == "try-1"
    opened = at.sandbox._backend.opened
    assert [box.folder.exists() for box in opened] == [True] + [False] * (len(opened) - 1)


@pytest.mark.slow
async def test_what_ended_before_a_crash_is_not_tried_again(desk) -> None:
    at = await desk(FILES, test_command=TESTS)
    inner = Scribe(WRONG, RIGHT)
    await BestOf(inner, n=2).work(at.work)
    lines = at.steps
    upto = next(number for number, line in enumerate(lines) if line.data.get("about") == "left") + 1
    again = await desk(FILES, test_command=TESTS)
    second = Scribe(WRONG, RIGHT)
    done = await BestOf(second, n=2).work(replace(again.work, past=tuple(lines[:upto])))
    assert second.began == ["try-2"]
    assert done.title == "by try-2"
    everything = await desk(FILES, test_command=TESTS)
    third = Scribe(WRONG, RIGHT)
    cut = next(number for number, line in enumerate(lines) if line.data.get("about") == "best")
    done = await BestOf(third, n=2).work(replace(everything.work, past=tuple(lines[: cut + 1])))
    assert (third.began, done.title) == ([], "by try-2")
    assert "return 1" in everything.text("m.py")


@pytest.mark.slow
async def test_a_change_of_modes_and_links_is_kept_as_it_was_made(desk) -> None:
    class Linker(Scribe):
        async def work(self, work: Work) -> Conclusion:
            script = "chmod 775 m.py; ln -s m.py link; rm check.sh; mkdir -p d"
            await work.sandbox.run(Command(argv=("/bin/sh", "-c", script)))
            return await super().work(work)

    at = await desk(FILES)
    await BestOf(Linker(RIGHT), n=1).work(at.work)
    folder = at.sandbox.work
    assert (folder / "link").is_symlink()
    assert (folder / "d").is_dir()
    assert not (folder / "check.sh").exists()


@pytest.mark.slow
async def test_a_try_that_fails_as_machinery_ends_them_all(desk) -> None:
    async def wait(work: Work) -> None:
        if work.name == "try-2":
            raise RuntimeError("the pool is gone")

    at = await desk(FILES, test_command=TESTS)
    with pytest.raises(RuntimeError, match="the pool is gone"):
        await BestOf(Scribe(WRONG, RIGHT, wait=wait), n=2).work(at.work)
    assert at.text("m.py") == FILES["m.py"]
