"""Exit codes are distinct, explained, and the same in the help, the documentation and the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from swarm.cli.exits import MEANINGS, Code, of_state, short, table
from swarm.types import TaskState

DOCS = Path(__file__).parents[3] / "docs" / "command-line.md"


def test_every_code_has_a_meaning_of_its_own() -> None:
    assert set(MEANINGS) == set(Code)
    assert len(set(MEANINGS.values())) == len(Code)
    assert all(f"{code.value} " in table() and code.name.lower() in short() for code in Code)


def test_every_outcome_has_a_code_of_its_own() -> None:
    codes = [of_state(state) for state in TaskState if state.final]
    assert len(set(codes)) == len(codes)
    assert of_state(TaskState.DELIVERED) == 0


@pytest.mark.parametrize("state", [TaskState.QUEUED, TaskState.RUNNING, TaskState.PAUSED, TaskState.DELIVERING])
def test_a_task_that_goes_on_is_no_failure(state: TaskState) -> None:
    assert of_state(state) == 0


def test_the_documentation_has_the_same_table() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+?) \|$", DOCS.read_text(), re.MULTILINE)
    assert {int(code): words for code, words in rows} == {code.value: words for code, words in MEANINGS.items()}
