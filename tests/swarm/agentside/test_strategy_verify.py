"""Draft and verify: a compressed view decides; a draft that is turned down leaves nothing, an amendment only mends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from swarm.strategies.verify import Amendment, DraftVerify, Judgement, read
from swarm.types import Budget, Conclusion, Spent
from swarm.work import Work

TESTS = "grep -q 'return 1' m.py"
BODY = "".join(f"    line_{number} = {number}\n" for number in range(40))
FILES = {"m.py": f"def one():\n    return 7\n\n\ndef other():\n{BODY}", "b.py": "x = 1\n"}


def said(verdict: str, reason: str = "", *edits: tuple[str, str, str]) -> str:
    rows = [{"file": file, "search": old, "replace": new} for file, old, new in edits]
    return json.dumps({"verdict": verdict, "reason": reason, "edits": rows})


class Drafter:
    """Writes one text a draft."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.asked: list[tuple[str, str]] = []

    async def work(self, work: Work) -> Conclusion:
        self.asked.append((work.tier, work.task.request.instructions))
        work.ledger.charge(Spent(tokens=10, steps=1))
        text = self.texts[len(self.asked) - 1]
        if not text:
            return Conclusion(ending="gave_up", summary="no idea")
        await work.sandbox.write("m.py", FILES["m.py"].replace("return 7", text).encode())
        await work.record("edit", {"path": "m.py", "changed": True})
        return Conclusion(ending="finished", title=f"draft {len(self.asked)}")


async def drafted(desk, drafter: Drafter, *answers: Any, **more: Any):
    at = await desk(FILES, list(answers), test_command=TESTS, **more)
    work = replace(at.work, ladder=("small", "large"))
    return at, await DraftVerify(drafter).work(work)


async def test_an_accepted_draft_is_kept(desk) -> None:
    drafter = Drafter("return 1")
    at, done = await drafted(desk, drafter, said("accept", "right"))
    assert (done.ending, done.title) == ("finished", "draft 1")
    assert "[verified: accept: right]" in done.summary
    assert "return 1" in at.text("m.py")
    assert (drafter.asked[0][0], at.pool.requests[0].tier) == ("small", "large")
    assert at.saves == 1


@pytest.mark.slow
async def test_the_large_tier_reads_the_change_and_no_more(desk) -> None:
    at, _ = await drafted(desk, Drafter("return 1"), said("accept"))
    shown = at.pool.requests[0].messages[1].content
    assert "+    return 1" in shown
    assert "m.py one:\ndef one():\n    return 1" in shown
    assert "line_30" not in shown
    assert "All tests pass." in shown


async def test_a_draft_that_is_turned_down_leaves_nothing_and_its_fault_is_told(desk) -> None:
    drafter = Drafter("return 5", "return 1")
    at, done = await drafted(desk, drafter, said("reject", "five is not one"), said("accept"))
    assert done.title == "draft 2"
    assert at.text("m.py").startswith("def one():\n    return 1\n")
    assert "five is not one" in drafter.asked[1][1]
    assert "mend it" in drafter.asked[1][1]


@pytest.mark.slow
async def test_a_draft_that_is_turned_down_to_the_end_is_kept_but_given_up(desk) -> None:
    at, done = await drafted(desk, Drafter("return 5", "return 6"), *[said("reject", "no")] * 2)
    assert done.ending == "gave_up"
    assert "return 6" in at.text("m.py")
    assert len(at.pool.requests) == 2


@pytest.mark.slow
async def test_an_amendment_is_made(desk) -> None:
    at, done = await drafted(desk, Drafter("return 5"), said("amend", "nearly", ("m.py", "return 5", "return 1")))
    assert done.ending == "finished"
    assert "return 1" in at.text("m.py")


@pytest.mark.slow
async def test_an_amendment_that_breaks_the_tests_is_left_out(desk) -> None:
    at, done = await drafted(desk, Drafter("return 1"), said("amend", "better", ("m.py", "return 1", "return 9")))
    assert done.ending == "finished"
    assert "return 1" in at.text("m.py")
    assert any("the amendment was left out" in note["text"] for note in at.kinds("note"))


@pytest.mark.slow
async def test_an_edit_that_cannot_be_made_is_told_and_the_others_are(desk) -> None:
    edits = (("nowhere.py", "a", "b"), ("/etc/passwd", "a", "b"), ("m.py", "no such text", "b"), ("b.py", "1", "2"))
    at, _ = await drafted(desk, Drafter("return 1"), said("amend", "so", *edits))
    assert at.text("b.py") == "x = 2\n"
    assert sum("was left out" in note["text"] for note in at.kinds("note")) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("text", "ending"), [("return 1", "finished"), ("return 5", "gave_up")])
@pytest.mark.slow
async def test_where_the_verifier_says_nothing_the_tests_judge(desk, text: str, ending: str) -> None:
    _, done = await drafted(desk, Drafter(text, text), "fine", "fine")
    assert done.ending == ending


@pytest.mark.slow
async def test_nothing_drafted_is_nothing_to_verify(desk) -> None:
    at, done = await drafted(desk, Drafter(""))
    assert (done.ending, done.summary, at.pool.requests) == ("gave_up", "no idea", [])


@pytest.mark.slow
async def test_no_verifier_is_asked_once_the_budget_is_spent(desk) -> None:
    at, done = await drafted(desk, Drafter("return 1"), budget=Budget(steps=1))
    assert (done.ending, at.pool.requests) == ("finished", [])
    assert at.work.ledger.spent().steps == 1


def test_a_judgement_is_read_with_what_of_it_can_be() -> None:
    assert read(said("amend", "so", ("a", "b", ""))) == Judgement(
        verdict="amend", reason="so", edits=(Amendment(file="a", search="b", replace=""),)
    )
    assert read('{"verdict": "accept", "edits": [7], "more": 1}') == Judgement(verdict="accept")
    assert read('{"verdict": "maybe"}') is None
    assert read("accept") is None
