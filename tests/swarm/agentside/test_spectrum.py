"""From traces to suspects, and the probe that makes the traces."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.testing import ScriptedBackend
from sandbox.types import SandboxSpec
from swarm.strategies.localise import by_coverage, everywhere
from swarm.strategies.spectrum import Trace, ochiai, read_traces, statements, suspects

SOURCE = '''"""Module."""

import os

LIMIT = 3


def pick(a, b):
    """The larger."""
    # a comment
    if a > b:
        return b
    elif a == b:
        pass
    result = max(
        a,
        b,
    )
    return result
'''


def trace(name, failed, **lines):
    return Trace(name, failed, {f"{file}.py": frozenset(numbers) for file, numbers in lines.items()})


def test_line_of_failing_tests_alone_is_the_most_suspicious() -> None:
    scores = ochiai([trace("t1", True, m={1, 2}), trace("t2", False, m={1, 3}), trace("t3", False, m={1})])
    assert scores == {("m.py", 1): pytest.approx(1 / math.sqrt(3)), ("m.py", 2): 1.0}


def test_no_failing_test_no_suspicion() -> None:
    assert ochiai([trace("t", False, m={1})]) == {}


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(1, 6))), max_size=8))
def test_suspicion_lies_between_zero_and_one(runs) -> None:
    scores = ochiai([trace(str(n), failed, m=lines) for n, (failed, lines) in enumerate(runs)])
    assert all(0 < score <= 1 for score in scores.values())


def test_statements_leave_out_what_is_not_worth_changing() -> None:
    found = statements(SOURCE)
    rows = SOURCE.split("\n")
    assert [rows[line - 1].strip() for line in found] == [
        "LIMIT = 3", "if a > b:", "return b", "elif a == b:", "result = max(", "a,", "b,", ")", "return result",
    ]  # fmt: skip


def test_lines_of_one_statement_share_its_suspicion() -> None:
    found = suspects({("m.py", 15): 0.5}, {"m.py": SOURCE}, 10)
    assert [(item.line, item.score) for item in found] == [(15, 0.5), (16, 0.5), (17, 0.5), (18, 0.5)]


def test_suspect_carries_its_function() -> None:
    (found,) = suspects({("m.py", 12): 1.0}, {"m.py": SOURCE}, 10)
    assert (found.text, found.function) == ("return b", "pick")
    assert found.around.startswith("def pick(a, b):")


def test_source_in_another_language_gives_its_lines() -> None:
    assert statements("// c\nint x = 1;\n\nreturn x;") == {2: 2, 4: 4}


def test_traces_of_any_other_form_are_passed_over() -> None:
    good = {"test": "a", "failed": True, "lines": {"m.py": [1]}}
    data = "\n".join(
        ["", "x", "[]", '{"test": 1}', '{"test": "a", "failed": 1, "lines": {"m": ["x"]}}', json.dumps(good)]
    )
    assert [item.test for item in read_traces(data.encode() + b"\xff")] == []
    assert [item.test for item in read_traces(data.encode())] == ["a"]


FILES = {
    "lib/__init__.py": "",
    "lib/m.py": "def sign(x):\n    if x < 0:\n        return 1\n    return 1\n",
    "tests/test_m.py": (
        "import unittest\nfrom lib.m import sign\n\n\nclass T(unittest.TestCase):\n    def test_plus(self):\n"
        "        self.assertEqual(sign(3), 1)\n\n    def test_minus(self):\n        self.assertEqual(sign(-3), -1)\n"
    ),
    "tests/__init__.py": "",
}


@pytest.mark.parametrize(
    "command",
    [
        "/usr/bin/python3 -m pytest -q",
        "/usr/bin/python3 -m unittest -v",
        "/usr/bin/python3 -m unittest discover",
        "cd tests && cd .. && sh -c '/usr/bin/python3 -m pytest'",
    ],
)
@pytest.mark.parametrize("coverage", [True, False])
async def test_probe_finds_the_faulty_line(command: str, coverage: bool) -> None:
    files = FILES if coverage else {**FILES, "coverage.py": "raise ImportError('not here')\n"}
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        for path, content in files.items():
            (sandbox.work / path).parent.mkdir(exist_ok=True)
            (sandbox.work / path).write_text(content)
        before = sorted(str(path) for path in sandbox.work.rglob("*"))
        found = await by_coverage(sandbox, command, limit=10, seconds=60)
        assert sorted(str(path) for path in sandbox.work.rglob("*")) == before
    assert found.traced
    assert (found.suspects[0].file, found.suspects[0].line, found.suspects[0].score) == ("lib/m.py", 3, 1.0)
    assert {item.file for item in found.suspects} == {"lib/m.py"}
    assert found.base.exit_code == 1


async def test_tests_that_cannot_be_traced_fall_back_to_what_their_output_names() -> None:
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        (sandbox.work / "a.sh").write_text("echo 1\n")
        (sandbox.work / "b.sh").write_text("echo 2\n")
        found = await by_coverage(sandbox, "echo 'b.sh: line 1: wrong'; exit 1", limit=10, seconds=60)
    assert not found.traced
    assert [(item.file, item.text) for item in found.suspects] == [("b.sh", "echo 2")]


async def test_without_localisation_every_statement_is_suspected_alike() -> None:
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        (sandbox.work / "m.py").write_text("A = 1\nB = 2\n")
        (sandbox.work / "test_m.py").write_text("def test():\n    assert 0\n")
        found = await everywhere(sandbox, "false", limit=10, seconds=60)
    assert [(item.text, item.score) for item in found.suspects] == [("A = 1", 1.0), ("B = 2", 1.0)]
