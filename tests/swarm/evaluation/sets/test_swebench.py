"""Rows as SWE-bench has them, and rows that are not."""

import json
import subprocess

import pytest

from swarm.errors import EvaluationError
from swarm.evaluation.sets.given import Given
from swarm.evaluation.sets.swebench import SweRows

PATCH = "--- a/tests/test_f.py\n+++ b/tests/test_f.py\n@@ -1 +1 @@\n-a\n+b\n"
ROW = {
    "instance_id": "o__r-1",
    "repo": "o/r",
    "base_commit": "a" * 40,
    "problem_statement": "Mend it.",
    "patch": "diff",
    "test_patch": PATCH,
    "FAIL_TO_PASS": '["tests/test_f.py::test_new"]',
    "PASS_TO_PASS": ["tests/test_f.py::test_old"],
    "version": "1.0",
    "environment_setup_commit": "b" * 40,
    "hints_text": "",
}


def rows(tmp_path, *changes, **given):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({k: v for k, v in (ROW | c).items() if v is not None}) + "\n" for c in changes))
    return SweRows(path, Given(repositories=tmp_path, **given))


def test_a_row_becomes_a_case_whose_tests_come_when_it_is_judged(tmp_path):
    (case,) = rows(tmp_path, {}, image="eval.{docker_id}").cases()
    assert (case.id, case.image) == ("o__r-1", "eval.o_1776_r-1")
    assert case.hidden.patch == PATCH
    assert case.hidden.command == "python3 -m pytest -rA tests/test_f.py"
    assert case.hidden.fail_to_pass == ("tests/test_f.py::test_new",)
    assert case.solution.patch == "diff"
    assert "test_new" not in case.statement


def test_a_repository_that_is_not_there_is_told_with_the_clone_to_make(tmp_path):
    (case,) = rows(tmp_path, {}).cases()
    assert "clone it as o__r.git" in case.blocked


def test_a_repository_without_the_commit_is_told(tmp_path):
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "o__r.git")], check=True)
    (case,) = rows(tmp_path, {}).cases()
    assert "has no commit aaaaaaaaaaaa" in case.blocked


def test_tests_that_pytest_does_not_know_need_a_command(tmp_path):
    odd = {"FAIL_TO_PASS": ["test_x (a.tests.B)"]}
    case, own = rows(tmp_path, odd, odd | {"test_cmd": "./tests/runtests.py"}).cases()
    assert "test_cmd" in case.blocked
    assert own.hidden.command == "./tests/runtests.py"
    assert "test_cmd" not in own.blocked


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"instance_id": None}, "has no instance_id"),
        ({"problem_statement": " "}, "has no problem_statement"),
        ({"base_commit": "HEAD"}, "no whole commit"),
        ({"base_commit": "--upload-pack=x".ljust(40, "0")}, "no whole commit"),
        ({"repo": "../../etc/x"}, "is no owner/name"),
        ({"repo": "o/.."}, "is no owner/name"),
        ({"FAIL_TO_PASS": "test_new"}, "FAIL_TO_PASS is no list"),
        ({"PASS_TO_PASS": [1]}, "PASS_TO_PASS is no list"),
        ({"test_patch": PATCH.replace("b/tests/test_f.py", "b/../../x.py")}, "leads out"),
        ({"test_patch": None}, "has no test_patch"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path, change, word):
    with pytest.raises(EvaluationError, match=rf"line 2.*{word}"):
        list(rows(tmp_path, {}, change).cases())


def test_without_repositories_the_option_is_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text("")
    with pytest.raises(EvaluationError) as caught:
        SweRows(tmp_path / "rows.jsonl", Given())
    assert "--repositories" in caught.value.mend
