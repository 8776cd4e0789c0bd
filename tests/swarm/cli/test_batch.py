"""A batch's lines: each once however often, in the order of their needs, and every fault with its line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.config import EndpointConfig, PoolConfig
from swarm.cli.batch import Bad, Reader, Sheet, cut_off, whole
from swarm.cli.batches import code_of
from swarm.cli.exits import Code
from swarm.config import RepositoryConfig, Settings
from swarm.types import TaskState

SETTINGS = Settings(
    pool=PoolConfig(endpoints=(EndpointConfig(name="box", url="http://127.0.0.1:9", tier="fast"),)),
    repositories={"web": RepositoryConfig(test_command="true")},
)
SHEET = Sheet("nightly", SETTINGS, {}, {})


def line(words: str = "fix it", **more: object) -> str:
    return json.dumps({"instructions": words, **more})


def ids(lines: list[str]) -> list[str | None]:
    entries, bad = whole(SHEET, lines)
    assert bad == []
    return [entry.request.task for entry in entries]


def test_the_same_lines_make_the_same_tasks_wherever_they_stand() -> None:
    lines = [line("one"), line("two"), line("three", id="x")]
    assert sorted(map(str, ids(lines))) == sorted(map(str, ids(["", "# a remark", *reversed(lines)])))


def test_the_same_line_twice_is_two_tasks_and_another_batch_makes_others() -> None:
    found = ids([line(), line()])
    assert len(set(found)) == 2
    other, _ = whole(Sheet("other", SETTINGS, {}, {}), [line()])
    assert other[0].request.task not in found


def test_what_is_needed_goes_first_and_is_named_by_its_task() -> None:
    entries, bad = whole(SHEET, [line("last", needs=["a", "t-elsewhere"]), line("first", id="a")])
    assert bad == []
    assert [entry.request.instructions for entry in entries] == ["first", "last"]
    assert entries[1].request.needs == (entries[0].request.task, "t-elsewhere")


def test_a_ring_is_told_of_its_lines_beside_all_other_faults_and_keeps_no_other_line() -> None:
    ring = [line("x", id="a", needs=["b"]), "{", line("y", id="b", needs=["a"]), line("z", needs=["a"])]
    entries, bad = whole(SHEET, [*ring, line("w", id="w"), line("v", needs=["w"])])
    assert [entry.line for entry in entries] == [5, 6]
    assert [one.line for one in bad] == [1, 2, 3, 4]
    assert "line 1: needs itself in a ring: line 1 → line 3 → line 1" in str(bad[0].error)
    assert "line 2: is not JSON" in str(bad[1].error)
    assert "line 4: needs lines that need one another" in str(bad[3].error)


def test_a_line_that_needs_itself_is_a_ring_of_its_own() -> None:
    entries, bad = whole(
        SHEET, [line("x", id="a", needs=["a"]), *[line(id=f"n{n}", needs=[f"n{n}"]) for n in range(50)]]
    )
    assert entries == []
    assert len({one.line for one in bad}) == len(bad) == 51
    assert "line 1 → line 1" in str(bad[0].error)


def test_what_needs_a_line_that_is_left_out_is_left_out_as_well() -> None:
    entries, _ = whole(SHEET, [line("c", needs=["b"]), line("b", id="b", needs=["a"]), line("a", id="a"), line("d")])
    left_out = {one.line: str(one.error) for one in cut_off(entries, {3})}
    assert sorted(left_out) == [1, 2]
    assert left_out[2] == "line 2: needs line 3, which cannot be handed in"
    assert cut_off(entries, ()) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "line 2: is not JSON"),
        ("[]", "line 2: is no JSON object"),
        ('"x"', "line 2: is no JSON object"),
        ("{}", "line 2: the task has no instructions"),
        (line(tier="slow"), 'line 2: no endpoint serves the tier "slow"'),
        (line(nonsense=1), "line 2: nonsense"),
        (line(priority=1000), "line 2: priority"),
        (line(id="a"), 'line 2: the id "a" is taken by line 1'),
        (line("x" * 300_000), "line 2: is longer than"),
        ('{"instructions": NaN}', "line 2:"),
    ],
)
def test_each_fault_is_told_with_its_line_and_the_other_lines_are_good(text: str, told: str) -> None:
    entries, bad = whole(SHEET, [line("good", id="a"), text])
    assert len(entries) == 1
    assert [one.line for one in bad] == [2]
    assert str(bad[0].error).startswith(told)


def test_what_the_command_line_says_holds_for_every_line() -> None:
    entries, _ = whole(Sheet("n", SETTINGS, {"priority": 90, "tier": "fast"}, {"steps": 5}), [line(), line(priority=1)])
    assert [(one.request.priority, one.request.tier) for one in entries] == [(90, "fast")] * 2
    assert all(one.request.batch == "n" and one.request.budget and one.request.budget.steps == 5 for one in entries)


@settings(max_examples=80)
@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    found = Reader(SHEET).read(1, text)
    assert found is None or isinstance(found, (Bad, tuple))


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        ({}, Code.OK),
        ({TaskState.DELIVERED: 2, TaskState.NO_CHANGE: 1, TaskState.RUNNING: 1}, Code.OK),
        ({TaskState.DELIVERED: 2, TaskState.GAVE_UP: 1}, Code.GAVE_UP),
        ({TaskState.REFUSED: 2, TaskState.GAVE_UP: 1}, Code.FAULT),
    ],
)
def test_the_exit_code_of_a_batch(counts: dict[TaskState, int], code: Code) -> None:
    assert code_of(counts) is code
