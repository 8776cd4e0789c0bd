"""Runs the operator's test command on base and sealed tree, each in a fresh sandbox, and reports what changed."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from sandbox.base import Sandbox
from sandbox.errors import SandboxError, SandboxPathError
from sandbox.types import Command, Outcome, SealedTree
from swarm import evidence
from swarm.types import CheckReport, TestRun

Fresh = Callable[[str], AbstractAsyncContextManager[Sandbox]]

_REPORT_LIMIT = 32_000_000
_FILE_LIMIT = 64_000_000
_SIGKILLED = 128 + 9  # as a shell tells of it
_TAIL = 4000
# The report is written outside the workspace while tests run, so that none of them meets it, and copied in afterwards,
# because nothing but the workspace is sure to outlive a command.
_WRAP = '/bin/sh -c "$1"; code=$?; if [ -f "$2" ]; then cp -- "$2" "$3"; rm -f -- "$2"; fi; exit "$code"'
_QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "PAGER": "cat", "GIT_PAGER": "cat", "TERM": "dumb", "CI": "1"}


async def check(
    fresh: Fresh, sealed: SealedTree, test_command: str | None, *, seconds: float | None = None
) -> CheckReport:
    """Judge a sealed tree by the operator's or the person's test command, never by one out of the tree.

    ``fresh(tree)`` opens a new sandbox without network whose workspace holds that tree; it is called with
    ``sealed.base_tree`` and ``sealed.tree``. ``seconds`` bounds each run. Where the proposal touched tests or what
    steers them, a third run puts the base's own back. Code under test runs beside the test runner, so this
    catches mistakes and lazy cheats, not hostile code that forges a report: a person still reads the proposal.
    Raises SandboxError for broken machinery.
    """
    if not test_command or not test_command.strip():
        return _not_run("no test command is known: give one with the task or in the repository's settings")
    if not sealed.changed:
        return _not_run("nothing was changed, so there is nothing to check")
    ours = evidence.restored(sealed.files, test_command)
    async with fresh(sealed.base_tree) as sandbox:
        originals = await _read_all(sandbox, ours)
        base = await run_tests(sandbox, test_command, seconds=seconds)
    proposal = await _tried(fresh, sealed.tree, test_command, seconds)
    if _killed(proposal):  # by whom nobody knows, so it may not have been the change's doing
        proposal = await _tried(fresh, sealed.tree, test_command, seconds)
    if not ours or proposal.exit_code or proposal.timed_out:
        return evidence.compare(base, proposal, None)
    async with fresh(sealed.tree) as sandbox:
        await _put_back(sandbox, originals)
        own = await run_tests(sandbox, test_command, seconds=seconds)
    return evidence.compare(base, proposal, own)


async def _tried(fresh: Fresh, tree: str, command: str, seconds: float | None) -> TestRun:
    async with fresh(tree) as sandbox:
        return await run_tests(sandbox, command, seconds=seconds)


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


async def _read_all(sandbox: Sandbox, paths: tuple[str, ...]) -> Mapping[str, tuple[bytes, bool] | None]:
    """Contents and executable bits of the base's files; None for those it does not have."""
    found: dict[str, tuple[bytes, bool] | None] = {}
    for path in paths:
        try:
            data = await sandbox.read(path, limit=_FILE_LIMIT + 1)
        except SandboxPathError:
            found[path] = None
            continue
        if len(data) > _FILE_LIMIT:
            raise SandboxError(f"{path} is larger than {_FILE_LIMIT} bytes, too large to put back for the checks")
        mode = await sandbox.run(Command(argv=("test", "-x", path)))
        found[path] = (data, mode.exit_code == 0)
    return found


async def _put_back(sandbox: Sandbox, originals: Mapping[str, tuple[bytes, bool] | None]) -> None:
    """Give the base's own tests their place again: added files go, changed and deleted ones come back."""
    for path in originals:
        await sandbox.run(Command(argv=("rm", "-rf", "--", path)))
    for path, original in originals.items():
        if original is not None:
            await sandbox.write(path, original[0], executable=original[1])


def _not_run(reason: str) -> CheckReport:
    return CheckReport(base=None, proposal=None, verdict="not_run", reason=reason)
