"""What `swarm eval` is told, the set, ways, bounds and settings, into a plan: all that is wrong is said before it runs.

What a run that is gone on with was begun with stands in for what is not said.
"""

from __future__ import annotations

import importlib.metadata
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from pool.config import EmbeddedConfig, PoolConfig
from swarm.cli import door
from swarm.cli.sandbox.given import settings_of
from swarm.config import Settings, no_strategy
from swarm.errors import ConfigError, EvaluationError
from swarm.evaluation.case import Case, CaseSet
from swarm.evaluation.plan import NO_TIER, Plan, Way
from swarm.evaluation.reference import SCRIPTED
from swarm.evaluation.report import planned
from swarm.evaluation.results import Folder
from swarm.evaluation.sets.catalogue import set_named
from swarm.evaluation.sets.given import Given


@dataclass(frozen=True)
class Intent:
    """What is to be done, with which settings, and the cases of the plan, by id."""

    settings: Settings
    plan: Plan
    cases: Mapping[str, Case]


def intended(ctx: typer.Context, asked: Mapping[str, Any], config: Path | None) -> Intent:
    """What the options ask for. Raises ConfigError and EvaluationError."""
    began = planned(Folder(asked["resume"])) if asked["resume"] else None
    chosen = set_named(_set(asked, began), _given(asked, began))
    read = _read(ctx, config, asked, began)
    cases = _cases(chosen, asked, began)
    return Intent(read[0], _plan(read, chosen, cases, asked, began), cases)


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


def _read(ctx: typer.Context, given: Path | None, asked: Mapping[str, Any], began: Plan | None) -> tuple[Settings, str]:
    """The settings, and the path of their file, empty where it is none's. Raises ConfigError."""
    named = given or ctx.find_root().obj or _remembered(began)
    embedded = asked["embedded"] or (began is not None and began.embedded)
    strategies = _strategies(asked, began)
    served = not embedded and not all(name in SCRIPTED for name in strategies)
    known = door.perhaps(ctx, named) if served else None
    _require(strategies, known or Settings())  # a name that nobody knows is told before a file that is not there
    if served:
        loaded = door.loaded(ctx, named)
        return loaded.settings, str(loaded.path.absolute())
    settings = settings_of(ctx, named)
    if embedded:
        settings = settings.model_copy(update={"pool": PoolConfig(embedded=EmbeddedConfig(enabled=True))})
    return settings, str(named.absolute()) if named else ""


def _remembered(began: Plan | None) -> Path | None:
    """The settings' file that a run was begun with. Raises ConfigError where it is not there any more."""
    if began is None or not began.config:
        return None
    if not Path(began.config).exists():
        raise ConfigError(f"{began.config}, the settings that the run was begun with, is not there", "name it with -c")
    return Path(began.config)


def _strategies(asked: Mapping[str, Any], began: Plan | None) -> list[str]:
    before = list(dict.fromkeys(way.strategy for way in began.ways)) if began else ["auto"]
    return asked["strategy"] or before


def _require(strategies: Iterable[str], settings: Settings) -> None:
    """Raises ConfigError for a strategy that there is not."""
    for name in strategies:
        if name not in SCRIPTED and not settings.knows(name):
            raise ConfigError(*no_strategy(name, settings, SCRIPTED))


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
                f"the set {chosen.name} has no case {missing[0]!r}",
                f"see which it has: swarm eval sets {_set(asked, began)}",
            )
        found = dict(islice(((case, found[case]) for case in wanted), limit))
    if not found:
        raise EvaluationError(f"the set {chosen.name} holds no case", "name another set, or another folder of it")
    return found


def _plan(
    read: tuple[Settings, str],
    chosen: CaseSet,
    cases: Mapping[str, Case],
    asked: Mapping[str, Any],
    began: Plan | None,
) -> Plan:
    settings, config = read
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
        config=config,
        started=time.time(),
    )


def _ways(settings: Settings, asked: Mapping[str, Any], began: Plan | None) -> tuple[Way, ...]:
    if began is not None and not asked["strategy"] and not asked["tier"]:
        return began.ways
    strategies = _strategies(asked, began)
    tiers: Sequence[str] = asked["tier"] or ()
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
