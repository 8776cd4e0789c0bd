"""Runs the operator's test command on base and sealed tree, each in a fresh sandbox, and reports what changed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from sandbox.base import Sandbox
from sandbox.errors import SandboxPathError
from sandbox.types import Command, Outcome, SealedTree
from swarm import evidence
from swarm.originals import Originals, TooLargeError, originals_of, put_back, tested_by
from swarm.truth.syntax import LIMIT
from swarm.truth.weakened import MOST, Change, Read, read, relevant
from swarm.types import CheckReport, TestRun

Fresh = Callable[[str], AbstractAsyncContextManager[Sandbox]]
Contents = Mapping[str, bytes | None]

_REPORT_LIMIT = 32_000_000
_SIGKILLED = 128 + 9  # as a shell tells of it
_TAIL = 4000
# The report is written outside the workspace while tests run, so that none of them meets it, and copied in afterwards,
# because nothing but the workspace is sure to outlive a command.
_WRAP = '/bin/sh -c "$1"; code=$?; if [ -f "$2" ]; then cp -- "$2" "$3"; rm -f -- "$2"; fi; exit "$code"'
_QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "PAGER": "cat", "GIT_PAGER": "cat", "TERM": "dumb", "CI": "1"}


@dataclass(frozen=True)
class Rules:
    """What a person or the operator decided about the tests of a change.

    ``refuse_weakened``: a change that takes anything from its tests does not pass. ``released``: the task is to change
    what is tested, so the base's own tests do not count in files that it changed; what they say is told all the same.
    """

    refuse_weakened: bool = False
    released: bool = False


async def check(
    fresh: Fresh,
    sealed: SealedTree,
    test_command: str | None,
    *,
    seconds: float | None = None,
    rules: Rules = Rules(),
) -> CheckReport:
    """Judge a sealed tree by the operator's or the person's test command, never by one out of the tree.

    ``fresh(tree)`` opens a new sandbox without network whose workspace holds that tree; it is called with
    ``sealed.base_tree`` and ``sealed.tree``. ``seconds`` bounds each run. Where the proposal touched tests or what
    steers them, a third run puts the base's own back. Failures of tests that passed before, in files that the proposal
    does not touch, are run once more and told as flaky where they pass then. Code under test runs beside the test
    runner, so this catches mistakes and lazy cheats, not hostile code that forges a report: a person still reads the
    proposal. Raises SandboxError for broken machinery.
    """
    if not test_command or not test_command.strip():
        return _not_run("no test command is known: give one with the task or in the repository's settings")
    if not sealed.changed:
        return _not_run("nothing was changed, so there is nothing to check")
    async with fresh(sealed.base_tree) as sandbox:
        tested = await tested_by(sandbox, test_command, sealed.files)
        ours, looked = tested.restored(sealed.files), relevant(sealed.files, tested)
        try:
            originals = await originals_of(sandbox, ours)
        except TooLargeError as error:
            return CheckReport(base=None, proposal=None, verdict="failed", reason=str(error))
        before = await _contents(sandbox, looked, originals)
        base = await run_tests(sandbox, test_command, seconds=seconds)
    runs = _Runs(fresh, sealed, test_command, seconds, base)
    proposal, after = await runs.made(None, looked)
    words = await asyncio.to_thread(read, _changes(before, after), tested)
    own = None
    if ours and not proposal.exit_code and not proposal.timed_out:
        own, _ = await runs.made(originals, ())
    report = evidence.compare(base, proposal, own, touched=frozenset(sealed.files), released=rules.released)
    return _told(report, words, runs.flaky, rules)


@dataclass
class _Runs:
    """Runs of the proposal, each in a sandbox of its own; ``flaky`` is what failed by chance in any of them."""

    fresh: Fresh
    sealed: SealedTree
    command: str
    seconds: float | None
    base: TestRun
    flaky: tuple[str, ...] = ()

    async def made(self, originals: Originals | None, looked: Sequence[str]) -> tuple[TestRun, Contents]:
        """A run, made once more where it may have failed by chance; and what these files held before the first."""
        run, contents = await self._once(originals, looked)
        if _killed(run):  # by whom nobody knows, so it may not have been the change's doing
            run, _ = await self._once(originals, ())
        doubted = evidence.suspects(self.base, run, frozenset(self.sealed.files))
        if doubted:
            again, _ = await self._once(originals, ())
            if evidence.settles(again, doubted):
                self.flaky = tuple(sorted({*self.flaky, *doubted}))
                return again, contents
        return run, contents

    async def _once(self, originals: Originals | None, looked: Sequence[str]) -> tuple[TestRun, Contents]:
        async with self.fresh(self.sealed.tree) as sandbox:
            contents = await _contents(sandbox, looked, {})
            if originals is not None:
                await put_back(sandbox, originals)
            return await run_tests(sandbox, self.command, seconds=self.seconds), contents


def _told(report: CheckReport, words: Read, flaky: tuple[str, ...], rules: Rules) -> CheckReport:
    """The report with what was found besides. Of one test it is told once: by its words before by its runs."""
    found = words.found
    said = {(each.path, each.test) for each in found} | {(each.path, "") for each in found if each.kind == "deleted"}
    if report.base and report.proposal:
        said |= evidence.runs_elsewhere(report.base, report.proposal, words.moved)
    more = [each for each in report.weakened if not {(each.path, each.test.partition("[")[0]), (each.path, "")} & said]
    weakened = (*found, *more)[:MOST]
    update: dict[str, object] = {"weakened": weakened, "flaky": flaky}
    if weakened and rules.refuse_weakened and report.verdict == "passed":
        first = weakened[0]
        more_words = f", and {len(weakened) - 1} more" if len(weakened) > 1 else ""
        update |= {
            "verdict": "failed",
            "reason": f"the tests demand less than they did: {first.where}: {first.text}{more_words}",
        }
    return report.model_copy(update=update)


def _changes(before: Contents, after: Contents) -> dict[str, Change]:
    return {path: Change(before.get(path), after.get(path)) for path in before.keys() | after.keys()}


async def _contents(sandbox: Sandbox, paths: Sequence[str], known: Originals) -> Contents:
    """What files hold, cut off where they are too long to be compared; None for those that are not there."""
    found: dict[str, bytes | None] = {}
    for path in paths:
        if path in known:
            held = known[path]
            found[path] = held[0][: LIMIT + 1] if held else None
            continue
        try:
            found[path] = await sandbox.read(path, limit=LIMIT + 1)
        except SandboxPathError:
            found[path] = None
    return found


def _killed(run: TestRun) -> bool:
    return run.exit_code == _SIGKILLED and not run.timed_out and not run.out_of_memory


async def run_tests(
    sandbox: Sandbox, command: str, *, seconds: float | None = None, env: Mapping[str, str] | None = None
) -> TestRun:
    """Run a test command through ``/bin/sh -c`` and tell its tests apart where it lets us.

    Reads pytest's JUnit report and the lines of ``unittest -v``; any other command is one test named "command". ``env``
    is added to the environment, its PYTEST_ADDOPTS to our own. Leaves the workspace dirty, so hand in a throwaway
    sandbox or a fork. Raises SandboxError for broken machinery.
    """
    token = secrets.token_hex(8)
    outside, inside = f"/tmp/report-{token}.xml", f".report-{token}.xml"  # noqa: S108  the sandbox's own /tmp
    more = dict(env or {})
    options = f"-p no:cacheprovider --junitxml={outside} -o junit_family=xunit1 {more.pop('PYTEST_ADDOPTS', '')}"
    outcome = await sandbox.run(
        Command(
            argv=("/bin/sh", "-c", _WRAP, "sh", command, outside, inside),
            env={**_QUIET, **more, "PYTEST_ADDOPTS": options.strip()},
            timeout=seconds,
        )
    )
    results = await _results(sandbox, inside, outcome)
    return TestRun(
        command=command,
        exit_code=outcome.exit_code,
        passed=results.passed,
        failed=results.failed,
        skipped=results.skipped,
        seconds=outcome.seconds,
        timed_out=outcome.timed_out,
        out_of_memory=outcome.out_of_memory,
        tail=outcome.text[-_TAIL:],
    )


async def _results(sandbox: Sandbox, report: str, outcome: Outcome) -> evidence.Results:
    """Per-test results where the command gave any, else the command as a whole."""
    if outcome.timed_out or outcome.out_of_memory:
        return evidence.whole(succeeded=False)
    try:
        found = evidence.read_junit(await sandbox.read(report, limit=_REPORT_LIMIT))
    except SandboxPathError:
        found = None
    if found is None and not outcome.cut:
        found = evidence.read_unittest(outcome.text)
    return found or evidence.whole(succeeded=outcome.exit_code == 0)


def _not_run(reason: str) -> CheckReport:
    return CheckReport(base=None, proposal=None, verdict="not_run", reason=reason)
