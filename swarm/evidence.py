"""What runs of a test command prove: reports read into names, runs compared. Pure; the text comes from code we do not
trust, so nothing here believes more than the operator's own command and its exit code allow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from swarm.types import CheckReport, TestRun

WHOLE = "command"
_UNITTEST = re.compile(
    r"^(?P<method>\w+) \((?P<where>[\w.]+)\)(?P<doc>\n[^\n]*)? \.\.\. "
    r"(?P<word>ok|FAIL|ERROR|expected failure|unexpected success)$",
    re.MULTILINE,
)
_TEST_FOLDERS = frozenset({"test", "tests", "testing", "__tests__", "spec", "specs"})
_TEST_FILE = re.compile(r"(^test_.+|.+_test|^conftest|.+[._-](test|spec))\.\w+$|^tests?\.\w+$")
# A script or settings file, as against a program of the project's own that the command happens to start.
_SCRIPT = re.compile(r"^[^.]+$|\.(sh|bash|zsh|mk|ini|toml|cfg|ya?ml|json)$|test|check")
_TEST_SETTINGS = frozenset(
    {
        ".coveragerc", ".pytest.ini", ".pytest.toml", "GNUmakefile", "Makefile", "conftest.py", "makefile",
        "noxfile.py", "package.json", "pyproject.toml", "pytest.ini", "pytest.toml", "setup.cfg", "sitecustomize.py",
        "tox.ini", "usercustomize.py",
    }
)  # fmt: skip
_RUNNERS = frozenset({"pytest", "_pytest", "pluggy", "unittest", "coverage", "nose2", "doctest"})


@dataclass(frozen=True)
class Results:
    """Names of tests by outcome; a test that was skipped is in neither."""

    passed: tuple[str, ...]
    failed: tuple[str, ...]


def read_junit(data: bytes) -> Results | None:
    """A JUnit report as pytest writes it (xunit1: with ``file``). None where it is no such report."""
    try:
        root = fromstring(data, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError):
        return None
    passed: set[str] = set()
    failed: set[str] = set()
    for case in root.iter("testcase"):
        tags = {child.tag for child in case}
        if tags & {"failure", "error"}:
            failed.add(_case_name(case))
        elif "skipped" not in tags:
            passed.add(_case_name(case))
    if not passed and not failed:
        return None
    return Results(tuple(sorted(passed - failed)), tuple(sorted(failed)))


def _case_name(case: Element) -> str:
    """``tests/test_a.py::TestB::test_c``, or the dotted module as a path when collecting it failed."""
    file, classname, name = case.get("file", ""), case.get("classname", ""), case.get("name", "")
    if not file:
        return f"{classname}::{name}" if classname else name.replace(".", "/") + ".py"
    module = file.removesuffix(".py").replace("/", ".").replace("\\", ".")
    inner = classname.removeprefix(module).strip(".")
    return "::".join([file, *(inner.split(".") if inner else []), name])


def read_unittest(text: str) -> Results | None:
    """The lines that ``python -m unittest -v`` prints. None where there are none."""
    passed: set[str] = set()
    failed: set[str] = set()
    for match in _UNITTEST.finditer(text.replace("\r\n", "\n")):
        where, method = match["where"], match["method"]
        name = where if where.endswith(f".{method}") else f"{where}.{method}"
        (passed if match["word"] in ("ok", "expected failure") else failed).add(name)
    if not passed and not failed:
        return None
    return Results(tuple(sorted(passed - failed)), tuple(sorted(failed)))


def whole(*, succeeded: bool) -> Results:
    """The result of a command that does not tell its tests apart: one test, the command itself."""
    return Results((WHOLE,), ()) if succeeded else Results((), (WHOLE,))


def is_test_file(path: str, command: str) -> bool:
    """Whether a path decides how the tests come out: a test, its settings, its runner, a script the command names."""
    parts = path.split("/")
    name = parts[-1]
    if any(part in _TEST_FOLDERS for part in parts[:-1]) or _TEST_FILE.match(name) or name in _TEST_SETTINGS:
        return True
    if parts[0].removesuffix(".py") in _RUNNERS:
        return True
    named = {word.removeprefix("./") for word in re.split(r"[\s;&|<>()'\"=]+", command)}
    return path in named and bool(_SCRIPT.search(name))


def restored(files: Iterable[str], command: str) -> tuple[str, ...]:
    """Of the files that a proposal changed, added or deleted, those to put back for the base's own tests."""
    return tuple(sorted(path for path in files if is_test_file(path, command)))


def compare(base: TestRun, proposal: TestRun, own: TestRun | None) -> CheckReport:
    """The verdict: passed where the proposal exits with 0, nothing broke, and the base's own tests agree.

    ``own`` is the run with the base's own tests put back, given where the proposal touched any of them. A test counts
    as fixed only where it passes in every run of the proposal; one that is no longer run, skipped included, is broken
    if it passed before and never fixed.
    """
    runs = [run for run in (proposal, own) if run is not None]
    broken = sorted({name for run in runs for name in _missing(base.passed, run)})
    fixed = [name for name in base.failed if not any(_missing([name], run) for run in runs)]
    reason = _objection(base, proposal, own, broken)
    return CheckReport(
        base=base,
        proposal=proposal,
        fixed=tuple(fixed),
        broken=tuple(broken),
        verdict="failed" if reason else "passed",
        reason=reason,
    )


def _missing(names: Iterable[str], run: TestRun) -> list[str]:
    """Those of ``names`` that do not pass in ``run``. A module that could not be collected passes by its tests.

    The whole command passes by its exit code; a run told apart only as a whole proves no single test.
    """
    passed, failed = set(run.passed), set(run.failed)
    modules = {name.partition("::")[0] for name in passed} - {name.partition("::")[0] for name in failed}
    return [
        name
        for name in names
        if not (name in passed or name in modules or (name == WHOLE and run.exit_code == 0 and not run.timed_out))
    ]


def _objection(base: TestRun, proposal: TestRun, own: TestRun | None, broken: Sequence[str]) -> str:
    """Why the proposal does not pass; empty when it does."""
    ended = _bad_end(proposal, "the tests")
    if ended:
        return ended
    if own is not None:
        ended = _bad_end(own, "the base's own tests, put back in place of those that the proposal changed,")
        if ended:
            return ended
    if broken:
        return f"{some(broken)} passed before and {'does' if len(broken) == 1 else 'do'} not pass now"
    dropped = _missing(base.failed, own or proposal)
    if dropped:
        return f"{some(dropped)} failed before and {'is' if len(dropped) == 1 else 'are'} no longer run"
    return ""


def _bad_end(run: TestRun, what: str) -> str:
    """How a run ended badly, time and memory told apart; empty when it exited with 0."""
    if run.timed_out:
        return f"{what} did not end within {run.seconds:.0f} s"
    if run.out_of_memory:
        return f"{what} ran out of the sandbox's memory"
    if run.exit_code:
        failing = f": {some(run.failed)} failed" if run.failed and WHOLE not in run.failed else ""
        return f"{what} ended with exit code {run.exit_code}{failing}"
    return ""


def some(names: Sequence[str], most: int = 3) -> str:
    """A few names in a sentence, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
