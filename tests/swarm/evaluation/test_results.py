"""Results outlive whatever cuts their writer off, and are one process's alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import EvaluationError
from swarm.evaluation.keeping import JOURNAL, wasted
from swarm.evaluation.results import RESULTS, RUN, Folder, Standing, Try
from tests.swarm.evaluation.conftest import case, plan_of


def row(key: str, outcome: str = "solved") -> Try:
    return Try.model_validate(
        {"case": "a", "strategy": "agent", "tier": "small", "number": 1, "key": key, "outcome": outcome, "ending": "x"}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_line_that_was_cut_off_anywhere_costs_itself_alone(folder: Folder) -> None:
    folder.add(row("one"))
    folder.add(row("two"))
    path = folder.path / RESULTS
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole), 41):
        path.write_bytes(whole[:end])
        folder.add(row("three"))
        assert [each.key for each in folder.tries()] in (["one", "three"], ["one", "two", "three"])
    path.write_bytes(whole[: first + 5])
    folder.add(row("three"))
    assert [each.key for each in folder.tries()] == ["one", "three"]


def test_the_last_word_on_a_try_counts(folder: Folder) -> None:
    folder.add(row("one", "broken"))
    folder.add(row("two"))
    folder.add(row("one", "unsolved"))
    assert [(each.key, each.outcome) for each in folder.tries()] == [("one", "unsolved"), ("two", "solved")]


def test_how_cases_stand_is_kept_beside(folder: Folder) -> None:
    folder.add(Standing(case="a", digest="d", required=("t::x",), proved=True))
    assert folder.standings()["a"].required == ("t::x",)
    assert folder.tries() == ()


def test_a_line_of_another_version_is_refused_with_its_place(folder: Folder) -> None:
    folder.add(row("one"))
    with (folder.path / RESULTS).open("a") as file:
        file.write('{"case": "a", "new": 1}\n')
    with pytest.raises(EvaluationError, match=r"results\.jsonl, line 2"):
        folder.tries()


def test_a_folder_belongs_to_one_process(folder: Folder) -> None:
    other, refused = Folder(folder.path), pytest.raises(EvaluationError, match="another process works on the run")
    with folder.held(), refused, other.held():
        pass
    with other.held():
        pass


def test_a_damaged_plan_is_told(folder: Folder) -> None:
    assert folder.plan() is None
    folder.begin(plan_of([case()], "agent"))
    assert folder.plan() == plan_of([case()], "agent")
    (folder.path / RUN).write_text("{")
    with pytest.raises(EvaluationError, match=r"run\.json cannot be read: it is damaged"):
        folder.plan()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EvaluationError, match="cannot be written"), Folder(tmp_path / "file" / "run").held():
        pass


def test_half_of_a_character_in_what_a_model_said_costs_no_result(folder: Folder) -> None:
    with folder.held():
        folder.add(row("a").model_copy(update={"said": "done \ud83d", "reason": "\udc00"}))
        folder.add(row("b"))
    assert [(one.key, one.said, one.reason) for one in folder.tries()] == [("a", "done ?", "?"), ("b", "", "")]


def test_a_line_nested_without_end_costs_itself_alone_and_a_folder_out_of_the_run_is_refused(folder: Folder) -> None:
    with folder.held():
        (folder.path / RESULTS).write_bytes(b"[" * 100_000 + b"\n")
        folder.add(row("a"))
        assert [one.key for one in folder.tries()] == ["a"]
        with (folder.path / RESULTS).open("a") as file:
            file.write(json.dumps(row("b").model_dump(mode="json") | {"folder": "../../etc"}) + "\n")
    with pytest.raises(EvaluationError, match="line 3"):
        folder.tries()


def test_what_a_journal_says_of_tokens_counts_where_it_is_a_number(tmp_path: Path) -> None:
    step = {"task": "t", "attempt": "t.1", "at": 0.0, "kind": "model_call"}
    told: list[dict[str, Any]] = [{"prompt_tokens": 5, "completion_tokens": None}, {"prompt_tokens": "x\ud83d"}]
    lines = [json.dumps(step | {"seq": number, "data": data}) for number, data in enumerate([*told, told[0]], 1)]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / JOURNAL).write_text("\n".join([*lines, "[" * 100_000]))
    assert wasted(tmp_path, ()) == 10
    (tmp_path / "b" / JOURNAL).mkdir(parents=True)
    with pytest.raises(EvaluationError, match="cannot be read"):
        wasted(tmp_path, ())
