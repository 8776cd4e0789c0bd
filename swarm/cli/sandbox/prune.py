"""`swarm sandbox prune`: what dead processes left behind, and what of it may go."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Annotated, NamedTuple

import typer

from sandbox.errors import SandboxUnavailableError
from sandbox.factory import BACKENDS, chosen_backend
from sandbox.images.shelf import Kept, shelves_in
from sandbox.reaping import PrunePlan, prune_plan
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.sandbox.given import BackendName, config_of, settings_of
from swarm.config import Settings


class Plan(NamedTuple):
    """By backend what was found, and why a backend could not be asked."""

    found: dict[str, PrunePlan]
    absent: dict[str, str]
    cache: tuple[Kept, ...]
    removed: int


def prune(
    ctx: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove; without it, only show what would go.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show; this is how it is without --yes.")] = False,
    all_owners: Annotated[
        bool, typer.Option("--all-owners", help="Look at what daemons with other state folders left, too.")
    ] = False,
    cache: Annotated[bool, typer.Option("--cache", help="Prepared set-ups and images that are kept, too.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Find sandboxes whose process is gone, and remove them: never a living one, never unsaved work."""
    settings = settings_of(ctx, config)
    plan = door.run(_pruned(settings, remove=yes and not dry_run, all_owners=all_owners, cache=cache))
    if json:
        screen.document(_document(plan))
        return
    _print(plan, remove=yes and not dry_run)


async def _pruned(settings: Settings, *, remove: bool, all_owners: bool, cache: bool) -> Plan:
    found: dict[str, PrunePlan] = {}
    absent: dict[str, str] = {}
    removed = 0
    for name in BACKENDS:
        async with AsyncExitStack() as stack:
            config = config_of(settings, BackendName(name))
            try:
                backend = await stack.enter_async_context(chosen_backend(config, state=settings.daemon.state))
            except SandboxUnavailableError as error:
                absent[name] = str(error)
                continue
            found[name] = prune_plan(await backend.left_behind(), all_owners=all_owners)
            if remove and found[name].removed:
                removed += await backend.sweep(only=[left.name for left in found[name].removed])
    return Plan(found, absent, tuple(_shelved(settings, remove=remove)) if cache else (), removed)


def _shelved(settings: Settings, *, remove: bool) -> Iterable[Kept]:
    shelves = shelves_in(settings.daemon.state, settings.sandbox.images)
    for shelf in (shelves.setups, shelves.images):
        yield from shelf.prune(dry=not remove)


def _document(plan: Plan) -> dict[str, object]:
    return {
        "sandboxes": [
            {"backend": name, "name": one.left.name, "removed": one.removed, "why": one.why, "labels": one.left.labels}
            for name, found in plan.found.items()
            for one in found.judged
        ],
        "not_asked": plan.absent,
        "cache": [{"name": kept.name, "bytes": kept.size} for kept in plan.cache],
        "removed": plan.removed,
    }


def _print(plan: Plan, *, remove: bool) -> None:
    verb = "removed" if remove else "would go"
    rows = [
        (verb if one.removed else "stays", name, one.left.name, _age(one.left.created), one.why)
        for name, found in plan.found.items()
        for one in found.judged
    ]
    rows += [(verb, "cache", kept.name, "", f"{kept.size >> 20} MiB kept for later use") for kept in plan.cache]
    if rows:
        screen.table(("", "where", "what", "age", "why"), rows)
    else:
        screen.say("nothing was left behind")
    for name, why in plan.absent.items():
        screen.hint(f"{name} could not be asked: {why.splitlines()[-1].strip()}")
    if not remove and any(row[0] == verb for row in rows):
        screen.hint("nothing was touched; remove it with: swarm sandbox prune --yes")


def _age(created: float) -> str:
    seconds = max(0.0, time.time() - created)
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
