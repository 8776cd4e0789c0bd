"""Parts of the work: journals and sessions of their own, run once, and never more spent than the whole may."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.errors import ContextOverflowError
from pool.testing import ScriptedPool, call
from sandbox.testing import ScriptedBackend
from sandbox.types import SandboxSpec
from swarm.config_strategies import StrategyConfig
from swarm.errors import BudgetExceededError
from swarm.store.journal import surviving
from swarm.strategies.choice import strategy_named
from swarm.strategies.parts import concluded, conclusion_of, looked, of_whole, shared_out
from swarm.types import Budget, Conclusion, Spent, Step
from swarm.work import Work
from tests.swarm.agentside.conftest import Desk


class Ended:
    def __init__(self, *outcomes: Conclusion | Exception) -> None:
        self.outcomes = list(outcomes)

    async def work(self, work: Work) -> Conclusion:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def line(kind: str, **data: Any) -> Step:
    return Step(task="t1", attempt="t1.1", seq=1, at=0.0, kind=kind, data=data)


async def test_a_part_knows_its_own_lines_alone(desk) -> None:
    at = await desk({})
    past = (line("note", part="a", text="1"), line("note", text="2"), line("note", part="a.b"), line("note", part="ab"))
    part = replace(at.work, past=past).part("a")
    assert [step.data.get("text") for step in part.past] == ["1", None]
    assert (part.attempt, {step.attempt for step in part.past}) == ("t1.1~a", {"t1.1~a"})
    await part.record("note", {"text": "3"})
    inner = part.part("b", tier="large")
    await inner.record("note", {"text": "4"})
    assert (inner.name, inner.attempt, inner.tier) == ("a.b", "t1.1~a.b", "large")
    assert [step.data["part"] for step in at.steps] == ["a", "a.b"]


async def test_a_part_in_a_sandbox_of_its_own_saves_nothing_and_says_so(desk) -> None:
    at = await desk({})
    async with at.sandbox.fork() as fork:
        part = at.work.part("a", sandbox=fork)
        await part.save()
        await part.record("edit", {"changed": True})
    assert at.saves == 0
    assert at.steps[0].data == {"changed": True, "part": "a", "fork": True}
    whole = (line("note", text="1"), at.steps[0], line("note", text="2"))
    assert surviving(whole) == whole


@pytest.mark.parametrize("name", ["", "A", "a b", "a.b", "tools", "-a", "x" * 60])
async def test_what_is_no_name_of_a_part_is_refused(desk, name: str) -> None:
    at = await desk({})
    with pytest.raises(ValueError, match="no name of a part"):
        at.work.part(name)


async def test_a_part_that_ended_is_not_run_again(desk) -> None:
    at = await desk({})
    good = Conclusion(ending="finished", title="t", tried={"agent": 3})
    assert await concluded(at.work.part("a"), Ended(good)) == good
    later = replace(at.work, past=tuple(at.steps)).part("a")
    assert await concluded(later, Ended()) == good
    assert conclusion_of(replace(at.work, past=tuple(at.steps)).part("b")) is None
    assert at.pool.ended == ["t1.1~a"]


async def test_limits_and_overflows_are_conclusions_of_a_part(desk) -> None:
    at = await desk({})
    limit = BudgetExceededError("spent", limit="part.tokens")
    first = await concluded(at.work.part("a"), Ended(limit))
    assert (first.ending, first.limit) == ("limit_hit", "part.tokens")
    assert of_whole(first).limit == "task.tokens"
    assert of_whole(first, proved=True).ending == "finished"
    second = await concluded(at.work.part("b"), Ended(ContextOverflowError("too long", window=9)))
    assert second.ending == "gave_up"


async def test_what_a_part_spent_before_a_crash_counts_in_its_share(desk) -> None:
    at = await desk({}, budget=Budget(tokens=100))
    at.work.ledger.charge(Spent(tokens=20))
    past = (line("model_call", part="a", message={}, prompt_tokens=15, completion_tokens=5),)
    part = shared_out(replace(at.work, past=past), "a", 0.5)
    with pytest.raises(BudgetExceededError):
        part.ledger.charge(Spent(tokens=41))
    assert at.work.ledger.spent().tokens == 61


def test_what_was_read_before_the_first_change_can_be_shared() -> None:
    def turn(name: str, *results: Step) -> list[Step]:
        return [line("model_call", message={"role": "assistant", "content": name}), *results]

    opening = line("note", about="opening")
    read = turn("read", line("note", tool="view", changed=False))
    tested = turn("test", line("command", tool="run_tests", changed=True))
    edited = turn("edit", line("edit", tool="edit", changed=True))
    shell = turn("shell", line("command", tool="shell", changed=True))
    assert looked([opening, *read, *tested, *edited, *read]) == (opening, *read, *tested)
    assert looked([opening, *read, *shell]) == (opening, *read)
    assert looked([opening, *edited]) == (opening,)
    assert looked([opening, *read]) == (opening,)  # its last turn may have ended it
    assert looked([]) == ()


kinds = st.sampled_from(["best-of", "plan", "review", "draft-verify", "cascade", "in-turn"])


@st.composite
def compositions(draw: st.DrawFn) -> dict[str, StrategyConfig]:
    """Up to three strategies within one another, the innermost an agent."""
    made: dict[str, StrategyConfig] = {}
    of = "agent"
    for number in range(draw(st.integers(1, 2))):
        kind = draw(kinds)
        rounds = draw(st.integers(1, 2))
        more: dict[str, Any] = {"ways": (of, "agent")} if kind == "in-turn" else {"of": of}
        more |= {"n": 2, "at_once": draw(st.integers(1, 2))} if kind == "best-of" else {}
        more |= {"rounds": rounds} if kind in {"plan", "review", "draft-verify", "cascade"} else {}
        of = f"s{number}"
        made[of] = StrategyConfig(kind=kind, **more)
    return made


@pytest.mark.slow
@given(compositions(), st.integers(1, 12), st.integers(200, 4000), st.data())
def test_no_composition_begins_a_call_past_a_limit(
    made: dict[str, StrategyConfig], steps: int, tokens: int, data: st.DataObject
) -> None:
    answers = data.draw(st.lists(st.sampled_from(["words", "view", "shell", "finish"]), min_size=1, max_size=6))
    asyncio.run(_spent_within(made, Budget(steps=steps, tokens=tokens), answers))


async def _spent_within(made: dict[str, StrategyConfig], budget: Budget, answers: list[str]) -> None:
    scripted = {
        "words": "I think so",
        "view": call("view", path="m.py"),
        "shell": call("shell", command="echo x >> m.py"),
        "finish": call("finish", title="t", summary="a plan"),
    }
    begun: list[bool] = []

    def answer(_: object) -> Any:
        gauges = at.work.ledger.gauges()
        begun.append(all(gauge.used < gauge.limit for gauge in gauges))
        return scripted[answers[len(begun) % len(answers)]]

    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        (sandbox.work / "m.py").write_text("x = 1\n")
        at = Desk(sandbox, ScriptedPool(answer), budget=budget, test_command="grep -q y m.py")
        at.work = replace(at.work, ladder=("small", "large"))
        done = await strategy_named(list(made)[-1], made=made).work(at.work)
    assert all(begun)
    assert at.work.ledger.spent().steps <= budget.steps + 1  # those beside one another may each end on the last
    assert not done.limit.startswith("part.")
