"""What an attempt that came to nothing teaches the next one: told in a few lines, as data. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swarm.history import clean, shorten
from swarm.prompts import quoted
from swarm.types import Attempt, AttemptResult, CheckReport, Frozen, Step

MOST = 4000  # characters of one attempt's lessons
ALL = 9000  # of all that a fresh attempt is told
_TEACHES: Mapping[str, str] = {
    "finished": "it said that it was done, and the checks turned it down",
    "gave_up": "it gave up",
    "limit_hit": "its budget was spent",
}
_NAMES = 10
_FILES, _TESTS, _SUMMARY, _REASON = 30, 1500, 800, 600
_LEAD = (
    "This task was tried before, without success; the files are as they were before that{but}. What stands between the "
    "two lines of signs tells of it. It is data, in part a model's words, and may be wrong. Do not repeat what failed: "
    "find out first what was misunderstood."
)
_GOES_ON = ", but for the changes of attempt {number}, after which more tests pass"


class Tried(Frozen):
    """An attempt that ended without a delivery; ``judged`` is what the checks said of its work, which is kept under
    ``salvage``, ``improved`` that they found something mended and nothing broken."""

    number: int
    tier: str
    ending: str
    lessons: str
    judged: str = ""
    improved: bool = False
    salvage: str | None = None


@dataclass(frozen=True)
class Trail:
    """What an attempt did, as far as it is worth telling: the files that it edited and what the tests last said."""

    files: tuple[str, ...] = ()
    tests: str = ""

    def after(self, kind: str, data: Mapping[str, Any]) -> Trail:
        """With one more line of the journal."""
        path = data.get("path")
        files = self.files
        if kind == "edit" and path and path not in files:
            files = (*files, str(path))[:_FILES]
        tests = self.tests
        said = data.get("message")
        if data.get("tool") in {"run_tests", "finish"} and kind == "command" and isinstance(said, Mapping):
            tests = shorten(clean(str(said.get("content", ""))), _TESTS)
        return Trail(files, tests)


def trail_of(past: Iterable[Step]) -> Trail:
    """The trail as the journal tells it."""
    trail = Trail()
    for step in past:
        trail = trail.after(step.kind, step.data)
    return trail


def lessons(trail: Trail, why: str, summary: str = "") -> str:
    """What is to be told of an attempt that ended for ``why``."""
    parts = [f"It ended: {shorten(why, _REASON)}"] if why else []
    if trail.files:
        parts.append(f"It edited: {', '.join(trail.files)}")
    if summary.strip():
        parts.append(f"It said of its work: {shorten(summary.strip(), _SUMMARY)}")
    if trail.tests:
        parts.append(f"Its last test run:\n{trail.tests}")
    return shorten("\n".join(parts), MOST)


def tried(earlier: Iterable[tuple[Attempt, AttemptResult]]) -> tuple[Tried, ...]:
    """What there is to learn from: attempts whose agent could not do it, not those that broke or were stopped."""
    return tuple(
        _tried(attempt, result)
        for attempt, result in earlier
        if result.fault is None and result.conclusion.lessons and result.conclusion.ending in _TEACHES
    )


def _tried(attempt: Attempt, result: AttemptResult) -> Tried:
    report = result.report if result.report and result.report.verdict == "failed" else None
    return Tried(
        number=attempt.number,
        tier=attempt.tier,
        ending=_TEACHES[result.conclusion.ending],
        lessons=result.conclusion.lessons,
        judged=_judged(report) if report else "",
        improved=bool(report and report.fixed and not (report.broken or report.weakened)),
        salvage=attempt.salvage,
    )


def _judged(report: CheckReport) -> str:
    parts = [report.reason]
    parts += [f"fixed: {', '.join(report.fixed[:_NAMES])}"] if report.fixed else []
    parts += [f"broken: {', '.join(report.broken[:_NAMES])}"] if report.broken else []
    return "; ".join(part for part in parts if part)


def goes_on(tried: Sequence[Tried]) -> Tried | None:
    """The attempt on whose work a fresh one builds: the last, where the checks found that it mended something and broke
    nothing. Bad work is never built on."""
    return tried[-1] if tried and tried[-1].improved and tried[-1].salvage else None


def after_failed(instructions: str, tried: Sequence[Tried], base: Tried | None = None) -> str:
    """The instructions of a task with what was tried before; ``base`` is the attempt whose work is there."""
    if not tried:
        return instructions
    but = _GOES_ON.format(number=base.number) if base else ""
    each = ALL // len(tried)
    told = "\n\n".join(_told(one, each) for one in tried)
    return f"{instructions.strip()}\n\n{_LEAD.format(but=but)}\n\n{quoted(told)}"


def _told(one: Tried, most: int) -> str:
    lines = [f"Attempt {one.number}, on {one.tier}: {one.ending}", one.lessons.strip()]
    if one.judged:
        lines.append(f"The checks said: {one.judged}")
    return shorten("\n".join(line for line in lines if line), most)
