"""Reports into names, names into verdicts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.evidence import (
    WHOLE,
    compare,
    file_of,
    is_test_file,
    place_of,
    read_junit,
    read_unittest,
    restored,
    runs_elsewhere,
    settles,
    suspects,
)
from swarm.types import TestRun

JUNIT = b"""<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.test_a.TestB" name="test_c[1]" file="tests/test_a.py"/>
<testcase classname="tests.test_a" name="test_d" file="tests/test_a.py"><failure message="x">y</failure></testcase>
<testcase classname="tests.test_a" name="test_e" file="tests/test_a.py"><skipped/></testcase>
<testcase classname="tests.test_a" name="test_f" file="tests/test_a.py"><error message="teardown"/></testcase>
<testcase classname="tests.test_a" name="test_f" file="tests/test_a.py"/>
<testcase classname="" name="tests.test_gone"><error message="collection failure"/></testcase>
</testsuite></testsuites>"""


def run(passed=(), failed=(), code=None, **more) -> TestRun:
    code = (1 if failed else 0) if code is None else code
    return TestRun(command="c", exit_code=code, passed=tuple(passed), failed=tuple(failed), **more)


def test_junit_report_is_read() -> None:
    results = read_junit(JUNIT)
    assert results is not None
    assert results.passed == ("tests/test_a.py::TestB::test_c[1]",)
    assert results.failed == ("tests/test_a.py::test_d", "tests/test_a.py::test_f", "tests/test_gone.py")
    assert results.skipped == ("tests/test_a.py::test_e",)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<a>",
        b"not xml",
        b"<testsuites/>",
        b'<!DOCTYPE a [<!ENTITY b "c">]><testsuites><testcase name="x"/></testsuites>',
        b"\xff\xfe",
    ],
)
def test_report_that_is_none_gives_none(data: bytes) -> None:
    assert read_junit(data) is None


def test_unittest_lines_are_read() -> None:
    text = (
        "test_a (test_m.Case.test_a) ... ok\ntest_b (test_m.Case.test_b)\nWith a docstring ... FAIL\n"
        "test_c (test_m.Case) ... ERROR\ntest_d (test_m.Case.test_d) ... skipped 'why'\n"
        "test_e (test_m.Case.test_e) ... expected failure\n"
    )
    results = read_unittest(text)
    assert results is not None
    assert results.passed == ("test_m.Case.test_a", "test_m.Case.test_e")
    assert results.failed == ("test_m.Case.test_b", "test_m.Case.test_c")
    assert results.skipped == ("test_m.Case.test_d",)


def test_text_without_tests_gives_none() -> None:
    assert read_unittest("ok\nall fine\n") is None


DECIDING = """
tests/test_a.py src/tests/data/x.json test_a.py a_test.go conftest.py pkg/conftest.py pytest.ini x.spec.ts tox.ini
pyproject.toml setup.cfg sitecustomize.py pytest.py pytest/__init__.py unittest/case.py package.json Makefile
scripts/check.sh jest.config.js web/vitest.config.ts .rspec phpunit.xml.dist
.npmrc .cargo/config.toml .mvn/maven.config .config/nextest.toml web/.mocharc.json
pytest.cpython-311-x86_64-linux-gnu.so pluggy.pyc coverage.py
"""


@pytest.mark.parametrize("path", DECIDING.split())
def test_what_decides_over_tests_is_put_back(path: str) -> None:
    assert is_test_file(path, "sh ./scripts/check.sh --all")


@pytest.mark.parametrize("path", ["GNUmakefile", "makefile", ".pytest.toml", "sub/makefile"])
def test_what_is_read_before_the_usual_settings_steers_the_tests_too(path: str) -> None:
    assert is_test_file(path, "make test")


def test_program_that_the_command_starts_is_no_test() -> None:
    assert not is_test_file("src/main.py", "python3 src/main.py --selftest")
    assert is_test_file("run-checks.py", "python3 run-checks.py")


@pytest.mark.parametrize(
    "path",
    [
        "src/latest.py",
        "contest.py",
        "protest/a.py",
        "src/testimony.py",
        "docs/pytest.md",
        "coverage.xml",
        "jest.md",
        "src/config.toml",
        "a.npmrc",
        "doctest.h",
    ],
)
def test_what_only_sounds_like_a_test_is_left(path: str) -> None:
    assert not is_test_file(path, "python3 -m pytest -q")


def test_restored_files_are_sorted() -> None:
    assert restored(["tests/b.py", "src/a.py", "tests/a.py"], "x") == ("tests/a.py", "tests/b.py")


def test_fix_is_reported() -> None:
    report = compare(run(["a"], ["b"]), run(["a", "b"]), None)
    assert (report.verdict, report.fixed, report.broken) == ("passed", ("b",), ())


def test_breaking_another_test_fails_even_with_exit_code_zero() -> None:
    report = compare(run(["a"], ["b"]), run(["b"], ["a"], code=0), None)
    assert (report.verdict, report.broken) == ("failed", ("a",))
    assert "a passed before" in report.reason


def test_test_that_vanished_or_is_skipped_counts_as_broken() -> None:
    report = compare(run(["a", "z"], ["b"]), run(["a", "b"]), None)
    assert (report.verdict, report.broken) == ("failed", ("z",))


def test_deleting_the_failing_test_does_not_pass() -> None:
    report = compare(run(["a"], ["b"]), run(["a"]), run(["a"], ["b"]))
    assert report.verdict == "failed"
    assert report.fixed == ()


def test_skipping_the_failing_test_does_not_pass() -> None:
    report = compare(run(["a"], ["b"]), run(["a"]), None)
    assert report.verdict == "failed"
    assert "no longer run" in report.reason


def test_weakened_test_does_not_count_as_fixed() -> None:
    report = compare(run(["a"], ["b"]), run(["a", "b"]), run(["a"], ["b"]))
    assert (report.verdict, report.fixed) == ("failed", ())
    assert "own tests" in report.reason


def test_module_that_could_not_be_collected_is_fixed_by_its_tests() -> None:
    report = compare(run(["t.py::a"], ["m.py"]), run(["t.py::a", "m.py::b"]), None)
    assert (report.verdict, report.fixed) == ("passed", ("m.py",))


def test_module_with_a_test_that_still_fails_is_not_fixed() -> None:
    report = compare(run([], ["m.py"]), run(["m.py::b"], ["m.py::c"]), None)
    assert (report.verdict, report.fixed) == ("failed", ())


def test_run_that_leaves_without_a_report_does_not_pass() -> None:
    report = compare(run(["a"], ["b"]), run([WHOLE]), None)
    assert report.verdict == "failed"


def test_whole_command_is_one_test() -> None:
    report = compare(run([], [WHOLE]), run([WHOLE]), None)
    assert (report.verdict, report.fixed) == ("passed", (WHOLE,))


def test_base_without_a_report_and_a_proposal_with_one_passes_by_exit_code() -> None:
    report = compare(run([], [WHOLE], code=4), run(["a"]), None)
    assert (report.verdict, report.fixed) == ("passed", (WHOLE,))


def test_time_and_memory_are_told_apart() -> None:
    slow = compare(run(["a"]), run([], [WHOLE], code=137, timed_out=True, seconds=30.0), None)
    fat = compare(run(["a"]), run([], [WHOLE], code=137, out_of_memory=True), None)
    assert "within 30 s" in slow.reason
    assert "memory" in fat.reason


def test_test_that_is_only_gone_from_the_proposal_is_told_and_does_not_fail_it() -> None:
    report = compare(run(["t.py::a", "t.py::b"]), run(["t.py::a"], skipped=("t.py::b",)), run(["t.py::a", "t.py::b"]))
    assert (report.verdict, report.broken) == ("passed", ())
    assert [(each.kind, each.path, each.test) for each in report.weakened] == [("skipped", "t.py", "b")]


def test_test_that_is_gone_and_fails_as_the_base_has_it_is_broken() -> None:
    report = compare(run(["t.py::a", "t.py::b"]), run(["t.py::a"]), run(["t.py::a"], ["t.py::b"]))
    assert (report.verdict, report.broken) == ("failed", ("t.py::b",))


def test_run_that_is_not_told_apart_hides_no_test_behind_the_bases_own() -> None:
    report = compare(run(["t.py::a"]), run([WHOLE]), run(["t.py::a"]))
    assert (report.verdict, report.broken) == ("failed", ("t.py::a",))


def test_released_tests_do_not_count_where_they_were_touched_alone() -> None:
    base, new = run(["t.py::a", "u.py::b"]), run(["t.py::a", "u.py::b"])
    touched = frozenset({"t.py"})
    own = compare(base, new, run(["u.py::b"], ["t.py::a"]), touched=touched, released=True)
    assert (own.verdict, own.weakened[0].test) == ("passed", "a")
    other = compare(base, new, run(["t.py::a"], ["u.py::b"]), touched=touched, released=True)
    assert other.verdict == "failed"
    late = compare(base, new, run([], [WHOLE], code=137, timed_out=True), touched=touched, released=True)
    assert late.verdict == "failed"
    bad = compare(base, run(["u.py::b"], ["t.py::a"]), run(["u.py::b"], ["t.py::a"]), touched=touched, released=True)
    assert bad.verdict == "failed", "its own tests have to pass"


@pytest.mark.parametrize(
    ("found", "doubted"),
    [
        (run(["t.py::a"], ["u.py::b"]), ("u.py::b",)),
        (run([], ["t.py::a", "u.py::b"]), ()),
        (run(["t.py::a"], ["u.py::new"]), ()),
        (run(["t.py::a", "u.py::b"]), ()),
        (run([], ["u.py::b"], timed_out=True), ()),
        (run([], ["u.py::b"], out_of_memory=True), ()),
        (run(["t.py::a"], code=3), ()),
    ],
    ids=["untouched", "touched-too", "new", "none", "late", "fat", "crash"],
)
def test_only_failures_that_may_be_chance_are_doubted(found: TestRun, doubted: tuple[str, ...]) -> None:
    base = run(["t.py::a", "u.py::b"])
    assert suspects(base, found, frozenset({"t.py", "src/m.py"})) == doubted


def test_command_as_a_whole_is_doubted_unless_a_test_was_touched() -> None:
    base, found = run([WHOLE]), run([], [WHOLE])
    assert suspects(base, found, frozenset({"src/m.go"})) == (WHOLE,)
    assert suspects(base, found, frozenset({"src/m.go", "src/m_test.go"})) == ()


def test_second_run_settles_it_only_where_all_is_well() -> None:
    assert settles(run(["a", "b"]), ("b",))
    assert not settles(run(["a"]), ("b",))
    assert not settles(run(["b"], ["a"]), ("b",))
    assert not settles(run(["b"], code=1), ("b",))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("tests/test_a.py::B::test_c[x/y]", "tests/test_a.py"),
        ("tests/test_a.py", "tests/test_a.py"),
        ("tests.test_m.Case.test_b", "tests/test_m.py"),
        ("test_m.Case.test_b", "test_m.py"),
        ("command", "command"),
    ],
)
def test_file_of_a_test_is_told_by_its_name(name: str, file: str) -> None:
    assert file_of(name) == file


NAMES = st.sets(st.sampled_from(["a", "b", "c", "d"]))


@given(NAMES, NAMES, NAMES, NAMES)
def test_a_pass_never_hides_a_loss(base_passed, base_failed, passed, failed) -> None:
    base = run(sorted(base_passed - base_failed), sorted(base_failed))
    report = compare(base, run(sorted(passed - failed), sorted(failed)), None)
    if report.verdict == "passed":
        assert set(base.passed) | set(base.failed) <= passed - failed
        assert not failed
    assert not set(report.fixed) & set(report.broken)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("tests/test_a.py::test_b", ("tests/test_a.py", "test_b")),
        ("tests/test_a.py::TestB::test_c[x::y-1]", ("tests/test_a.py", "TestB.test_c")),
        ("tests.test_a.TestB.test_c", ("tests/test_a.py", "TestB.test_c")),
    ],
)
def test_place_of_a_test_is_told_by_its_name(name: str, place: tuple[str, str]) -> None:
    assert place_of(name) == place


def test_test_that_moved_runs_elsewhere_only_where_all_its_cases_pass() -> None:
    moved = {("a_test.py", "test_a"): ("b_test.py", "T.test_b")}
    base = run(["a_test.py::test_a[1]", "a_test.py::test_a[2]"])
    here = frozenset(moved)
    assert runs_elsewhere(base, run(["b_test.py::T::test_b[1]", "b_test.py::T::test_b[3]"]), moved) == here
    assert not runs_elsewhere(base, run(["b_test.py::T::test_b[1]"]), moved)
    assert not runs_elsewhere(base, run(["b_test.py::T::test_b[1]"], ["b_test.py::T::test_b[2]"]), moved)
    assert not runs_elsewhere(run(["c_test.py::test_a"]), run(["b_test.py::T::test_b"]), moved)


def test_unittests_are_told_by_file_and_test() -> None:
    base = run(["test_m.T.test_a", "test_m.T.test_b"])
    report = compare(base, run(["test_m.T.test_b"]), base)
    assert [(each.path, each.test) for each in report.weakened] == [("test_m.py", "T.test_a")]
