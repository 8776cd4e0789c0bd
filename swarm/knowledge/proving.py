"""Runs suggested test commands on the base, in fresh sandboxes, until one is seen to run tests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from pydantic import Field

from sandbox.base import Sandbox
from swarm.checks import run_tests
from swarm.evidence import WHOLE
from swarm.knowledge.ecosystems import Suggestion
from swarm.types import Frozen, TestRun

DISCOVER = "discover"
"""In the place of a test command: the one that is found in the base and proved on it."""
MOST = 6  # commands that are tried
SECONDS = 300.0  # of each
_EMPTY = re.compile(r"\b(?:no tests? (?:ran|files?|found)|(?:ran|running)? ?0 tests?)\b", re.IGNORECASE)
_SOME = re.compile(r"\b[1-9]\d* (?:tests?|passed|passing|examples?|specs?)\b|^ok\s+\S", re.IGNORECASE | re.MULTILINE)


class Tried(Frozen):
    """One command as it went. ``why`` names the file that suggests it."""

    command: str
    why: str = ""
    went: str
    seconds: float = 0.0


class Proved(Frozen):
    """A command that runs the base's tests, with how many of them pass and fail there; both 0 where it does not tell
    its tests apart."""

    command: str = Field(min_length=1)
    why: str = ""
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0

    @property
    def told(self) -> str:
        """In a few words."""
        counted = f"{self.passed} passed, {self.failed} failed" if self.passed or self.failed else "it passed"
        return f"{counted} on the base in {self.seconds:.1f} s"


Fresh = Callable[[], AbstractAsyncContextManager[Sandbox]]


async def prove(
    fresh: Fresh, suggested: Sequence[Suggestion], *, seconds: float = SECONDS
) -> tuple[Proved | None, tuple[Tried, ...]]:
    """The first command that runs tests on the base, and all that were tried up to it.

    ``fresh()`` opens a sandbox that holds the base, set up as the checks' are. ``seconds`` bounds each command. A
    command counts where single tests pass, or where it does not tell them apart and ends with 0. Raises SandboxError.
    """
    tried: list[Tried] = []
    for each in suggested[:MOST]:
        async with fresh() as sandbox:
            run = await run_tests(sandbox, each.command, seconds=seconds)
        good = counts(run)
        tried.append(Tried(command=each.command, why=each.why, went=_went(run), seconds=run.seconds))
        if good:
            told = WHOLE not in run.passed
            many = (len(run.passed), len(run.failed)) if told else (0, 0)
            found = Proved(command=each.command, why=each.why, passed=many[0], failed=many[1], seconds=run.seconds)
            return found, tuple(tried)
    return None, tuple(tried)


def counts(run: TestRun) -> bool:
    """Whether a run shows that its command runs tests. One that finds none is no proof, whatever its exit code."""
    if run.timed_out or run.out_of_memory or not run.passed:
        return False
    return WHOLE not in run.passed or not _none(run.tail)


def _none(tail: str) -> bool:
    """Whether the words of a run say that it found no test, and none that it ran one."""
    return bool(_EMPTY.search(tail)) and not _SOME.search(tail)


def _went(run: TestRun) -> str:
    if run.timed_out:
        return f"it did not end within {run.seconds:.0f} s"
    if run.out_of_memory:
        return "it ran out of memory"
    if run.exit_code == 127:
        return f"there is no {shlex.split(run.command)[0]} in the sandbox"
    told = WHOLE not in {*run.passed, *run.failed}
    counted = f"{len(run.passed)} passed, {len(run.failed)} failed, " if told else ""
    return f"{counted}exit code {run.exit_code}"
