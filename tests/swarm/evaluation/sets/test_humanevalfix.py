"""The shipped rows: all there, each with its bug, and the hidden tests tell the bug from the solution."""

import subprocess
import sys
from importlib.resources import files

import pytest

from swarm.evaluation.sets.humanevalfix import HumanEvalFix


def test_all_82_are_there_with_their_licence_beside_them():
    cases = list(HumanEvalFix().cases())
    assert len({case.id for case in cases}) == len(cases) == 82
    assert "MIT License" in files("swarm.evaluation.sets").joinpath("rows", "LICENCE-octopack").read_text()


def test_neither_solution_nor_hidden_tests_are_given_to_the_agent():
    for case in HumanEvalFix().cases():
        given = b"\n".join(file.content for file in case.files)
        (solution,), (hidden,) = case.solution.files, case.hidden.files
        assert solution.content not in given
        assert hidden.content not in given
        assert hidden.path not in {file.path for file in case.files}
        assert hidden.path not in case.statement


def test_the_same_rows_make_the_same_cases_each_time():
    digests = [[case.digest for case in HumanEvalFix().cases()] for _ in range(2)]
    assert digests[0] == digests[1]


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 16, 19, 24, 25, 81])  # with Python/32, /38 and /50, whose tests are loops
def test_the_bug_fails_just_the_tests_it_is_said_to_and_the_solution_none(tmp_path, at):
    case = list(HumanEvalFix().cases())[at]
    names = (*case.hidden.fail_to_pass, *case.hidden.pass_to_pass)
    for file in (*case.files, *case.hidden.files):
        (tmp_path / file.path).write_bytes(file.content)
    assert failing(tmp_path, names) == set(case.hidden.fail_to_pass) != set()
    (solution,) = case.solution.files
    (tmp_path / solution.path).write_bytes(solution.content)
    assert failing(tmp_path, names) == set()


def failing(folder, names):
    """Those of the tests that do not pass, each run by itself."""

    def fails(name):
        command = [sys.executable, "-B", "-m", "unittest", name]
        return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode

    return {name for name in names if fails(name)}
