"""What `swarm eval` does: settings and options into a plan, the plan into a run, a run onto the screen."""

from __future__ import annotations

import importlib.metadata
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import typer
from platformdirs import user_state_path
from pydantic import ValidationError

from pool.config import EmbeddedConfig, PoolConfig
from swarm.cli import door, screen
from swarm.cli.exits import Code
from swarm.cli.sandbox.given import settings_of
from swarm.config import Settings, no_strategy
from swarm.errors import ConfigError, EvaluationError
from swarm.evaluation.case import Case, CaseSet
from swarm.evaluation.making import make
from swarm.evaluation.page import number, percent, span
from swarm.evaluation.plan import NO_TIER, Plan, Way
from swarm.evaluation.reference import SCRIPTED
from swarm.evaluation.report import PAGE, Report, planned, read
from swarm.evaluation.report import against as _against
from swarm.evaluation.results import Folder, Standing, Try
from swarm.evaluation.runner import Bounds, Runner, begin
from swarm.evaluation.sets.catalogue import set_named
from swarm.evaluation.sets.given import Given
from swarm.wiring import evaluating

STATE = "eval"  # below this user's state folder: what is made for the sandboxes, kept for the next run


def run(ctx: typer.Context, asked: Mapping[str, Any], config: Path | None, *, as_json: bool) -> None:
    """`swarm eval run`."""
    began = _begun(asked["resume"])
    settings = _settings(ctx, config, asked, began)
    chosen = set_named(_set(asked, began), _given(asked, began))
    cases = _cases(chosen, asked, began)
    plan = _plan(settings, chosen, cases, asked, began)
    folder = Folder(asked["resume"] or asked["out"] or _folder_name(plan))
    bounds = Bounds(jobs=asked["jobs"], tokens=asked["total_tokens"], seconds=asked["total_wall"])
    if asked["baseline"] is not None:
        planned(Folder(asked["baseline"]))  # a wrong name is told before anything runs
    screen.hint(f"{len(cases)} cases, {sum(1 for _ in plan.tries())} tries; the run is kept in {folder.path}")
    teller = _Teller(len(cases) * len(plan.ways) * plan.repeat)
    stopped, interrupted = "", False
    try:
        stopped = door.run(_run(settings, plan, cases, folder, bounds, teller))
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


async def _run(
    settings: Settings, plan: Plan, cases: Mapping[str, Case], folder: Folder, bounds: Bounds, teller: _Teller
) -> str:
    state = user_state_path("agent-swarm").absolute() / STATE  # never the daemon's, which is another's or in use
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(
            f"{state} cannot be made: {error.strerror}", "set XDG_STATE_HOME to a folder of yours"
        ) from None
    with folder.held():
        begin(folder, plan)  # what is wrong with it is told before a model is started
    models = any(way.tier != NO_TIER for way in plan.ways)
    async with evaluating(settings, state, models=models, climb=plan.climb) as means:
        return await Runner(plan, cases, means, folder, bounds, teller.hear).run()


class _Teller:
    """Says on standard error what comes of each try, as it ends."""

    def __init__(self, of: int) -> None:
        self._of = of
        self._made = 0

    def hear(self, row: Try | Standing) -> None:
        """One more."""
        if isinstance(row, Standing):
            if row.broken:
                word = "cannot be run here" if row.blocked else "is broken and counts nowhere"
                screen.hint(f"case {row.case} {word}: {row.broken}")
            return
        self._made += 1
        way = Way(strategy=row.strategy, tier=row.tier).name
        why = f": {row.reason.splitlines()[0][:160]}" if row.reason else ""
        spent = f"{row.steps} steps, {row.tokens} tokens, {row.split.total:.1f} s"
        screen.hint(f"[{self._made}/{self._of}] {row.case}, {way}: {row.outcome} ({row.ending}, {spent}){why}")


# Options into a plan. What a run that is gone on with was begun with stands in for what is not said.


def _begun(resume: Path | None) -> Plan | None:
    return planned(Folder(resume)) if resume else None


def _set(asked: Mapping[str, Any], began: Plan | None) -> str:
    wanted: str | None = asked["wanted"] or (began.set if began else None)
    if wanted is None:
        raise ConfigError("no set is named", "see which there are: swarm eval sets")
    return wanted


def _given(asked: Mapping[str, Any], began: Plan | None) -> Given:
    found: dict[str, Any] = dict(began.given) if began else {}
    if asked["images"] is not None:
        found["images"] = _images(asked["images"])
    found |= {name: asked[name] for name in ("image", "repositories") if asked[name] is not None}
    try:
        return Given.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"what was given for the set: {first['loc'][0]}: {first['msg']}", "correct it") from None


def _images(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", 'write an object as {"case": "image"}') from None


def _settings(ctx: typer.Context, config: Path | None, asked: Mapping[str, Any], began: Plan | None) -> Settings:
    strategies = asked["strategy"] or ([way.strategy for way in began.ways] if began else ["auto"])
    embedded = asked["embedded"] or (began is not None and began.embedded)
    if all(name in SCRIPTED for name in strategies):
        return settings_of(ctx, config)
    if not embedded:
        return door.loaded(ctx, config).settings
    pool = PoolConfig(embedded=EmbeddedConfig(enabled=True))
    return settings_of(ctx, config).model_copy(update={"pool": pool})


def _cases(chosen: CaseSet, asked: Mapping[str, Any], began: Plan | None) -> dict[str, Case]:
    only, limit = asked["only"], asked["limit"]
    if began is not None and not only and limit is None:
        only = list(began.cases)
    if only is None:
        found = {}
        for case in islice(chosen.cases(), limit):
            if case.id in found:
                raise EvaluationError(f"the set {chosen.name} has two cases {case.id!r}", "give each an id of its own")
            found[case.id] = case
    else:
        wanted = dict.fromkeys(only)
        found = {}
        for case in chosen.cases():
            if case.id in wanted:
                found[case.id] = case
                if len(found) == len(wanted):
                    break
        if missing := [case for case in wanted if case not in found]:
            raise EvaluationError(
                f"the set {chosen.name} has no case {missing[0]!r}", "its ids are in the report of a run without --only"
            )
        found = dict(islice(((case, found[case]) for case in wanted), limit))
    if not found:
        raise EvaluationError(f"the set {chosen.name} holds no case", "name another set, or another folder of it")
    return found


def _plan(
    settings: Settings, chosen: CaseSet, cases: Mapping[str, Case], asked: Mapping[str, Any], began: Plan | None
) -> Plan:
    ways = _ways(settings, asked, began)
    budget = began.budget if began else settings.limits
    limits = {name: asked[name] for name in ("steps", "tokens", "wall") if asked[name] is not None}
    tiers = {way.tier for way in ways} - {NO_TIER}
    served = {tier: _models(settings, tier) for tier in sorted(tiers)}
    return Plan(
        program=importlib.metadata.version("agent-swarm"),
        set=_set(asked, began),
        origin=chosen.origin,
        licence=chosen.licence,
        cases={name: case.digest for name, case in cases.items()},
        ways=ways,
        repeat=asked["repeat"] or (began.repeat if began else 1),
        seed=asked["seed"] if asked["seed"] is not None else began.seed if began else 0,
        budget=budget.model_copy(update=limits | {"attempts": 1}),
        models=served,
        backend=settings.sandbox.backend,
        image=settings.sandbox.image or "",
        climb=began.climb if began and not asked["tier"] else not asked["tier"],
        embedded=asked["embedded"] or (began is not None and began.embedded),
        given=_given(asked, began).model_dump(mode="json", exclude_defaults=True),
        started=time.time(),
    )


def _ways(settings: Settings, asked: Mapping[str, Any], began: Plan | None) -> tuple[Way, ...]:
    if began is not None and not asked["strategy"] and not asked["tier"]:
        return began.ways
    strategies = asked["strategy"] or (list(dict.fromkeys(way.strategy for way in began.ways)) if began else ["auto"])
    tiers: Sequence[str] = asked["tier"] or ()
    for name in strategies:
        if name not in SCRIPTED and not settings.knows(name):
            raise ConfigError(*no_strategy(name, settings))
    for tier in tiers:
        if tier not in settings.pool.askable:
            served = ", ".join(settings.pool.askable) or "none"
            raise ConfigError(f"no endpoint serves the tier {tier!r}", f"served are: {served}")
    tiers = tiers or tuple(filter(None, [settings.pool.default_tier, *settings.pool.tiers]))[:1]
    found = [
        Way(strategy=name, tier=tier) for name in strategies for tier in ((NO_TIER,) if name in SCRIPTED else tiers)
    ]
    return tuple(dict.fromkeys(found))


def _models(settings: Settings, tier: str) -> tuple[str, ...]:
    pool = settings.pool
    named = [endpoint.model or endpoint.name for endpoint in pool.endpoints if endpoint.tier == tier]
    if pool.embedded.enabled and pool.embedded.tier == tier:
        named.append("the embedded model")
    return tuple(named)


def _folder_name(plan: Plan) -> Path:
    """A new folder below the current one."""
    when = datetime.fromtimestamp(plan.started, UTC).strftime("%Y%m%d-%H%M%S")
    name = "".join(letter if letter.isalnum() else "-" for letter in plan.set.partition(":")[0])
    return Path("swarm-eval") / f"{name}-{when}"


# A report on the screen.


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
