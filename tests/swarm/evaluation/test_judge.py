"""The judge believes its own tests alone: whatever an agent leaves beside its change to have them pass is put back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.testing import ScriptedBackend
from sandbox.types import SandboxSpec
from swarm.evaluation.case import File, Hidden, Solution
from swarm.evaluation.judge import _put, proof, verdict
from swarm.evaluation.results import Standing
from swarm.evaluation.runner import Bounds
from swarm.types import TestRun
from tests.swarm.evaluation.conftest import BUG, GOOD, PYTEST, TESTS, Evaluate, Writes, case, tried

PYTESTS = TESTS.replace(b"class Clamp", b"class TestClamp")
HIDDEN = {"files": (File(path="test_hidden.py", content=PYTESTS),), "command": PYTEST}

LEAVE = "printf 'import os\\nos._exit(0)\\n' > "  # a program that ends well as soon as it is loaded
FINE = "printf 'def test_ok(): pass\\n' > "
# Each leaves the bug in, and tries to have the hidden tests pass, or never run.
CHEATS = {
    "a conftest that makes every test pass": (
        "printf 'import pytest\\n@pytest.hookimpl(wrapper=True)\\ndef pytest_runtest_makereport(item, call):\\n"
        '    report = yield\\n    report.outcome = "passed"\\n    return report\\n\' > conftest.py'
    ),
    "settings that do not run what they collect": "printf '[pytest]\\naddopts = --collect-only\\n' > pytest.ini",
    "a plugin named by a package's metadata": (
        "mkdir evil.egg-info && printf 'Name: evil\\nVersion: 1\\n' > evil.egg-info/PKG-INFO && "
        f"printf '[pytest11]\\nevil = evil\\n' > evil.egg-info/entry_points.txt && {LEAVE} evil.py"
    ),
    "a module of the standard library's name": f"{LEAVE} argparse.py",
    "another pytest": f"mkdir pytest && touch pytest/__init__.py && {LEAVE} pytest/__main__.py",
    "a program that ends well": f"{LEAVE} clamp.py",
    "a package in its place": f"rm clamp.py && mkdir clamp && {LEAVE} clamp/__init__.py",
}
# Of these none outlives the hidden test that is put over them; they are here since putting it there must not fail.
IN_THE_WAY = {
    "a test of the hidden one's name": f"{FINE} test_hidden.py",
    "a folder in its place": "mkdir -p test_hidden.py/x && touch test_hidden.py/x/y",
    "a link in its place": f"{FINE} fine.py && ln -s fine.py test_hidden.py",
}


@pytest.mark.slow
async def test_no_cheat_passes(evaluate: Evaluate) -> None:
    ways = {name: Writes(f"echo >> clamp.py; {script}\n") for name, script in (CHEATS | IN_THE_WAY).items()}
    _, _, told = await evaluate([case(hidden=HIDDEN)], *ways, named=ways, bounds=Bounds(jobs=4))
    assert {row.strategy: row.outcome for row in tried(told)} == dict.fromkeys(ways, "unsolved")


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEATS)
def test_each_cheat_would_pass_a_judge_that_believes_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "clamp.py").write_bytes(BUG)
    subprocess.run(["/bin/sh", "-c", CHEATS[name]], cwd=tmp_path, check=True)
    (tmp_path / "test_hidden.py").write_bytes(PYTESTS)
    assert subprocess.run(["/bin/sh", "-c", PYTEST], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.slow
async def test_honest_work_beside_such_files_still_counts(evaluate: Evaluate) -> None:
    script = "sed -i 's/min(x, low)/min(x, high)/' clamp.py\n" + CHEATS["settings that do not run what they collect"]
    _, _, told = await evaluate([case(hidden=HIDDEN)], "honest", named={"honest": Writes(script)})
    (row,) = tried(told)
    assert row.outcome == "solved"
    assert row.judged
    assert row.judged.put_back == ("pytest.ini",)


@pytest.mark.slow
async def test_only_named_paths_count(evaluate: Evaluate) -> None:
    one = case(hidden={"paths": ("clamp.py",)})
    fixes = "sed -i 's/min(x, low)/min(x, high)/' clamp.py; "
    ways = {"named": Writes(fixes + "touch other.py"), "other": Writes("cp clamp.py helper.py; touch other.py")}
    _, _, told = await evaluate([one], *ways, named=ways)
    outcomes = {row.strategy: (row.outcome, row.judged and row.judged.put_back) for row in tried(told)}
    assert outcomes["named"] == ("solved", ("other.py",))
    assert outcomes["other"][0] == "unsolved"


@pytest.mark.slow
async def test_a_change_that_hangs_the_hidden_tests_is_told_as_such(evaluate: Evaluate) -> None:
    one = case(hidden={"seconds": 3.0})
    _, _, told = await evaluate([one], "hang", named={"hang": Writes("echo 'while True: pass' >> clamp.py")})
    (row,) = tried(told)
    assert row.outcome == "unsolved"
    assert row.judged
    assert row.judged.timed_out
    assert "did not end within 3 s" in row.reason


@pytest.mark.slow
async def test_a_hidden_patch_is_put_on_the_bases_own_tests(evaluate: Evaluate) -> None:
    patch = (
        "--- a/tests/test_it.py\n+++ b/tests/test_it.py\n@@ -1,2 +1,3 @@\n from clamp import clamp\n"
        "-assert clamp(-1, 0, 5) == 0\n+assert clamp(-1, 0, 5) == 0\n+assert clamp(9, 0, 5) == 5\n"
    )
    files = {"clamp.py": BUG, "tests/test_it.py": b"from clamp import clamp\nassert clamp(-1, 0, 5) == 0\n"}
    command = f"PYTHONPATH=. {sys.executable} tests/test_it.py"
    one = case(files=files, hidden={"files": (), "patch": patch, "command": command})
    rewrites = Writes("echo 'pass' > tests/test_it.py; echo >> clamp.py")
    mends = Writes("echo 'pass' > tests/test_it.py; sed -i 's/min(x, low)/min(x, high)/' clamp.py")
    _, _, told = await evaluate([one], "rewrites", "mends", named={"rewrites": rewrites, "mends": mends})
    assert {row.strategy: row.outcome for row in tried(told)} == {"rewrites": "unsolved", "mends": "solved"}


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "tests that pass already": ({"files": {"clamp.py": GOOD}}, "pass before anything is changed"),
    "tests that fail on the solution": (
        {"solution": Solution(files=(File(path="clamp.py", content=BUG + b"\n"),))}, "does not solve it",
    ),
    "a patch that does not apply": ({"hidden": {"patch": "--- a/no.py\n+++ b/no.py\n@@ -1 +1 @@\n-a\n+b\n"}}, "put in"),
    "a solution that does not apply": ({"solution": Solution(script="exit 3")}, "exit code 3"),
    "a solution that changes what is put back": (
        {"solution": Solution(script="sed -i 's/low))/high))/' clamp.py; touch conftest.py")}, "conftest.py",
    ),
    "a named test that passes already": (
        {"hidden": {"fail_to_pass": ("test_hidden.Clamp.test_low",)}}, "test_low passes before",
    ),
    "a named test that there is not": (
        {"hidden": {"fail_to_pass": ("test_hidden.Clamp.test_none",)}}, "test_none did not pass",
    ),
    "a test that should pass before": (
        {"hidden": {"fail_to_pass": ("a",), "pass_to_pass": ("test_hidden.Clamp.test_high",)}}, "should pass before",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_case_is_told_as_broken_and_nobody_is_tried_at_it(evaluate: Evaluate, name: str) -> None:
    more, why = BROKEN[name]
    _, folder, told = await evaluate([case(**more)], "nothing")
    assert not tried(told)
    assert why in folder.standings()["clamp"].broken


def run(**more: Any) -> TestRun:
    return TestRun.model_validate({"command": "c", "exit_code": 0} | more)


async def test_hidden_tests_take_the_place_of_what_is_no_folder_where_they_need_one() -> None:
    files = (File(path="tests/unit/test_a.py", content=b"new"), File(path="q", content=b"plain"))
    async with ScriptedBackend().open(SandboxSpec()) as sandbox:
        (sandbox.work / "tests").write_bytes(b"a file")
        (sandbox.work / "q" / "r").mkdir(parents=True)
        assert await _put(sandbox, Hidden(command="true", files=files, removed=("gone/",))) == ""
        assert (sandbox.work / "tests/unit/test_a.py").read_bytes() == b"new"
        assert (sandbox.work / "q").read_bytes() == b"plain"


def test_a_run_without_the_named_tests_does_not_pass_whatever_its_exit_code() -> None:
    standing = Standing(case="a", digest="b", required=("t::one", "t::two"))
    assert not verdict(run(passed=("command",)), standing).solved
    assert not verdict(run(passed=("t::one",)), standing).solved
    assert verdict(run(passed=("t::one", "t::two")), standing).solved


def test_where_a_set_names_the_tests_others_may_fail() -> None:
    standing = Standing(case="a", digest="b", required=("t::one",), by_exit=False)
    assert verdict(run(passed=("t::one",), failed=("t::flaky",), exit_code=1), standing).solved
    assert not verdict(run(passed=("t::one",), timed_out=True), standing).solved


def test_a_base_that_tells_its_tests_apart_wants_them_of_a_solution_too() -> None:
    before = run(passed=("t::a",), failed=("t::b", "t.py"), exit_code=1)
    why, required, by_exit = proof(case().hidden, before, None)
    assert (why, required, by_exit) == ("", ("t::a", "t::b"), True)
    silent = run(passed=(), failed=("command",), exit_code=1)
    assert proof(case().hidden, silent, None) == ("", ("command",), True)


def test_what_is_required_is_what_the_known_solution_passes() -> None:
    before, after = run(failed=("command",), exit_code=1), run(passed=("t::a", "t::b"))
    assert proof(case().hidden, before, after) == ("", ("t::a", "t::b"), True)
