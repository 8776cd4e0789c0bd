"""Cascade: weakest first, up on evidence, down once the hard part is done; every move has its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BudgetExceededError
from swarm.strategies.cascade import Cascade
from swarm.strategies.climbing import Stage, next_move
from swarm.strategies.trial import Verdict
from swarm.types import Budget, Conclusion, Spent
from swarm.work import Work

CHECK = """\
code=0
t() { if grep -q "$2" m.py; then echo "$1 (t.T) ... ok"; else echo "$1 (t.T) ... FAIL"; code=1; fi; }
for n in 1 2 3; do t "test_$n" "return $n"; done
exit $code
"""
FILES = {"m.py": "def f():\n    return 7\n", "check.sh": CHECK}
TESTS = "sh check.sh"
LADDER = ("small", "middle", "large")

Act = Callable[[Work], str]


class Worker:
    """Acts by tier: writes the lines that it returns, spends its whole share where asked, or gives up."""

    def __init__(self, *acts: tuple[str, list[int], str]) -> None:
        self.acts = acts
        self.asked: list[tuple[str, str]] = []

    async def work(self, work: Work) -> Conclusion:
        tier, numbers, ending = self.acts[len(self.asked)]
        self.asked.append((work.tier, work.task.request.instructions))
        assert work.tier == tier
        if numbers:
            text = "".join(f"    return {number}\n" for number in numbers)
            await work.sandbox.write("m.py", f"def f():\n{text}".encode())
            await work.record("edit", {"path": "m.py", "changed": True})
        if ending == "share":
            each = max(1, work.ledger.budget.tokens // 40)
            try:
                while True:
                    work.ledger.admit()
                    work.ledger.charge(Spent(tokens=each))
            except BudgetExceededError as error:
                return Conclusion(ending="limit_hit", limit=error.limit, summary=str(error))
        work.ledger.charge(Spent(tokens=1, steps=1))
        return Conclusion(ending=ending, summary=f"{tier} says {ending}", lessons=f"{tier} learnt")


async def cascaded(desk, *acts: tuple[str, list[int], str], **more):
    at = await desk(FILES, test_command=TESTS, budget=more.pop("budget", None))
    worker = Worker(*acts)
    done = await Cascade(worker, **more).work(replace(at.work, ladder=LADDER))
    return at, worker, done


def reasons(at) -> list[str]:
    return [note["text"] for note in at.kinds("note") if note.get("about") == "climb"]


@pytest.mark.slow
async def test_what_the_weakest_can_do_asks_no_other(desk) -> None:
    at, worker, done = await cascaded(desk, ("small", [1, 2, 3], "finished"))
    assert (done.ending, len(worker.asked)) == ("finished", 1)
    assert reasons(at) == ["on tier small: the weakest tier first"]


async def test_giving_up_climbs_and_the_next_is_told_what_was_tried(desk) -> None:
    acts = (("small", [1], "gave_up"), ("middle", [1, 2, 3], "finished"))
    at, worker, done = await cascaded(desk, *acts)
    assert done.ending == "finished"
    assert reasons(at)[1] == "on tier middle: small gave up: small says gave_up"
    told = worker.asked[1][1]
    for words in ("mend it", "small learnt", "+    return 1", "test_2"):
        assert words in told


@pytest.mark.slow
async def test_done_over_failing_tests_is_evidence(desk) -> None:
    at, _, _ = await cascaded(desk, ("small", [9], "finished"), ("middle", [1, 2, 3], "finished"))
    assert "small calls it done, but: the tests ended with exit code 1" in reasons(at)[1]


@pytest.mark.slow
async def test_a_share_that_moved_no_test_climbs(desk) -> None:
    at, _, _ = await cascaded(desk, ("small", [9], "share"), ("middle", [1, 2, 3], "finished"))
    assert reasons(at)[1] == "on tier middle: small spent its share and no test moved"


async def test_it_steps_down_once_the_hard_part_is_done(desk) -> None:
    acts = (("small", [9], "gave_up"), ("middle", [1, 2], "share"), ("small", [1, 2, 3], "finished"))
    at, _, done = await cascaded(desk, *acts)
    assert done.ending == "finished"
    assert reasons(at)[2] == "on tier small: 2 failing tests fewer on middle; the rest is for less"


@pytest.mark.slow
async def test_tests_that_pass_when_a_share_is_spent_are_done(desk) -> None:
    _, worker, done = await cascaded(desk, ("small", [1, 2, 3], "share"))
    assert (done.ending, done.limit, len(worker.asked)) == ("finished", "", 1)


@pytest.mark.slow
async def test_it_ends_at_the_top_and_after_so_many_stages(desk) -> None:
    acts = tuple((tier, [9], "gave_up") for tier in LADDER)
    _, worker, done = await cascaded(desk, *acts, stages=9)
    assert (done.ending, len(worker.asked)) == ("gave_up", 3)
    _, worker, _ = await cascaded(desk, *acts, stages=2)
    assert len(worker.asked) == 2


@pytest.mark.slow
async def test_the_whole_spends_no_more_than_it_may(desk) -> None:
    acts = tuple((tier, [9], "share") for tier in LADDER)
    at, _, done = await cascaded(desk, *acts, budget=Budget(tokens=100))
    assert at.work.ledger.spent().tokens <= 100
    assert done.ending == "limit_hit"


class Opener:
    """Writes these lines and ends so; "share" spends all that it may."""

    def __init__(self, numbers: list[int], ending: str) -> None:
        self.worker = Worker(("small", numbers, ending))

    async def work(self, work: Work) -> Conclusion:
        return (await self.worker.work(work)).model_copy(update={"title": "by rule"})


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["finished", "gave_up", "share"])
async def test_a_cheap_opener_that_does_it_climbs_nowhere(desk, ending: str) -> None:
    at, worker, done = await cascaded(desk, opener=Opener([1, 2, 3], ending))
    assert (done.ending, done.title, worker.asked, reasons(at)) == ("finished", "by rule", [], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("finished", "the opener calls it done, but: the tests ended with exit code 1"),
        ("no_change", "the opener calls it done, but: the tests ended with exit code 1"),
        ("gave_up", "the opener gave up: small says gave_up"),
        ("share", "the opener spent its share and no test moved"),
    ],
)
async def test_an_opener_that_did_not_do_is_climbed_from(desk, ending: str, why: str) -> None:
    opener = Opener([9] if ending != "no_change" else [], ending)
    at, worker, done = await cascaded(desk, ("small", [1, 2, 3], "finished"), opener=opener)
    assert (done.ending, [tier for tier, _ in worker.asked]) == ("finished", ["small"])
    assert why in reasons(at)[0]
    assert ("+    return 9" in worker.asked[0][1]) == (ending != "no_change")


@pytest.mark.slow
async def test_finding_nothing_more_to_do_to_what_a_stage_left_is_no_unchanged_workspace(desk) -> None:
    at = await desk({"m.py": "def f():\n    return 7\n"}, test_command=None)
    worker = Worker(("small", [1], "gave_up"), ("middle", [], "no_change"))
    done = await Cascade(worker).work(replace(at.work, ladder=LADDER))
    assert done.ending == "finished"


@pytest.mark.slow
async def test_after_a_crash_a_stage_is_judged_by_what_it_left_and_no_move_is_told_twice(desk) -> None:
    acts = ("small", [9], "gave_up"), ("middle", [1, 2, 3], "finished")
    at, _, _ = await cascaded(desk, *acts)
    begun = next(n for n, line in enumerate(at.steps) if line.data.get("part") == "stage-2")
    again = await desk({**FILES, "m.py": "def f():\n    return 1\n    return 2\n"}, test_command=TESTS)
    worker = Worker(("middle", [1, 2, 3], "finished"))
    past = tuple(at.steps[: begun + 1])
    await Cascade(worker).work(replace(again.work, ladder=LADDER, past=past))
    assert [tier for tier, _ in worker.asked] == ["middle"]
    assert "+    return 9" in worker.asked[0][1]
    assert reasons(again) == []


@pytest.mark.slow
async def test_after_a_crash_stages_that_ended_are_not_made_again(desk) -> None:
    at, _, _ = await cascaded(desk, ("small", [1], "gave_up"), ("middle", [1, 2, 3], "finished"))
    cut = next(n for n, line in enumerate(at.steps) if line.data.get("about") == "concluded") + 1
    again = await desk({**FILES, "m.py": "def f():\n    return 1\n"}, test_command=TESTS)
    worker = Worker(("middle", [1, 2, 3], "finished"))
    await Cascade(worker).work(replace(again.work, ladder=LADDER, past=tuple(at.steps[:cut])))
    assert [tier for tier, _ in worker.asked] == ["middle"]


endings = st.sampled_from(["finished", "gave_up", "limit_hit", "no_change"])


@given(st.lists(st.tuples(endings, st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_every_cascade_comes_to_an_end_on_the_ladder(seen: list[tuple[str, int, bool]]) -> None:
    stages: list[Stage] = []
    tier = LADDER[0]
    for ending, failing, proved in seen:
        limit = "part.tokens" if ending == "limit_hit" else ""
        names = tuple(f"t{number}" for number in range(failing))
        verdict = Verdict(known=True, passed=not failing, failing=names, fixed=("x",) if proved else ())
        stages.append(Stage(tier, Conclusion(ending=ending, limit=limit), verdict))
        move = next_move(stages, LADDER, 3, 5)
        if move is None:
            break
        assert move.tier in LADDER
        assert move.why
        tier = move.tier
    assert len(stages) <= 5


@pytest.mark.parametrize("limit", ["task.tokens", "fleet.money"])
def test_a_limit_of_the_whole_ends_it(limit: str) -> None:
    stage = Stage("small", Conclusion(ending="limit_hit", limit=limit), Verdict(known=True, failing=("a",)))
    assert next_move([stage], LADDER, 1, 5) is None
