"""What runs of a test command prove: reports read into names, runs compared. Pure; the text comes from code we do not
trust, so nothing here believes more than the operator's own command and its exit code allow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from swarm.types import CheckReport, TestRun, Weakened, WeakenedKind

WHOLE = "command"
Place = tuple[str, str]
_UNITTEST = re.compile(
    r"^(?P<method>\w+) \((?P<where>[\w.]+)\)(?P<doc>\n[^\n]*)? \.\.\. "
    r"(?P<word>ok|FAIL|ERROR|expected failure|unexpected success|skipped\b[^\n]*)$",
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
RUNNER_FILE = re.compile(
    r"(^|/)((jest|vitest|karma|playwright|cypress|mocha|ava|wdio)\.config\.\w+|\.mocharc[^/]*|phpunit\.xml[^/]*|\.rspec"
    r"|\.nycrc[^/]*|karma\.conf\.\w+|\.npmrc|\.yarnrc(\.yml)?|\.bazelrc|\.cargo/config(\.toml)?|\.config/nextest\.toml"
    r"|\.mvn/[^/]+)$"
)
"""Settings of runners, or of what starts them: each can have tests skipped, or another program run in their place."""
_RUNNER = re.compile(r"(_?pytest|pluggy|unittest|coverage|nose2|doctest)(/|\.pyc?$|\.pyd$|(\.[\w-]+)?\.so$)")


@dataclass(frozen=True)
class Results:
    """Names of tests by outcome; one that was skipped, or that may fail, is in neither of the first two."""

    passed: tuple[str, ...]
    failed: tuple[str, ...]
    skipped: tuple[str, ...] = ()


def read_junit(data: bytes) -> Results | None:
    """A JUnit report as pytest writes it (xunit1: with ``file``). None where it is no such report."""
    try:
        root = fromstring(data, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError):
        return None
    passed: set[str] = set()
    failed: set[str] = set()
    skipped: set[str] = set()
    for case in root.iter("testcase"):
        tags = {child.tag for child in case}
        kind = failed if tags & {"failure", "error"} else skipped if "skipped" in tags else passed
        kind.add(case_name(case))
    return _results(passed, failed, skipped)


def _results(passed: set[str], failed: set[str], skipped: set[str]) -> Results | None:
    """None where no test was run at all: a run of skipped tests alone vouches for nothing."""
    if not passed and not failed:
        return None
    return Results(tuple(sorted(passed - failed)), tuple(sorted(failed)), tuple(sorted(skipped - passed - failed)))


def case_name(case: Element) -> str:
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
    skipped: set[str] = set()
    for match in _UNITTEST.finditer(text.replace("\r\n", "\n")):
        where, method = match["where"], match["method"]
        name = where if where.endswith(f".{method}") else f"{where}.{method}"
        word = match["word"]
        kind = skipped if word.startswith("skipped") else passed if word in ("ok", "expected failure") else failed
        kind.add(name)
    return _results(passed, failed, skipped)


def whole(*, succeeded: bool) -> Results:
    """The result of a command that does not tell its tests apart: one test, the command itself."""
    return Results((WHOLE,), ()) if succeeded else Results((), (WHOLE,))


def is_test_file(path: str, command: str) -> bool:
    """Whether a path decides how the tests come out: a test, its settings, its runner, a script the command names."""
    parts = path.split("/")
    name = parts[-1]
    if any(part in _TEST_FOLDERS for part in parts[:-1]) or _TEST_FILE.match(name) or name in _TEST_SETTINGS:
        return True
    if _RUNNER.match(path) or RUNNER_FILE.search(path):
        return True
    return path in named_in(command) and bool(_SCRIPT.search(name))


def named_in(command: str) -> frozenset[str]:
    """Words of a command that may be paths in the repository."""
    return frozenset(word.removeprefix("./") for word in re.split(r"[\s;&|<>()'\"=]+", command))


@dataclass(frozen=True)
class Tested:
    """A test command, and files that the base's own files have it run or load besides what it names itself."""

    __test__ = False

    command: str
    reached: frozenset[str] = frozenset()

    def holds(self, path: str) -> bool:
        """Whether a path decides how the tests come out."""
        return path in self.reached or is_test_file(path, self.command)

    def restored(self, files: Iterable[str]) -> tuple[str, ...]:
        """Of the files that a proposal changed, added or deleted, those to put back for the base's own tests."""
        return tuple(sorted(path for path in files if self.holds(path)))


def restored(files: Iterable[str], command: str) -> tuple[str, ...]:
    """`Tested.restored` by the command's words alone."""
    return Tested(command).restored(files)


def compare(
    base: TestRun,
    proposal: TestRun,
    own: TestRun | None,
    *,
    touched: frozenset[str] = frozenset(),
    released: bool = False,
) -> CheckReport:
    """The verdict: passed where the proposal exits with 0, nothing broke, and the base's own tests agree.

    ``own`` is the run with the base's own tests put back, given where the proposal touched any of them. A test counts
    as fixed only where it passes in every run of the proposal. One that passed before, is not run by the proposal any
    more and still passes as the base has it is no break but is told in ``weakened``. ``released`` says that a person
    let the task change what is tested: what the base's own tests in ``touched`` files say is told, and does not count.
    """
    runs = [run for run in (proposal, own) if run is not None]
    free = [*base.passed, *base.failed] if released else []
    let_go = {name for name in free if name == WHOLE or file_of(name) in touched}
    broken = sorted({*_failing(base.passed, proposal), *_missing(base.passed, own or proposal)} - let_go)
    fixed = [name for name in base.failed if not any(_missing([name], run) for run in runs)]
    dropped = sorted(set(_missing(base.failed, own or proposal)) - let_go)
    own_counts = own if own is not None and not (released and _only(own, touched)) else None
    reason = _objection(proposal, own_counts, broken, dropped)
    return CheckReport(
        base=base,
        proposal=proposal,
        fixed=tuple(fixed),
        broken=tuple(broken),
        weakened=tuple(_unheld(base, own, let_go) if released else _unrun(base, proposal, own)),
        verdict="failed" if reason else "passed",
        reason=reason,
    )


def suspects(base: TestRun, run: TestRun, touched: frozenset[str]) -> tuple[str, ...]:
    """The tests that failed, where all of them passed before in files that nobody touched: it may be chance alone.

    A command that is not told apart is touched with any test.
    """
    if not run.exit_code or run.timed_out or run.out_of_memory or not run.failed:
        return ()
    known = set(base.passed)
    tests = any(is_test_file(path, base.command) for path in touched) if WHOLE in run.failed else False
    doubted = all(name in known and file_of(name) not in touched for name in run.failed) and not tests
    return run.failed if doubted else ()


def settles(again: TestRun, doubted: Iterable[str]) -> bool:
    """Whether a second run shows that the first one's failures were chance."""
    return not again.exit_code and not again.timed_out and not again.failed and not _missing(doubted, again)


def file_of(name: str) -> str:
    """The file that a test lies in, as far as its name tells; ``unittest`` names a module by dots."""
    path, separator, _ = name.partition("::")
    if separator or "/" in path or path.endswith(".py") or "." not in path:
        return path
    return path.rsplit(".", 2)[0].replace(".", "/") + ".py"


def place_of(name: str) -> tuple[str, str]:
    """The file of a test, and the test as ``Class.name`` without its parameters."""
    path = file_of(name)
    inner = name.partition("::")[2].replace("::", ".") if "::" in name else ".".join(name.split(".")[-2:])
    return path, inner.partition("[")[0]


def runs_elsewhere(base: TestRun, proposal: TestRun, moved: Mapping[Place, Place]) -> frozenset[Place]:
    """Tests that are gone from their place, and pass where they ``moved`` to, in no fewer cases than before."""
    before, after = Counter(map(place_of, base.passed)), Counter(map(place_of, proposal.passed))
    return frozenset(place for place, home in moved.items() if 0 < before[place] <= after[home])


def _failing(names: Iterable[str], run: TestRun) -> list[str]:
    """Those of ``names`` that fail in ``run``, or of which it says nothing because it was not told apart."""
    ran = set(run.passed) | set(run.skipped)
    failed = set(run.failed)
    told = WHOLE not in ran | failed
    return [name for name in _missing(names, run) if name in failed or not told]


def _only(run: TestRun, touched: frozenset[str]) -> bool:
    """Whether a run failed by tests in these files alone."""
    return (
        not run.timed_out
        and not run.out_of_memory
        and all(name == WHOLE or file_of(name) in touched for name in run.failed)
    )


def _unrun(base: TestRun, proposal: TestRun, own: TestRun | None) -> Iterable[Weakened]:
    """Tests that passed before and that the proposal runs no more; what the base's own say of it is in the verdict."""
    if own is None:
        return
    skipped = set(proposal.skipped)
    for name in _missing(base.passed, proposal):
        if name in proposal.failed or name == WHOLE or WHOLE in proposal.passed:
            continue
        how = (
            "it passed before and is skipped, or may fail, now"
            if name in skipped
            else "it passed before and is not run now"
        )
        yield _weakened("skipped" if name in skipped else "deleted", name, how)


def _unheld(base: TestRun, own: TestRun | None, let_go: set[str]) -> Iterable[Weakened]:
    """Tests of the base that do not hold any more, where a person let the task change them."""
    for name in _missing(base.passed, own) if own else ():
        if name in let_go:
            yield _weakened("expectation", name, "as the base has it, it fails on this change")


def _weakened(kind: WeakenedKind, name: str, text: str) -> Weakened:
    path, test = place_of(name)
    _, bracket, case = name.partition("[")
    return Weakened(kind=kind, path=path[:4096], test=f"{test}{bracket}{case}"[:500], text=text)


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


def _objection(proposal: TestRun, own: TestRun | None, broken: Sequence[str], dropped: Sequence[str]) -> str:
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
