"""Mutants are one changed line of Python, and nothing else is touched."""

import ast

import pytest

from swarm.evaluation.sets.mutation import KINDS, mutants

SOURCE = '''import math


def helper(x):
    return x + 1


def f(values, low):
    """Says 1 < 2 and not 3."""
    total = 0
    grüße = "ä" if len(values) >= 3 and low not in values else "b"
    for value in values:
        if value < (low + 1) * 2 or not value:
            continue
        total += min(value, 10)
    found = []
    found.append(f"{total + 1} of {len(values)}")
    return total == low
'''


def made(source=SOURCE, name="f"):
    return mutants(source, name)


def test_every_mutant_differs_from_the_original_in_its_line_alone():
    for mutant in made():
        before, after = SOURCE.split("\n"), mutant.source.split("\n")
        differing = [number for number, (a, b) in enumerate(zip(before, after, strict=True), start=1) if a != b]
        assert differing == [mutant.line]
        assert mutant.before == before[mutant.line - 1].strip()


def test_every_mutant_is_python_and_no_two_are_alike():
    sources = [mutant.source for mutant in made()]
    assert len(set(sources)) == len(sources)
    for source in sources:
        assert ast.dump(ast.parse(source)) != ast.dump(ast.parse(SOURCE))


def test_each_kind_of_operator_finds_its_place():
    assert {mutant.kind for mutant in made()} == set(KINDS)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return total == low", "return total != low"),
        ("if value < (low + 1) * 2 or not value:", "if value < (low - 1) * 2 or not value:"),
        ("if value < (low + 1) * 2 or not value:", "if value < (low + 1) * 2 and not value:"),
        ("if value < (low + 1) * 2 or not value:", "if value < (low + 1) + 2 or not value:"),
        ("continue", "pass"),
        ("total += min(value, 10)", "total += max(value, 10)"),
        ("total += min(value, 10)", "total -= min(value, 10)"),
        ("return total == low", "return not (total == low)"),
        ("return total == low", "return total == values"),
    ],
)
def test_a_change_is_made_where_it_belongs(before, after):
    assert (before, after) in {(mutant.before, mutant.after) for mutant in made()}


def test_letters_of_several_bytes_before_an_operator_do_not_move_it():
    line = 'grüße = "ä" if len(values) >= 3 and low not in values else "b"'
    changed = {mutant.after for mutant in made() if mutant.before == line}
    assert line.replace(">=", ">") in changed
    assert line.replace("not in", "in") in changed


def test_docstring_f_strings_and_other_functions_stay_as_they_are():
    touched = {mutant.before for mutant in made()}
    assert '"""Says 1 < 2 and not 3."""' not in touched
    assert "return x + 1" not in touched
    for mutant in made():
        assert "total - 1" not in mutant.after


def test_a_function_that_is_not_there_is_told():
    with pytest.raises(ValueError, match="no function g"):
        made(name="g")
