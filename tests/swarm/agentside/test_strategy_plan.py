"""Plan, then act: the large tier's words reach the small one, its edits do not; revisions are bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swarm.errors import BudgetExceededError
from swarm.strategies.plan import PlanThenAct
from swarm.types import Budget, Conclusion, Spent
from swarm.work import Work

TESTS = "grep -q 'return 1' m.py"
FILES = {"m.py": "def one():\n    return 7\n"}


class Planner:
    """Says each plan in turn, and leaves dirt where it works."""

    def __init__(self, *plans: str) -> None:
        self.plans = plans
        self.asked: list[tuple[str, str]] = []

    async def work(self, work: Work) -> Conclusion:
        self.asked.append((work.tier, work.task.request.instructions))
        work.ledger.charge(Spent(tokens=30, steps=1))
        await work.sandbox.write("m.py", b"tried out\n")
        plan = self.plans[len(self.asked) - 1]
        return Conclusion(ending="no_change" if plan else "gave_up", title="plan", summary=plan)


class Actor:
    """Writes what the plan's last word says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def work(self, work: Work) -> Conclusion:
        words = work.task.request.instructions
        self.asked.append((work.tier, words))
        work.ledger.charge(Spent(tokens=10, steps=1))
        number = words.rpartition("return ")[2].split()[0]
        await work.sandbox.write("m.py", f"def one():\n    return {number}\n".encode())
        await work.record("edit", {"path": "m.py", "changed": True})
        return Conclusion(ending="finished", title="done", summary=words[-8:])


async def opened(desk, **more):
    at = await desk(FILES, test_command=TESTS, **more)
    at.work = replace(at.work, tier="small", ladder=("small", "middle", "large"))
    return at


async def test_the_large_tier_plans_and_the_small_one_edits(desk) -> None:
    at = await opened(desk)
    planner, actor = Planner("write return 1"), Actor()
    done = await PlanThenAct(planner, actor).work(at.work)
    assert (done.ending, done.title) == ("finished", "done")
    assert at.text("m.py") == "def one():\n    return 1\n"
    assert [tier for tier, _ in planner.asked] == ["large"]
    assert [tier for tier, _ in actor.asked] == ["small"]
    assert "mend it" in actor.asked[0][1]
    assert "write return 1" in actor.asked[0][1]


@pytest.mark.slow
async def test_a_plan_that_failed_is_revised_with_the_diff_and_the_tests(desk) -> None:
    at = await opened(desk)
    planner, actor = Planner("write return 5", "write return 1"), Actor()
    await PlanThenAct(planner, actor, revisions=1).work(at.work)
    assert at.text("m.py") == "def one():\n    return 1\n"
    revised = planner.asked[1][1]
    assert "write return 5" in revised
    assert "+    return 5" in revised
    assert "exit code 1" in revised


@pytest.mark.slow
async def test_revisions_are_bounded_and_the_last_state_is_kept(desk) -> None:
    at = await opened(desk)
    planner, actor = Planner(*["write return 5"] * 9), Actor()
    done = await PlanThenAct(planner, actor, revisions=2).work(at.work)
    assert (len(planner.asked), len(actor.asked)) == (3, 3)
    assert done.ending == "finished"  # the checks say the rest
    assert at.work.ledger.spent().tokens == 120


@pytest.mark.slow
async def test_without_a_plan_nobody_acts(desk) -> None:
    at = await opened(desk)
    actor = Actor()
    done = await PlanThenAct(Planner(""), actor).work(at.work)
    assert (done.ending, actor.asked) == ("gave_up", [])
    assert at.text("m.py") == FILES["m.py"]


@pytest.mark.slow
async def test_named_tiers_come_before_the_ladder(desk) -> None:
    at = await opened(desk)
    planner, actor = Planner("write return 1"), Actor()
    await PlanThenAct(planner, actor, planner_tier="middle", actor_tier="large").work(at.work)
    assert (planner.asked[0][0], actor.asked[0][0]) == ("middle", "large")


@pytest.mark.slow
async def test_a_task_with_a_tier_of_its_own_asks_no_other(desk) -> None:
    at = await opened(desk)
    planner, actor = Planner("write return 1"), Actor()
    await PlanThenAct(planner, actor).work(replace(at.work, tier="middle", ladder=()))
    assert (planner.asked[0][0], actor.asked[0][0]) == ("middle", "middle")


async def test_planning_takes_no_more_than_its_share(desk) -> None:
    class Greedy(Planner):
        async def work(self, work: Work) -> Conclusion:
            try:
                while True:
                    work.ledger.admit()
                    work.ledger.charge(Spent(tokens=1))
            except BudgetExceededError as error:
                return Conclusion(ending="limit_hit", limit=error.limit)

    at = await opened(desk, budget=Budget(tokens=100))
    done = await PlanThenAct(Greedy(), Actor()).work(at.work)
    assert at.work.ledger.spent().tokens == 35
    assert (done.ending, done.limit) == ("limit_hit", "task.tokens")


@pytest.mark.slow
async def test_after_a_crash_the_plan_is_not_made_again(desk) -> None:
    at = await opened(desk)
    await PlanThenAct(Planner("write return 1"), Actor()).work(at.work)
    cut = next(n for n, line in enumerate(at.steps) if line.data.get("about") == "concluded") + 1
    again = await opened(desk)
    planner, actor = Planner("write return 5"), Actor()
    await PlanThenAct(planner, actor).work(replace(again.work, past=tuple(at.steps[:cut])))
    assert planner.asked == []
    assert again.text("m.py") == "def one():\n    return 1\n"


@pytest.mark.slow
async def test_after_a_crash_an_act_is_judged_by_what_it_left_and_not_by_the_next_one(desk) -> None:
    at = await opened(desk)
    await PlanThenAct(Planner("write return 5", "write return 6"), Actor()).work(at.work)
    begun = next(number for number, line in enumerate(at.steps) if line.data.get("part") == "act-2")
    again = await opened(desk)
    (again.sandbox.work / "m.py").write_text("def one():\n    return 1\n")  # half of what it wanted
    actor = Actor()
    await PlanThenAct(Planner(), actor).work(replace(again.work, past=tuple(at.steps[: begun + 1])))
    assert [words.split()[-1] for _, words in actor.asked] == ["6"]


@pytest.mark.slow
async def test_an_actor_that_adds_nothing_has_not_left_the_workspace_as_it_was(desk) -> None:
    class Late(Actor):
        async def work(self, work: Work) -> Conclusion:
            done = await super().work(work)
            return done if len(self.asked) == 1 else done.model_copy(update={"ending": "no_change"})

    at = await opened(desk)
    done = await PlanThenAct(Planner("write return 5", "write return 5"), Late()).work(at.work)
    assert done.ending == "finished"
