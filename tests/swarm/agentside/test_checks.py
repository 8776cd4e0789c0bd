"""Checks over real test runs in throwaway folders: honest proposals, and those that cheat."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from sandbox.testing import ScriptedBackend
from sandbox.types import Command, Limits, Outcome, SandboxSpec, SealedTree
from swarm.checks import Rules, check, run_tests

PYTEST = "/usr/bin/python3 -m pytest -q"
BASE = {
    "m.py": "def double(x):\n    return x + 2\n\n\ndef one():\n    return 1\n",
    "tests/test_m.py": (
        "import m\n\n\ndef test_double():\n    assert m.double(3) == 6\n\n\ndef test_one():\n    assert m.one() == 1\n"
    ),
}
FIXED = {**BASE, "m.py": BASE["m.py"].replace("x + 2", "x * 2")}
NAME = "tests/test_m.py::test_double"


async def judged(base, proposal, command=PYTEST, script=None, **more):
    """The report for two trees given as files by path."""
    trees = {"base": base, "new": proposal}
    backend = ScriptedBackend(script)

    @asynccontextmanager
    async def fresh(tree):
        async with backend.open(SandboxSpec()) as sandbox:
            for path, content in trees[tree].items():
                target = sandbox.work / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(content)
            yield sandbox

    files = tuple(sorted(path for path in base.keys() | proposal.keys() if base.get(path) != proposal.get(path)))
    tree = "new" if files else "base"
    sealed = SealedTree(base="c0", tree=tree, base_tree="base", files=files, pack=b"")
    return await check(fresh, sealed, command, **more)


async def test_repair_passes_and_names_what_it_fixed() -> None:
    report = await judged(BASE, FIXED)
    assert (report.verdict, report.fixed, report.broken) == ("passed", (NAME,), ())
    assert report.base is not None
    assert report.base.failed == (NAME,)
    assert report.base.passed == ("tests/test_m.py::test_one",)


async def test_repair_that_breaks_another_test_fails() -> None:
    report = await judged(BASE, {**FIXED, "m.py": FIXED["m.py"].replace("return 1", "return 2")})
    assert (report.verdict, report.broken) == ("failed", ("tests/test_m.py::test_one",))


@pytest.mark.parametrize(
    "cheat",
    [
        {"tests/test_m.py": "import m\n\n\ndef test_one():\n    assert m.one() == 1\n"},
        {"tests/test_m.py": BASE["tests/test_m.py"].replace("== 6", "== 5")},
        {
            "tests/test_m.py": "import pytest\n"
            + BASE["tests/test_m.py"].replace("def test_d", "@pytest.mark.skip\ndef test_d")
        },
        {"conftest.py": "collect_ignore_glob = ['tests/*']\n", "test_x.py": "def test_x():\n    pass\n"},
        {"tests/conftest.py": "import m\nm.double = lambda x: 6\n"},
        {"pytest.ini": "[pytest]\naddopts = --deselect tests/test_m.py::test_double\n"},
        {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-k one'\n"},
        {"pytest.py": "raise SystemExit(0)\n"},
        {"m.py": BASE["m.py"] + "import os\nos._exit(0)\n"},
        {"m.py": "import pytest\npytest.skip(allow_module_level=True)\n"},
    ],
    ids=[
        "deleted",
        "weakened",
        "skipped",
        "ignored",
        "patched",
        "deselected",
        "narrowed",
        "shadowed",
        "exit",
        "skip-all",
    ],
)
async def test_cheat_does_not_pass(cheat) -> None:
    report = await judged(BASE, {**BASE, **cheat})
    assert report.verdict == "failed", report
    assert report.fixed == ()
    assert report.reason


async def test_deleted_test_file_does_not_pass() -> None:
    report = await judged(BASE, {"m.py": BASE["m.py"]})
    assert report.verdict == "failed"


async def test_repair_with_a_new_test_passes() -> None:
    more = {**FIXED, "tests/test_more.py": "import m\n\n\ndef test_zero():\n    assert m.double(0) == 0\n"}
    report = await judged(BASE, more)
    assert report.verdict == "passed"
    assert report.proposal is not None
    assert "tests/test_more.py::test_zero" in report.proposal.passed


async def test_command_is_the_operators_even_if_the_proposal_rewrites_the_script_it_names() -> None:
    base = {**BASE, "check.sh": f"{PYTEST}\n"}
    report = await judged(base, {**base, "check.sh": "exit 0\n"}, "sh check.sh")
    assert report.verdict == "failed"


async def test_unittest_is_told_apart_by_test() -> None:
    tests = (
        "import unittest\nimport m\n\n\nclass T(unittest.TestCase):\n    def test_double(self):\n"
        "        self.assertEqual(m.double(3), 6)\n\n    def test_one(self):\n        self.assertEqual(m.one(), 1)\n"
    )
    base = {"m.py": BASE["m.py"], "test_m.py": tests}
    report = await judged(base, {**base, "m.py": FIXED["m.py"]}, "/usr/bin/python3 -m unittest -v")
    assert (report.verdict, report.fixed) == ("passed", ("test_m.T.test_double",))


async def test_any_other_command_is_one_test() -> None:
    report = await judged({"a.txt": "1"}, {"a.txt": "2"}, "grep -q 2 a.txt")
    assert (report.verdict, report.fixed) == ("passed", ("command",))


async def test_endless_tests_end_in_time_and_say_so() -> None:
    report = await judged({"a.txt": "1"}, {"a.txt": "2"}, "grep -q 1 a.txt || sleep 60", seconds=1.0)
    assert report.verdict == "failed"
    assert "did not end" in report.reason


async def test_memory_is_told_apart_from_time() -> None:
    def script(command: Command, folder):
        if command.argv[0] == "/bin/sh" and (folder / "a").read_text() == "2":
            return Outcome(exit_code=137, output=b"", seconds=1.0, out_of_memory=True)
        return None

    report = await judged({"a": "1"}, {"a": "2"}, "true", script)
    assert "memory" in report.reason


@pytest.mark.parametrize(("kills", "verdict"), [(1, "passed"), (2, "failed")])
async def test_a_run_that_somebody_killed_is_made_once_more_before_it_counts(kills: int, verdict: str) -> None:
    left = [kills]

    def script(command: Command, folder):
        if command.argv[0] == "/bin/sh" and (folder / "a").read_text() == "2" and left[0] > 0:
            left[0] -= 1
            return Outcome(exit_code=137, output=b"", seconds=1.0)
        return None

    assert (await judged({"a": "1"}, {"a": "2"}, "cat * | grep -q 2", script)).verdict == verdict


async def test_without_a_command_nothing_is_run() -> None:
    for command in (None, "  "):
        report = await judged(BASE, FIXED, command)
        assert report.verdict == "not_run"
        assert "no test command" in report.reason


async def test_unchanged_tree_is_not_run() -> None:
    assert (await judged(BASE, BASE)).verdict == "not_run"


async def test_huge_output_does_not_hide_the_report() -> None:
    noisy = {**FIXED, "tests/test_m.py": BASE["tests/test_m.py"] + "\nprint('x' * 2_000_000)\n"}
    async with ScriptedBackend().open(SandboxSpec(limits=Limits(output=4096))) as sandbox:
        for path, content in noisy.items():
            (sandbox.work / path).parent.mkdir(exist_ok=True)
            (sandbox.work / path).write_text(content)
        run = await run_tests(sandbox, PYTEST + " -s")
    assert run.passed == (NAME, "tests/test_m.py::test_one")
    assert len(run.tail) <= 4096


async def test_report_of_tests_lies_outside_while_they_run() -> None:
    files = {"tests/test_m.py": ("import os\n\n\ndef test_alone():\n    assert sorted(os.listdir('.')) == ['tests']\n")}
    report = await judged(files, {**files, "a": "new"}, PYTEST)
    assert report.base is not None
    assert report.base.failed == ()


@pytest.mark.slow
async def test_test_that_the_change_deletes_is_told_and_fails_where_the_bases_own_fails() -> None:
    gone = BASE["tests/test_m.py"].replace("def test_one", "def not_one")
    honest = await judged(BASE, {**FIXED, "tests/test_m.py": gone})
    assert honest.verdict == "passed", "the base's own test is put back and passes"
    assert [(each.kind, each.test) for each in honest.weakened] == [("deleted", "test_one")]
    cheat = await judged(
        BASE, {**FIXED, "m.py": FIXED["m.py"].replace("return 1", "return 2"), "tests/test_m.py": gone}
    )
    assert (cheat.verdict, cheat.broken) == ("failed", ("tests/test_m.py::test_one",))


@pytest.mark.slow
async def test_test_that_settings_deselect_is_told_by_its_runs() -> None:
    report = await judged(BASE, {**FIXED, "pytest.ini": "[pytest]\naddopts = -k double\n"})
    assert report.verdict == "passed"
    assert {(each.kind, each.path) for each in report.weakened} == {
        ("steered", "pytest.ini"),
        ("deleted", "tests/test_m.py"),
    }


@pytest.mark.slow
async def test_skipped_tests_are_counted_as_such() -> None:
    skips = "import pytest\n" + BASE["tests/test_m.py"].replace("def test_one", "@pytest.mark.xfail\ndef test_one")
    report = await judged(BASE, {**FIXED, "tests/test_m.py": skips.replace("== 1", "== 2")})
    assert report.proposal is not None
    assert report.proposal.skipped == ("tests/test_m.py::test_one",)
    assert [(each.kind, each.test) for each in report.weakened] == [
        ("skipped", "test_one"),
        ("expectation", "test_one"),
    ]


@pytest.mark.slow
async def test_weakened_tests_can_be_refused() -> None:
    weaker = {**FIXED, "tests/test_m.py": BASE["tests/test_m.py"].replace("== 1", "> 0")}
    assert (await judged(BASE, weaker)).verdict == "passed"
    report = await judged(BASE, weaker, rules=Rules(refuse_weakened=True))
    assert report.verdict == "failed"
    assert "tests/test_m.py: test_one" in report.reason
    assert (await judged(BASE, FIXED, rules=Rules(refuse_weakened=True))).verdict == "passed"


@pytest.mark.slow
async def test_task_that_is_to_change_tests_can_pass_and_what_no_longer_holds_is_told() -> None:
    changed = {
        "m.py": FIXED["m.py"].replace("return 1", "return 11"),
        "tests/test_m.py": BASE["tests/test_m.py"].replace("== 1", "== 11"),
    }
    assert (await judged(BASE, changed)).verdict == "failed"
    report = await judged(BASE, changed, rules=Rules(released=True))
    assert (report.verdict, report.broken) == ("passed", ())
    assert ("expectation", "test_one") in {(each.kind, each.test) for each in report.weakened}


@pytest.mark.slow
async def test_task_that_is_to_change_tests_breaks_no_others() -> None:
    base = {**BASE, "tests/test_other.py": "import m\n\n\ndef test_other():\n    assert m.one() == 1\n"}
    changed = {
        **base,
        "m.py": FIXED["m.py"].replace("return 1", "return 11"),
        "tests/test_m.py": BASE["tests/test_m.py"].replace("== 1", "== 11"),
    }
    report = await judged(base, changed, rules=Rules(released=True))
    assert report.verdict == "failed"


def flips(times: list[int]):
    """A test command that fails on the proposal as often as it says; it tells its one test apart as unittest does."""

    def script(command: Command, folder):
        if command.argv[0] != "/bin/sh":
            return None
        bad = (folder / "a").read_text() == "2" and times[0] > 0
        times[0] -= bad
        word = b"FAIL" if bad else b"ok"
        return Outcome(exit_code=int(bad), output=b"test_x (test_m.T.test_x) ... " + word + b"\n", seconds=1.0)

    return script


@pytest.mark.parametrize(("fails", "verdict", "flaky"), [(0, "passed", 0), (1, "passed", 1), (2, "failed", 0)])
async def test_failure_of_an_untouched_test_is_run_once_more(fails: int, verdict: str, flaky: int) -> None:
    report = await judged({"a": "1"}, {"a": "2"}, "run", flips([fails]))
    assert (report.verdict, report.flaky) == (verdict, ("test_m.T.test_x",) * flaky)


async def test_failure_of_a_test_that_the_change_touches_is_no_chance() -> None:
    times = [1]
    report = await judged({"a": "1", "test_m.py": "x"}, {"a": "2", "test_m.py": "y"}, "run", flips(times))
    assert (report.verdict, report.flaky, times) == ("failed", (), [0])


@pytest.mark.slow
async def test_failure_of_the_test_that_was_to_be_mended_is_no_chance() -> None:
    report = await judged(BASE, {**BASE, "m.py": BASE["m.py"] + "# nothing\n"})
    assert (report.verdict, report.flaky) == ("failed", ())


async def test_change_that_puts_a_file_in_the_place_of_the_tests_is_judged_by_them_all_the_same() -> None:
    base = {"m.txt": "1", "tests/check.sh": "grep -q 1 m.txt\n"}
    report = await judged(base, {"m.txt": "2", "tests": "a file"}, "test -d tests || exit 0; sh tests/check.sh")
    assert report.verdict == "failed"
    assert "base's own tests" in report.reason


async def test_script_that_the_bases_own_script_starts_is_put_back_and_told() -> None:
    base = {"m.txt": "1", "run.sh": "sh scripts/inner.sh\n", "scripts/inner.sh": "grep -q 1 m.txt\n"}
    report = await judged(base, {**base, "m.txt": "2", "scripts/inner.sh": "true\n"}, "sh run.sh")
    assert report.verdict == "failed"
    assert [(each.kind, each.path) for each in report.weakened] == [("steered", "scripts/inner.sh")]


@pytest.mark.slow
async def test_plugin_that_the_bases_settings_load_is_put_back_and_told() -> None:
    base = {**BASE, "pytest.ini": "[pytest]\naddopts = -p myplug\npythonpath = .\n", "myplug.py": ""}
    cheat = "def pytest_pyfunc_call(pyfuncitem):\n    return True\n"
    report = await judged(base, {**base, "myplug.py": cheat})
    assert (report.verdict, report.fixed) == ("failed", ())
    assert ("steered", "myplug.py") in [(each.kind, each.path) for each in report.weakened]


@pytest.mark.slow
async def test_renamed_and_moved_tests_are_not_missed_even_where_weakened_ones_are_refused() -> None:
    renamed = BASE["tests/test_m.py"].replace("test_one", "test_first")
    report = await judged(BASE, {**FIXED, "tests/test_m.py": renamed}, rules=Rules(refuse_weakened=True))
    assert (report.verdict, report.weakened) == ("passed", ()), report
    skipped = renamed.replace("import m", "import m, pytest").replace("def test_f", "@pytest.mark.skip\ndef test_f")
    report = await judged(BASE, {**FIXED, "tests/test_m.py": skipped}, rules=Rules(refuse_weakened=True))
    assert report.verdict == "failed"
    assert {each.kind for each in report.weakened} >= {"skipped"}
