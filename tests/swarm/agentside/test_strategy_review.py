"""Review and fix: faults are mended in the same conversation, nits cost nothing, what makes it worse is taken back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pool.testing import call
from pool.types import ChatRequest, Traits
from sandbox.types import Command
from swarm.agent import Agent
from swarm.strategies.findings import Finding, read, worth_a_round
from swarm.strategies.review import ReviewAndFix
from swarm.types import Budget, Conclusion, Spent
from swarm.work import Work

TESTS = "grep -q 'return 1' m.py"
FILES = {"m.py": "def one():\n    return 7\n"}
FAULT = {"kind": "fault", "file": "m.py", "line": 2, "what": "returns one for all", "mend": "look at the input"}
NIT = {"kind": "nit", "file": "m.py", "line": 1, "what": "has no docstring", "mend": "write one"}


def said(*findings: dict[str, Any]) -> str:
    return json.dumps({"findings": findings})


class Actor:
    """Writes one text after the other."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.asked: list[str] = []

    async def work(self, work: Work) -> Conclusion:
        self.asked.append(work.task.request.instructions)
        work.ledger.charge(Spent(tokens=10, steps=1))
        text = self.texts[len(self.asked) - 1]
        await work.sandbox.write("m.py", f"def one():\n    {text}\n".encode())
        await work.record("edit", {"path": "m.py", "changed": True})
        return Conclusion(ending="finished", title=f"done {len(self.asked)}")


async def test_faults_are_mended_until_nothing_is_at_fault(desk) -> None:
    at = await desk(FILES, [said(FAULT), said()], test_command=TESTS)
    actor = Actor("return 1", "return 1 + x")
    done = await ReviewAndFix(actor).work(at.work)
    assert (done.ending, done.title) == ("finished", "done 2")
    assert at.text("m.py") == "def one():\n    return 1 + x\n"
    assert "returns one for all To mend it: look at the input" in actor.asked[1]


@pytest.mark.slow
async def test_the_reviewer_sees_the_task_the_diff_and_the_tests_alone(desk) -> None:
    at = await desk(FILES, [said()], test_command=TESTS)
    work = replace(at.work, ladder=("small", "large"))
    await ReviewAndFix(Actor("return 1")).work(work)
    (request,) = at.pool.requests
    assert (request.tier, request.session, len(request.messages)) == ("large", "t1.1~review-1", 2)
    shown = request.messages[1].content
    assert "mend it" in shown
    assert "-    return 7\n+    return 1" in shown
    assert "All tests pass." in shown


async def test_a_reviewer_that_only_nitpicks_makes_no_round(desk) -> None:
    at = await desk(FILES, [said(NIT, NIT)], test_command=TESTS)
    actor = Actor("return 1")
    done = await ReviewAndFix(actor, rounds=5).work(at.work)
    assert (done.title, len(at.pool.requests)) == ("done 1", 1)


@pytest.mark.slow
async def test_a_fault_that_is_told_again_makes_no_further_round(desk) -> None:
    again = {**FAULT, "what": "it returns one for all inputs"}
    at = await desk(FILES, [said(FAULT), said(again)], test_command=TESTS)
    actor = Actor("return 1", "return 1  # no, that is right", "never")
    await ReviewAndFix(actor, rounds=5).work(at.work)
    assert len(actor.asked) == 2


@pytest.mark.slow
async def test_rounds_are_bounded(desk) -> None:
    def script(_: object) -> str:
        return said({**FAULT, "what": f"fault {len(at.pool.requests)} {'abcdefgh'[len(at.pool.requests)] * 4}"})

    at = await desk(FILES, script, test_command=TESTS)
    actor = Actor(*["return 1"] * 9)
    await ReviewAndFix(actor, rounds=2).work(at.work)
    assert (len(at.pool.requests), len(actor.asked)) == (2, 3)


@pytest.mark.slow
async def test_a_fix_that_breaks_the_tests_is_taken_back(desk) -> None:
    at = await desk(FILES, [said(FAULT)], test_command=TESTS)
    done = await ReviewAndFix(Actor("return 1", "return 5")).work(at.work)
    assert at.text("m.py") == "def one():\n    return 1\n"
    assert done.title == "done 1"
    assert any("left out, since the tests passed before" in str(note.get("text")) for note in at.kinds("note"))


@pytest.mark.slow
async def test_an_answer_that_says_nothing_ends_the_review(desk) -> None:
    at = await desk(FILES, ["looks good to me"], test_command=TESTS)
    done = await ReviewAndFix(Actor("return 1")).work(at.work)
    assert done.title == "done 1"


@pytest.mark.slow
async def test_what_ended_without_a_change_is_not_reviewed(desk) -> None:
    class Idle:
        async def work(self, work: Work) -> Conclusion:
            return Conclusion(ending="no_change")

    at = await desk(FILES, [], test_command=TESTS)
    assert (await ReviewAndFix(Idle()).work(at.work)).ending == "no_change"
    assert at.pool.requests == []


@pytest.mark.slow
async def test_no_review_begins_once_the_budget_is_spent(desk) -> None:
    at = await desk(FILES, [], test_command=TESTS, budget=Budget(steps=1))
    done = await ReviewAndFix(Actor("return 1")).work(at.work)
    assert (done.ending, at.work.ledger.spent().steps) == ("finished", 1)
    assert any("no review any more" in note["text"] for note in at.kinds("note"))


@pytest.mark.slow
async def test_the_agents_own_conversation_goes_on(desk) -> None:
    def edit(old: str, new: str) -> Any:
        return call("edit", path="m.py", search=old, replace=new)

    finish = call("finish", title="t")
    script = [edit("return 7", "return 1"), finish, said(FAULT), edit("return 1", "return 1 + x"), finish, said()]
    at = await desk(FILES, script, test_command=TESTS)
    done = await ReviewAndFix(Agent()).work(at.work)
    assert done.ending == "finished"
    assert "1 + x" in at.text("m.py")
    asked = [r for r in at.pool.requests if isinstance(r, ChatRequest)]
    before = next(r for r in reversed(asked) if r.session == "t1.1~work")
    after = next(r for r in asked if r.session == "t1.1~fix-1")
    assert after.messages[: len(before.messages)] == before.messages
    assert "returns one for all" in after.messages[-1].content


@pytest.mark.slow
async def test_a_schema_is_sent_where_the_tier_keeps_to_it(desk) -> None:
    at = await desk(FILES, [said()], test_command=TESTS, traits=Traits(native=True, structured=True))
    await ReviewAndFix(Actor("return 1")).work(at.work)
    assert at.pool.requests[0].json_schema is not None


@pytest.mark.slow
async def test_a_review_that_was_paid_for_is_not_asked_again_after_a_crash(desk) -> None:
    at = await desk(FILES, [said()], test_command=TESTS)
    await ReviewAndFix(Actor("return 1")).work(at.work)
    files = {"m.py": "def one():\n    return 1\n"}
    again = await desk(files, [], test_command=TESTS)
    past = tuple(at.steps)
    done = await ReviewAndFix(Actor()).work(replace(again.work, past=past))
    assert done.title == "done 1"


class DaemonDiedError(Exception):
    """Ends the life of an attempt."""


class Mortal(Actor):
    """Writes its text, as `Actor` does, and dies with the daemon the first time that it writes "return 5"."""

    async def work(self, work: Work) -> Conclusion:
        done = await super().work(work)
        if self.texts[len(self.asked) - 1] == "return 5" and len(self.asked) == 2:
            raise DaemonDiedError
        return done


async def test_a_fix_that_breaks_the_tests_leaves_nothing_after_a_crash_either(desk) -> None:
    at = await desk(FILES, [said(FAULT)], test_command=TESTS)
    actor = Mortal("return 1", "return 5", "return 5")
    with pytest.raises(DaemonDiedError):
        await ReviewAndFix(actor).work(at.work)
    assert at.text("m.py") == "def one():\n    return 1\n"
    done = await ReviewAndFix(actor).work(replace(at.work, past=tuple(at.steps)))
    assert (done.title, len(actor.asked), len(at.pool.requests)) == ("done 1", 3, 1)
    assert at.text("m.py") == "def one():\n    return 1\n"


@pytest.mark.slow
@pytest.mark.parametrize("until", ["fixed", "taken"])
async def test_a_fix_that_ended_before_a_crash_is_not_made_again(desk, until: str) -> None:
    at = await desk(FILES, [said(FAULT), said()], test_command=TESTS)
    await ReviewAndFix(Actor("return 1", "return 1 + x")).work(at.work)
    cut = next(number for number, line in enumerate(at.steps) if line.data.get("about") == until) + 1
    left = "return 1" if until == "fixed" else "return 1 + x"
    again = await desk(FILES, [said()], test_command=TESTS)
    for words in ("init -q", "add -A", "-c user.name=a -c user.email=a@b commit -qm base"):
        await again.sandbox.run(Command(argv=("git", *words.split())))
    (again.sandbox.work / "m.py").write_text(f"def one():\n    {left}\n")
    done = await ReviewAndFix(Actor()).work(replace(again.work, past=tuple(at.steps[:cut])))
    assert (done.title, again.text("m.py")) == ("done 2", "def one():\n    return 1 + x\n")
    assert [request.session for request in again.pool.requests] == ["t1.1~review-2"]


def test_findings_are_read_out_of_whatever_surrounds_them() -> None:
    fenced = f"Here you are:\n```json\n{said(FAULT)}\n```\nBye."
    assert read(fenced) == (Finding(**FAULT),)
    assert read('{"findings": [{"what": "x", "kind": "Bug"}, "no", {"kind": "fault"}, {"what": 7}]}') == (
        Finding(kind="fault", what="x"),
    )
    assert read("[]") is None
    assert read('{"findings": "none"}') is None
    assert read("{" * 100_000) is None


def test_only_new_faults_in_what_was_changed_are_worth_a_round() -> None:
    fault, nit = Finding(**FAULT), Finding(**NIT)
    elsewhere = Finding(**{**FAULT, "file": "other.py"})
    everywhere = Finding(**{**FAULT, "file": ""})
    assert worth_a_round([nit, fault, elsewhere, everywhere], [], ["m.py"]) == (fault, everywhere)
    assert worth_a_round([fault], [fault], ["m.py"]) == ()
