"""Runs the task's own tests on a workspace as it is now, in a fork, and says whether they moved. Nothing is asked.

The tests are those that the agent sees. Where it changed any of them, the ones that it began with have to pass as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sandbox.base import Sandbox
from sandbox.types import Command
from swarm import evidence, history
from swarm.checks import run_tests
from swarm.originals import originals_of, put_back
from swarm.types import CheckReport, Frozen, TestRun
from swarm.work import Work

_TAIL = 2500
_RESTORE = 'git reset -q --hard "$1" && git clean -q -f -d'


class Verdict(Frozen):
    """What a trial found: ``failing`` are tests that fail now; with no test command nothing is ``known``."""

    known: bool
    passed: bool = False
    fixed: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    reason: str = ""
    tail: str = ""

    @property
    def proved(self) -> bool:
        """Whether tests that failed before pass now, and nothing is broken: a repair, as far as tests can tell."""
        return self.passed and bool(self.fixed)

    def told(self) -> str:
        """In words for a model, with the end of what the tests printed."""
        if not self.known:
            return "No test command is known, so nothing was run."
        if self.passed:
            return "All tests pass."
        return f"{self.reason}\n\n{self.tail}".strip()


UNKNOWN = Verdict(known=False)


@asynccontextmanager
async def beginning(work: Work) -> AsyncIterator[Sandbox]:
    """A fork that holds the workspace as it was when the work began, for as long as the block lasts.

    In a later life of the attempt the workspace holds what was saved; then the checkout's own git brings the beginning
    back, where there is one. Where there is none it is noted, and the fork is as the workspace was left.
    """
    async with work.sandbox.fork() as fork:
        if work.past:
            base = work.task.request.base_commit or "HEAD"
            reset = await fork.run(Command(argv=("/bin/sh", "-c", _RESTORE, "sh", base)))
            if reset.exit_code:
                why = history.shorten(history.clean(reset.text).strip(), 200)
                text = "the workspace as it was at first cannot be had any more: changes are told since the restart"
                await work.record("note", {"text": text, "reason": why})
        yield fork


async def tests_of(work: Work, sandbox: Sandbox) -> TestRun | None:
    """The tests on a workspace, in a fork of it; None where no command is known."""
    if not work.test_command:
        return None
    async with sandbox.fork() as fork:
        return await _run(work, fork)


async def tried(
    work: Work, base: TestRun | None, sandbox: Sandbox, beginning: Sandbox, changed: Sequence[str] = ()
) -> Verdict:
    """The verdict on a workspace whose ``changed`` paths differ from the ``beginning``'s. Raises SandboxError."""
    if base is None or not work.test_command:
        return UNKNOWN
    ours = evidence.restored(changed, work.test_command)
    async with sandbox.fork() as fork:
        run = await _run(work, fork)
    own = None
    if ours and run.exit_code == 0:
        async with sandbox.fork() as fork:
            await put_back(fork, await originals_of(beginning, ours))
            own = await _run(work, fork)
    return judged(base, run, own)


def judged(base: TestRun, run: TestRun, own: TestRun | None = None) -> Verdict:
    """The verdict on two runs. Pure."""
    report: CheckReport = evidence.compare(base, run, own)
    last = own or run
    tail = history.shorten(history.clean(last.tail), _TAIL)
    passed, failing = report.verdict == "passed", tuple(last.failed)
    return Verdict(
        known=True,
        passed=passed,
        fixed=report.fixed,
        broken=report.broken,
        failing=failing,
        reason=report.reason,
        tail=tail,
    )


async def _run(work: Work, fork: Sandbox) -> TestRun:
    command = work.test_command or ""
    run = await run_tests(fork, command, seconds=max(1.0, work.ledger.seconds_left()))
    failed = list(run.failed[:20])
    told = {"exit_code": run.exit_code, "seconds": run.seconds, "timed_out": run.timed_out, "failed": failed}
    await work.record("command", {"text": command, **told})
    return run
