"""What `swarm eval` does: a plan into a run, a run onto the screen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from platformdirs import user_state_path

from swarm.cli import door, screen
from swarm.cli.clean import one_line
from swarm.cli.evaluation_plan import Intent, intended
from swarm.cli.exits import Code
from swarm.cli.view import many
from swarm.errors import ConfigError, EvaluationError
from swarm.evaluation.making import make
from swarm.evaluation.page import number, percent, span
from swarm.evaluation.plan import NO_TIER, Plan, Way
from swarm.evaluation.report import PAGE, Report, planned, read
from swarm.evaluation.report import against as _against
from swarm.evaluation.results import Folder, Standing, Try
from swarm.evaluation.runner import Bounds, Runner, begin
from swarm.wiring import evaluating
from swarm.work import Chat

_REASON = 200  # characters of why a try failed, on the screen
STATE = "eval"  # below this user's state folder: what is made for the sandboxes, kept for the next run


def run(ctx: typer.Context, asked: Mapping[str, Any], config: Path | None, *, as_json: bool) -> None:
    """`swarm eval run`."""
    intent = intended(ctx, asked, config)
    plan = intent.plan
    folder = Folder(asked["resume"] or asked["out"] or _folder_name(plan))
    bounds = Bounds(jobs=asked["jobs"], tokens=asked["total_tokens"], seconds=asked["total_wall"])
    if asked["baseline"] is not None:
        planned(Folder(asked["baseline"]))  # a wrong name is told before anything runs
    _begin(folder, plan, new=not (asked["resume"] or asked["out"]))
    tries = len(plan.cases) * len(plan.ways) * plan.repeat
    many_tries = "1 try" if tries == 1 else f"{tries} tries"
    screen.hint(f"{many(len(plan.cases), 'case')}, {many_tries}; the run is kept in {folder.path}")
    teller = Teller(tries)
    stopped, interrupted = "", False
    try:
        stopped = door.run(_run(intent, folder, bounds, teller))
    except KeyboardInterrupt:
        interrupted = True
    report = make(folder, asked["baseline"])
    _say(report, folder.path, as_json=as_json)
    if stopped or interrupted:
        screen.hint(f"{stopped or 'it was interrupted'}; go on with: swarm eval --resume {folder.path}")
    if interrupted:
        raise typer.Exit(Code.INTERRUPTED)
    if not report.whole:
        raise typer.Exit(Code.UNFINISHED)


def show(folder: Path, *, as_json: bool) -> None:
    """`swarm eval show`."""
    _say(read(folder), folder, as_json=as_json)


def report(folder: Path, baseline: Path | None, *, as_json: bool) -> None:
    """`swarm eval report`."""
    _say(make(Folder(folder), baseline), folder, as_json=as_json)


def compare(folder: Path, baseline: Path, *, as_json: bool) -> None:
    """`swarm eval compare`."""
    told = _against(planned(Folder(folder)), Folder(folder).tries(), Folder(baseline))
    if not told:
        raise EvaluationError("the two runs tried no case in common", "compare runs of the same set")
    if as_json:
        screen.document([each.model_dump(mode="json") for each in told])
        return
    for each in told:
        screen.say(f"{each.words} ({each.cases} cases)")


def _begin(folder: Folder, plan: Plan, *, new: bool) -> None:
    """Begin the run, or go on with it: what is wrong with its folder is told before a model is started."""
    if new:
        _unversioned(folder.path.parent)
    with folder.held():
        begin(folder, plan)


def _unversioned(folder: Path) -> None:
    """A folder of ours in a checkout of somebody's, whose git takes no notice of it. Raises EvaluationError."""
    try:
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n")
    except OSError as error:
        raise EvaluationError(f"{folder} cannot be written: {error.strerror}", "name a folder with --out") from None


async def _run(intent: Intent, folder: Folder, bounds: Bounds, teller: Teller) -> str:
    plan = intent.plan
    state = user_state_path("agent-swarm").absolute() / STATE  # never the daemon's, which is another's or in use
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(
            f"{state} cannot be made: {error.strerror}", "set XDG_STATE_HOME to a folder of yours"
        ) from None
    models = any(way.tier != NO_TIER for way in plan.ways)
    async with evaluating(intent.settings, state, models=models, climb=plan.climb) as means:
        if means.pool is not None:
            await _insist_served(means.pool, plan, folder)
        return await Runner(plan, intent.cases, means, folder, bounds, teller.hear).run()


async def _insist_served(pool: Chat, plan: Plan, folder: Folder) -> None:
    """Ask each tier that is still to be worked on once. Raises PoolError where nobody answers."""
    finished = {row.key for row in folder.tries() if row.outcome != "broken"}
    tiers = dict.fromkeys(each.way.tier for each in plan.tries() if each.key not in finished)
    for tier in tiers:
        if tier != NO_TIER:
            await pool.traits(tier)


class Teller:
    """Says on standard error what comes of each try, as it ends."""

    def __init__(self, of: int) -> None:
        self._of = of
        self._made = 0

    def hear(self, row: Try | Standing) -> None:
        """One more."""
        if isinstance(row, Standing):
            if row.broken:
                screen.hint(f"case {row.case} {_stands(row)}: {row.broken}")
            return
        self._made += 1
        way = Way(strategy=row.strategy, tier=row.tier).name
        reason = one_line(row.reason.strip().partition("\n")[0].partition("; mend: ")[0], _REASON)
        why = f": {reason}" if reason else ""
        spent = f"{row.steps} steps, {row.tokens} tokens, {row.split.total:.1f} s"
        screen.hint(f"[{self._made}/{self._of}] {row.case}, {way}: {row.outcome} ({row.ending}, {spent}){why}")


def _folder_name(plan: Plan) -> Path:
    """A new folder below the current one."""
    when = datetime.fromtimestamp(plan.started, UTC).strftime("%Y%m%d-%H%M%S")
    name = "".join(letter if letter.isalnum() else "-" for letter in plan.set.partition(":")[0])
    return Path("swarm-eval") / f"{name}-{when}"


# A report on the screen.


def _stands(row: Standing) -> str:
    if row.blocked:
        return "cannot be run here"
    return "could not be proved" if row.fault else "is broken and counts nowhere"


def _say(report: Report, folder: Path, *, as_json: bool) -> None:
    if as_json:
        screen.document(report.model_dump(mode="json", exclude={"tries"}))
        return
    rows = [
        (
            score.name,
            f"{score.solved} of {score.tries}",
            percent(score.share),
            span(score.interval, 100, "%"),
            number(score.tokens_per_solved),
            span(score.tokens_interval),
            f"{score.wall / score.tries:.1f}" if score.tries else "-",
            ", ".join(f"{count} {ending}" for ending, count in score.endings.items()),
        )
        for score in report.scores
    ]
    if rows:
        headers = ("way", "solved", "share", "95 %", "tokens per solved", "95 %", "seconds a try", "endings")
        screen.table(headers, rows)
    for told in report.comparisons:
        screen.say(f"{told.words} ({told.cases} cases)")
    for note in report.notes:
        screen.hint(note)
    screen.hint(f"the report: {folder / PAGE}")
