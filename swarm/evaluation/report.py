"""The report of a run as data: `report.json`, whose form docs/evaluation.md describes, and what it is made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from swarm.errors import EvaluationError
from swarm.evaluation.keeping import wasted
from swarm.evaluation.plan import Plan
from swarm.evaluation.reference import REFERENCE
from swarm.evaluation.results import TRIES, Folder, Standing, Try
from swarm.evaluation.scores import Comparison, Score, compared, score
from swarm.types import Frozen

REPORT, PAGE = "report.json", "report.html"


class Report(Frozen):
    """Everything that is told of a run. ``planned`` counts its tries; ``broken`` are cases that could not judge, with
    the reason, ``blocked`` those that cannot be run here. ``unproved`` counts cases whose reference solution is not
    known, so that nobody has seen that they can be solved. ``wasted`` are tokens of tries that were broken off and made
    again. ``baseline`` names the run that this one was compared to."""

    version: Literal[1] = 1
    run: Plan
    planned: int
    made: int
    scores: tuple[Score, ...]
    comparisons: tuple[Comparison, ...] = ()
    baseline: str = ""
    broken: tuple[Standing, ...] = ()
    blocked: tuple[Standing, ...] = ()
    unproved: int = 0
    wasted: int = 0
    tries: tuple[Try, ...] = ()
    notes: tuple[str, ...] = Field(default=(), description="what a reader has to know")

    @property
    def whole(self) -> bool:
        """Whether every try that can be made was made, and the machinery failed in none and at no case."""
        faults = any(row.outcome == "broken" for row in self.tries) or any(row.fault for row in self.broken)
        return self.made >= self.planned and not faults


def report_of(folder: Folder, baseline: Path | None = None) -> Report:
    """The report of the run in a folder, by its results as they are now. Raises EvaluationError."""
    plan = planned(folder)
    tries = folder.tries()
    standings = [row for case, row in folder.standings().items() if plan.cases.get(case) == row.digest]
    unfit = {row.case for row in standings if row.broken}
    unproved = {row.case for row in standings if not row.proved and not row.broken}
    known = [way for way in plan.ways if any((row.strategy, row.tier) == (way.strategy, way.tier) for row in tries)]
    comparisons = list(within(plan, tries))
    if baseline is not None:
        comparisons += against(plan, tries, Folder(baseline))
    told = Report(
        run=plan,
        planned=sum(
            not (each.case in unfit or (each.way.strategy == REFERENCE and each.case in unproved))
            for each in plan.tries()
        ),
        made=len(tries),
        scores=tuple(score(way, tries, plan.seed) for way in known),
        comparisons=tuple(comparisons),
        baseline=str(baseline or ""),
        broken=tuple(row for row in standings if row.broken and not row.blocked),
        blocked=tuple(row for row in standings if row.blocked),
        unproved=len(unproved),
        wasted=wasted(folder.path / TRIES, {row.folder for row in tries}),
        tries=_ordered(plan, tries),
    )
    return told.model_copy(update={"notes": tuple(_notes(told))})


def planned(folder: Folder) -> Plan:
    """What the run in a folder was begun with. Raises EvaluationError where there is none."""
    plan = folder.plan()
    if plan is None:
        raise EvaluationError(f"{folder.path} holds no run of an evaluation", "name the folder that --out named")
    return plan


def within(plan: Plan, tries: Sequence[Try]) -> Iterable[Comparison]:
    """Each way of a run against each that was named after it."""
    for one, other in combinations(plan.ways, 2):
        sides = [[row for row in tries if (row.strategy, row.tier) == (way.strategy, way.tier)] for way in (one, other)]
        if told := compared((one.name, other.name), sides[0], sides[1], plan.seed):
            yield told


def against(plan: Plan, tries: Sequence[Try], baseline: Folder) -> tuple[Comparison, ...]:
    """The ways of a run against those of an earlier one, on cases that are the same to the last byte.

    Ways of the same name are held together; where none is, each against each. Raises EvaluationError.
    """
    before = planned(baseline)
    same = {case for case, digest in plan.cases.items() if before.cases.get(case) == digest}
    if not same:
        raise EvaluationError(
            f"the run in {baseline.path} has no case in common with this one", "compare runs of the same set"
        )
    earlier = baseline.tries()
    alike = [(way, way) for way in plan.ways if way in before.ways]
    found = []
    for one, other in alike or [(one, other) for one in plan.ways for other in before.ways]:
        ours = [row for row in tries if row.case in same and (row.strategy, row.tier) == (one.strategy, one.tier)]
        rows = [row for row in earlier if row.case in same and (row.strategy, row.tier) == (other.strategy, other.tier)]
        names = (one.name, f"{other.name} in {baseline.path.name}")
        if told := compared(names, ours, rows, plan.seed):
            found.append(told)
    return tuple(found)


def read(path: Path) -> Report:
    """A report that was written before. Raises EvaluationError."""
    planned(Folder(path))  # whether any run is there
    try:
        return Report.model_validate_json((path / REPORT).read_bytes())
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is damaged, or of another version"
        raise EvaluationError(f"{path / REPORT} cannot be read: {why}", f"make it: swarm eval report {path}") from None


def _ordered(plan: Plan, tries: Sequence[Try]) -> tuple[Try, ...]:
    places = {each.key: place for place, each in enumerate(plan.tries())}
    return tuple(sorted(tries, key=lambda row: places.get(row.key, len(places))))


def _notes(told: Report) -> Iterable[str]:
    if told.made < told.planned:
        yield f"{told.planned - told.made} of {told.planned} tries were not made: swarm eval --resume goes on with them"
    if count := sum(not row.fault for row in told.broken):
        yield f"{_cases(count)} counted nowhere, as broken: hidden tests that do not tell right from wrong"
    if count := sum(row.fault for row in told.broken):
        yield f"{_cases(count)} counted nowhere: the machinery failed in the proof, made again when the run goes on"
    if told.blocked:
        yield f"{_cases(len(told.blocked))} counted nowhere, for what is missing here"
    if count := sum(row.outcome == "broken" for row in told.tries):
        tries = "1 try" if count == 1 else f"{count} tries"
        yield f"{tries} counted nowhere, where the machinery failed: made again when the run goes on"
    if told.unproved:
        yield f"{_cases(told.unproved)} without a reference solution: nobody has seen here that it can be done"
    if told.wasted:
        yield f"{told.wasted} tokens were spent by tries that were broken off and made again"


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"
