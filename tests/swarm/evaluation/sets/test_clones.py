"""QuixBugs and Exercism as people clone them, and clones that are broken or hostile."""

import json

import pytest

from swarm.errors import EvaluationError
from swarm.evaluation.sets.exercism import Exercism
from swarm.evaluation.sets.quixbugs import QuixBugs


def put(top, files):
    for path, content in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(content)


@pytest.fixture
def quixbugs(tmp_path):
    put(
        tmp_path,
        {
            "python_programs/gcd.py": "buggy",
            "python_programs/node.py": "class Node: pass",
            "python_programs/untested.py": "x",
            "correct_python_programs/gcd.py": "sound",
            "correct_python_programs/untested.py": "x",
            "python_testcases/test_gcd.py": "the tests",
            "python_testcases/load_testdata.py": "the loader",
            "json_testcases/gcd.json": "[[1], 1]\n[[2], 2]\n[[3], 3]\n",
            "conftest.py": "import os; os.system('x')",
        },
    )
    return tmp_path


def test_half_of_the_json_cases_is_seen_and_all_judge(quixbugs):
    (case,) = QuixBugs(quixbugs).cases()
    seen = {file.path: file.content for file in case.files}
    judging = {file.path: file.content for file in case.hidden.files}
    assert seen["json_testcases/gcd.json"] == b"[[1], 1]\n"
    assert judging["json_testcases/gcd.json"].count(b"\n") == 3
    assert seen["python_programs/gcd.py"] == b"buggy"
    assert "python_programs/node.py" in seen
    assert b"sound" not in b"".join(seen.values())
    assert case.hidden.paths == ("python_programs/gcd.py",)
    assert b"use_correct = False" in judging["conftest.py"]  # ours, so that the sound version never answers


def test_a_program_whose_tests_are_code_is_given_without_tests(quixbugs):
    (quixbugs / "json_testcases/gcd.json").unlink()
    (case,) = QuixBugs(quixbugs).cases()
    assert case.test_command is None
    assert not [file for file in case.files if "test" in file.path]


def exercise(top, **files):
    named = {"solution": ["leap.py"], "test": ["leap_test.py"], "example": [".meta/example.py"]} | files
    put(
        top / "exercises/practice/leap",
        {
            ".docs/instructions.md": "# Instructions\n\nSay it.",
            ".docs/introduction.md": "# Introduction\n\nYears.",
            ".meta/config.json": json.dumps({"files": named}),
            ".meta/example.py": "solved",
            "leap.py": "stub",
            "leap_test.py": "the tests",
        },
    )
    return Exercism(top)


def test_an_exercise_is_its_stub_and_its_words_and_the_tests_are_hidden(tmp_path):
    (case,) = exercise(tmp_path).cases()
    assert [(file.path, file.content) for file in case.files] == [("leap.py", b"stub")]
    assert case.statement.index("Years.") < case.statement.index("Say it.")
    assert case.hidden.command == "python3 -m pytest -q leap_test.py"
    assert [(file.path, file.content) for file in case.solution.files] == [("leap.py", b"solved")]


@pytest.mark.parametrize("kind", ["solution", "test", "example", "editor"])
@pytest.mark.parametrize("name", ["../../../../etc/passwd", "/etc/passwd", ".git/config"])
def test_an_exercise_that_names_a_path_outside_is_refused_with_its_file(tmp_path, kind, name):
    with pytest.raises(EvaluationError, match=r"config\.json: names the path"):
        list(exercise(tmp_path, **{kind: [name]}).cases())


@pytest.mark.parametrize("named", [{"solution": []}, {"test": "leap_test.py"}, {"solution": [1]}])
def test_an_exercise_with_odd_lists_is_refused(tmp_path, named):
    with pytest.raises(EvaluationError, match=r"config\.json"):
        list(exercise(tmp_path, **named).cases())


def test_a_language_whose_tests_cannot_be_run_is_told_and_not_failed(tmp_path):
    set_ = exercise(tmp_path, test=["leap.spec.js"])
    put(tmp_path / "exercises/practice/leap", {"leap.spec.js": "tests"})
    (case,) = set_.cases()
    assert "'.js'" in case.blocked


def test_names_of_tests_reach_the_shell_as_one_word(tmp_path):
    set_ = exercise(tmp_path, test=["a;reboot_test.py"])
    put(tmp_path / "exercises/practice/leap", {"a;reboot_test.py": "tests"})
    (case,) = set_.cases()
    assert case.hidden.command == "python3 -m pytest -q 'a;reboot_test.py'"


def test_one_test_of_ruby_is_named_whole(tmp_path):
    set_ = exercise(tmp_path, test=["leap test.rb", "more.rb"])
    put(tmp_path / "exercises/practice/leap", {"leap test.rb": "tests", "more.rb": ""})
    (case,) = set_.cases()
    assert case.hidden.command == "ruby 'leap test.rb'"


def test_a_program_of_quixbugs_with_a_blank_reaches_the_shell_as_one_word(quixbugs):
    names = ("python_programs/{}.py", "correct_python_programs/{}.py", "python_testcases/test_{}.py")
    put(quixbugs, {name.format("a b"): "x" for name in names})
    case = next(iter(QuixBugs(quixbugs).cases()))
    assert case.hidden.command == "python3 -m pytest -q 'python_testcases/test_a b.py'"


@pytest.mark.parametrize("part", [".docs", ".meta"])
def test_a_folder_of_an_exercise_that_is_a_link_is_refused(tmp_path, part):
    set_ = exercise(tmp_path)
    place = tmp_path / "exercises/practice/leap"
    (place / part).rename(tmp_path / "elsewhere")
    (place / part).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EvaluationError, match="link"):
        list(set_.cases())


def test_a_folder_of_quixbugs_that_is_a_link_is_refused(quixbugs):
    (quixbugs / "json_testcases").rename(quixbugs / "other")
    (quixbugs / "json_testcases").symlink_to("other")
    with pytest.raises(EvaluationError, match="link"):
        list(QuixBugs(quixbugs).cases())
