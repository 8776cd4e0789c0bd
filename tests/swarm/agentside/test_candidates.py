"""Samples into candidates: what is dropped, what is kept, which is smallest."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.strategies.candidates import Candidate, apply, changed, drawn, replacement, smallest
from swarm.strategies.spectrum import suspect

SOURCE = "def f(a, b):\n    if a > b:\n        return b\n    return b\n"
LINE = suspect("m.py", SOURCE, 3, 1.0)


def news(*samples: str) -> list[str]:
    return [candidate.new for candidate in drawn(LINE, SOURCE, samples)]


def test_same_samples_are_one_candidate_and_the_frequent_come_first() -> None:
    found = drawn(LINE, SOURCE, ["return c", " return a", "return a ", "return a"])
    assert [(candidate.new, candidate.promise) for candidate in found] == [("return a", 3.0), ("return c", 1.0)]


@pytest.mark.parametrize(
    "sample",
    ["return b", "  return b ", "", "return (", "return a b", "return a\nimport os", "return a\x00", "return \u202ea",
     "return  b", "return b  # fine", "x" * 401, "elif a:"],
)  # fmt: skip
def test_useless_samples_are_dropped(sample: str) -> None:
    assert news(sample) == []


def test_other_languages_are_not_parsed() -> None:
    line = suspect("m.sh", "echo one\n", 1, 1.0)
    assert [c.new for c in drawn(line, "echo one\n", ["echo two ("])] == ["echo two ("]


def edit(**change: object) -> str:
    return json.dumps({"file": "m.py", "line": 3, "replacement": "return a"} | change)


def test_constrained_edit_is_read() -> None:
    assert replacement(edit(), LINE) == "return a"


@pytest.mark.parametrize(
    "answer", ["", "return a", "[]", edit(file="../other.py"), edit(line=4), edit(replacement=None), edit()[:-1]]
)
def test_edit_of_anything_else_is_refused(answer: str) -> None:
    assert replacement(answer, LINE) == ""


def test_indentation_and_line_end_stay() -> None:
    assert apply("a\r\n\tb\r\nc", 2, " x ") == "a\r\n\tx\r\nc"


@given(st.lists(st.text(alphabet="ab \t\r\x0b\x85", max_size=6), min_size=1, max_size=6), st.data())
def test_all_other_lines_stay(lines: list[str], data) -> None:
    line = data.draw(st.integers(1, len(lines)))
    after = apply("\n".join(lines), line, "new").split("\n")
    assert [row for number, row in enumerate(after, 1) if number != line] == lines[: line - 1] + lines[line:]


def test_smallest_change_wins() -> None:
    def made(new: str, promise: float = 1.0) -> Candidate:
        return Candidate("m.py", 3, "return b", new, changed("return b", new), promise)

    assert smallest([made("return max(a, b)", 9), made("return a"), made("return c", 2)]).new == "return c"
