"""Turns what a person asks for, by file and by options, into the request that the daemon is sent: pure."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from swarm.cli.task_file import BudgetPart, TaskFile, bad_path
from swarm.config import Settings, no_strategy
from swarm.config_text import nearest
from swarm.errors import TaskError
from swarm.types import Budget, TaskRequest


def merge(file: TaskFile, given: Mapping[str, Any], limits: Mapping[str, Any]) -> TaskFile:
    """What the file says, with what the command line says put over it."""
    over = {name: value for name, value in given.items() if value not in (None, ())}
    budget = {name: value for name, value in limits.items() if value is not None}
    return file.model_copy(update=over | {"budget": file.budget.model_copy(update=budget)})


def ready(wanted: TaskFile, settings: Settings, key: str | None) -> TaskRequest:
    """The request, still without a capability. Raises TaskError for what cannot be meant."""
    if not (wanted.instructions or "").strip():
        raise TaskError("the task has no instructions", 'say what to do: swarm submit --repo NAME "..." or --file PATH')
    for hint in wanted.paths:
        if why := bad_path(hint):
            raise TaskError(f"--path {hint!r} {why}", "name a file or folder as the repository has it: src/clamp.py")
    if wanted.base is not None and (not wanted.base.isprintable() or not 0 < len(wanted.base) <= 200):
        raise TaskError(f"the base {wanted.base[:60]!r} is no branch's name", "name a branch of the repository: main")
    repository = wanted.repository or _only(settings)
    served = settings.pool.askable
    if wanted.tier and wanted.tier not in served:
        like = nearest(wanted.tier, served)
        raise TaskError(
            f'no endpoint serves the tier "{wanted.tier}"',
            f"did you mean {like}?" if like else f"served are: {', '.join(served)}",
        )
    if wanted.strategy is not None and not settings.knows(wanted.strategy):
        raise TaskError(*no_strategy(wanted.strategy, settings))
    known = settings.repositories.get(repository)
    try:
        return TaskRequest(
            repository=repository,
            instructions=wanted.instructions,
            base=wanted.base or (known.base if known else None),
            test_command=wanted.test_command,
            strategy=wanted.strategy or (known.strategy if known else None) or "auto",
            tier=wanted.tier,
            budget=_budget(wanted.budget),
            paths=wanted.paths,
            changes_tests=wanted.changes_tests,
            title=wanted.title,
            idempotency_key=key,
            priority=wanted.priority,
            needs=wanted.needs,
            mutex=wanted.mutex,
            requires=wanted.requires,
            expires=wanted.expires,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise TaskError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", "see: swarm submit --help") from None


def task_for(key: str | None) -> str:
    """An id for a new task; the same one for the same idempotency key, so that a repeated call asks for the same."""
    return f"k{hashlib.sha256(key.encode()).hexdigest()[:11]}" if key else f"t{secrets.token_hex(4)}"


def _budget(part: BudgetPart) -> Budget | None:
    """What is said of it; the daemon knows the rest."""
    said = part.model_dump(exclude_none=True)
    return Budget.model_validate(said) if said else None


def _only(settings: Settings) -> str:
    names = tuple(settings.repositories)
    if len(names) == 1:
        return names[0]
    known = f"the settings know: {', '.join(names)}" if names else "the broker's broker.toml has their names"
    raise TaskError("no repository is named", f"name one with --repo NAME; {known}")
