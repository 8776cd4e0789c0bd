"""The tool run_tests: the project's tests where the agent works, and what they say in a form that a model can use.

It proves nothing: the checks run the tests again elsewhere. Nothing of the report is left in the workspace, which is
sealed as it is.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sandbox.base import Sandbox
from sandbox.types import Command, Outcome
from swarm.history import clean
from swarm.tools import reports
from swarm.tools.arguments import RunTests
from swarm.tools.outputs import Outputs
from swarm.tools.reports import Report
from swarm.tools.result import Result, refused
from swarm.tools.selecting import narrowed
from swarm.tools.shell import ENV, ending, facts, told

_REPORT = "$HOME/.tests-report.xml"  # what is in /tmp need not outlive a command
_WRAP = f'rm -f "{_REPORT}" "$2"; /bin/sh -c "$1"; code=$?; [ -f "$2" ] && mv -f -- "$2" "{_REPORT}"; exit "$code"'
_TAKE = f'cat "{_REPORT}" && rm -f "{_REPORT}"'
_LARGEST = 8_000_000  # bytes of a report
_NAMES = 500  # failing tests that the journal keeps


@dataclass(frozen=True)
class _Ran:
    """A run: its command, the tests that it was narrowed to, what the model is told of that, and how it ended."""

    command: str
    only: str
    note: str
    outcome: Outcome


class Tester:
    """Runs the tests, and remembers how each selection of them ended last."""

    def __init__(self, sandbox: Sandbox, command: str | None, outputs: Outputs) -> None:
        self._sandbox, self._command, self._outputs = sandbox, command, outputs
        self._failed: dict[str, tuple[str, ...]] = {}

    async def run(self, seconds: float | None = None, only: str | None = None) -> Result:
        """Run all tests, or some of them."""
        if not self._command:
            return refused("no test command is known for this task; run what fits through shell")
        command, note = self._command, ""
        if only is not None:
            command = narrowed(self._command, only) or self._command
        if only is not None and command == self._command:
            only, note = None, "[this test command cannot be narrowed to some tests: all were run]"
        outcome = await self._sandbox.run(_wrapped(command, seconds))
        report = await self._report(outcome)
        return self._told(_Ran(command, only or "", note, outcome), report)

    async def asked(self, asked: RunTests, seconds: float | None) -> Result:
        """Run what a call asks for."""
        return await self.run(seconds, asked.only)

    def recall(self, tests: Any) -> None:
        """Take over how a selection ended in an earlier part of the conversation."""
        if isinstance(tests, dict) and isinstance(tests.get("failed"), list):
            self._failed[str(tests.get("only", ""))] = tuple(map(str, tests["failed"]))

    async def _report(self, outcome: Outcome) -> Report | None:
        """The tests by name, where the command told them apart and came to its end."""
        if outcome.timed_out or outcome.out_of_memory:
            return None
        data = bytearray()

        def take(piece: bytes) -> None:
            if len(data) <= _LARGEST:
                data.extend(piece)

        taken = await self._sandbox.run(Command(argv=("/bin/sh", "-c", _TAKE), whole=True), take)
        if (
            taken.exit_code == 0
            and len(data) <= _LARGEST
            and (found := await asyncio.to_thread(reports.read_junit, bytes(data)))
        ):
            return found
        return reports.read_unittest(outcome.text) if not outcome.cut else None

    def _told(self, ran: _Ran, report: Report | None) -> Result:
        only, note, outcome = ran.only, ran.note, ran.outcome
        ok = outcome.exit_code == 0 and not outcome.timed_out
        data = facts(ran.command, outcome)
        if report is None:
            text = "\n".join(_given(note, told(outcome, self._outputs)))
            return Result(text, kind="command", data=data | self._counted(), changed=True, ok=ok)
        failed = report.results.failed
        lines = [f"[tests: {reports.counts(report)}; {ending(outcome)}, {outcome.seconds:.1f} s]"]
        reasons, whole = reports.failures(report)
        lines += _given(note, reports.change(self._failed.get(only), report), reasons)
        self._failed[only] = failed
        if not whole:
            number = self._outputs.keep(clean(outcome.text).strip("\n"))
            lines.append(f'[view path "output:{number}" shows the whole output]')
        if not ok and not failed:  # the runner is unhappy for another reason: a plugin, a threshold, a warning
            lines.insert(1, self._outputs.shorten(clean(outcome.text).strip("\n"), 4000))
        tests = {"only": only, "passed": len(report.results.passed), "failed": list(failed[:_NAMES])}
        return Result(
            "\n".join(lines), kind="command", data=data | {"tests": tests} | self._counted(), changed=True, ok=ok
        )

    def _counted(self) -> dict[str, Any]:
        return {"outputs": self._outputs.count}


def _wrapped(command: str, seconds: float | None) -> Command:
    """The command with pytest told to write a report, outside the workspace while tests run."""
    report = f"/tmp/report-{secrets.token_hex(8)}.xml"  # noqa: S108  the sandbox's own /tmp
    options = f"{ENV['PYTEST_ADDOPTS']} --junitxml={report} -o junit_family=xunit1"
    return Command(
        argv=("/bin/sh", "-c", _WRAP, "sh", command, report), env=ENV | {"PYTEST_ADDOPTS": options}, timeout=seconds
    )


def _given(*parts: str) -> Iterable[str]:
    return (part for part in parts if part)
