"""Assertions become tests of their own; what judges is never among what the agent gets."""

import ast

import pytest

from swarm.evaluation.sets.functions import Function, case_of, module_name, module_of_tests, read_checks

CHECKS = """
METADATA = {"author": "x"}

def check(candidate):
    assert True, "said to be good for debugging"
    assert candidate(1) == 2
    assert abs(candidate(2) - 3) < 1e-6, "message"

check(f)
"""
FUNCTION = Function(name="f", module="f", buggy="def f(x):\n    return x\n", sound="def f(x):\n    return x + 1\n")


def test_each_assertion_is_a_test_and_one_that_is_always_true_is_none():
    checks = read_checks(CHECKS, "f")
    assert checks.plain
    assert checks.tests == ("self.assertEqual(candidate(1), 2)", "self.assertTrue(abs(candidate(2) - 3) < 1e-06)")
    assert checks.setting == ("candidate = f",)


def test_loops_stay_whole():
    checks = read_checks("def check(f):\n    for i in range(3):\n        assert f(i) == i + 1\n", "f")
    assert not checks.plain
    assert len(checks.tests) == 1


@pytest.mark.parametrize("source", ["", "def test(f):\n    assert f\n", "def check(a, b):\n    assert a\n"])
def test_tests_of_another_form_are_refused(source):
    with pytest.raises(ValueError, match="no function check"):
        read_checks(source, "f")


def test_what_judges_never_lies_among_what_the_agent_gets():
    checks = read_checks(CHECKS, "f")
    case = case_of("a/1", FUNCTION, checks.chosen([0]), checks, (0,), {})
    given = b"".join(file.content for file in case.files)
    assert b"candidate(1)" in given
    assert b"candidate(2)" not in given
    assert b"x + 1" not in given
    assert not {file.path for file in case.files} & {file.path for file in case.hidden.files}


def test_only_the_module_counts_so_a_planted_test_runner_does_not():
    checks = read_checks(CHECKS, "f")
    case = case_of("a/1", FUNCTION, None, checks, (0,), {})
    assert case.hidden.paths == ("f.py",)
    assert case.hidden.fail_to_pass == ("test_hidden_f.TestHidden.test_01",)
    assert case.hidden.pass_to_pass == ("test_hidden_f.TestHidden.test_02",)
    assert case.test_command is None


def test_a_module_never_takes_the_name_of_one_of_pythons():
    assert module_name("string") == "string_function"
    assert module_name("truncate_number") == "truncate_number"


def test_the_tests_are_a_module_of_python():
    ast.parse(module_of_tests(read_checks(CHECKS, "f"), "f", "Hidden"))
