"""Whether a task can be taken on, and how it will be worked on: decided from the settings before anything is stored."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

from swarm.config import Settings, no_strategy
from swarm.config_text import nearest
from swarm.errors import TaskError
from swarm.store.rows import Plan
from swarm.types import Budget, TaskRequest


def plan(request: TaskRequest, settings: Settings, repositories: Collection[str]) -> Plan:
    """How a request will be worked on. ``repositories`` are the names that the broker told, as far as it was asked.

    Raises TaskError for what could only fail later: an unknown repository, strategy or tier, no test command, no
    capability, a path that leads out of the repository, more of a budget than the operator allows.
    """
    known = sorted({*settings.repositories, *repositories})
    if request.repository not in known:
        raise TaskError(f'there is no repository "{request.repository}"', _like(request.repository, known))
    operator = settings.repositories.get(request.repository)
    if not request.capability:
        mend = "submit with swarm submit, which asks the broker for one, or pass what swarm-broker grant prints"
        raise TaskError("the task carries no capability, so nothing of it could ever be delivered", mend)
    if not (request.test_command or (operator and operator.test_command)):
        mend = (
            f"name one with --test-command, or set repositories.{request.repository}.test_command in swarm.toml; "
            "swarm repository examine DIR finds it out"
        )
        raise TaskError(
            f'no test command is known for "{request.repository}", so nothing could vouch for a change', mend
        )
    if not settings.knows(request.strategy):
        raise TaskError(*no_strategy(request.strategy, settings))
    for path in request.paths:
        _inside(path)
    named = request.strategy if request.strategy != "auto" else None
    return Plan(
        budget=granted(request, settings),
        tier=_tier(request.tier or (operator.tier if operator else None), settings),
        strategy=named or (operator.strategy if operator else None) or "auto",
        expires=request.expires or settings.scheduling.expires,
    )


def granted(request: TaskRequest, settings: Settings) -> Budget:
    """What a request may spend: what it says, and for all that it leaves out what ``[limits]`` says.

    What the operator wrote there is the most that a task may name, unless ``scheduling.beyond_limits`` is set; a
    further task on a pull request gets what is left of the first one's, within that. Raises TaskError for more.
    """
    limits, asked = settings.limits, request.budget
    said = {name: getattr(asked, name) for name in asked.model_fields_set} if asked else {}
    bounds = (
        {} if settings.scheduling.beyond_limits else {name: getattr(limits, name) for name in limits.model_fields_set}
    )
    for name, most in bounds.items():
        if name not in said or most is None or (said[name] is not None and said[name] <= most):
            continue
        if request.follows is None:
            named = "no limit" if said[name] is None else f"{said[name]:g}"
            mend = f"ask for less, or have the operator raise limits.{name} or set scheduling.beyond_limits"
            raise TaskError(f"the budget names {named} as {name}, and a task may have {most:g} here", mend)
        said[name] = most
    return limits.model_copy(update=said)


def _tier(named: str | None, settings: Settings) -> str:
    tiers, askable = settings.pool.tiers, settings.pool.askable
    wanted = named or settings.pool.default_tier or (tiers[0] if tiers else "")
    if wanted not in askable:
        raise TaskError(f'no endpoint serves the tier "{wanted}"', _like(wanted, askable))
    return wanted


def ladder(settings: Settings) -> tuple[str, ...]:
    """The tiers that attempts climb, from the weakest up. `auto` and virtual models are none: they climb by themselves,
    within one attempt."""
    return settings.pool.ladder


def _inside(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise TaskError(f"the path {path!r} is not inside the repository", "give it relative to the repository's root")


def _like(wrong: str, known: Collection[str]) -> str:
    like = nearest(wrong, tuple(known))
    return f'did you mean "{like}"?' if like else f"known are: {', '.join(known) or 'none'}"
