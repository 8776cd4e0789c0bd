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
from sandbox.reaping import Judged, PrunePlan, prune_plan
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code
from swarm.cli.sandbox.given import BackendName, config_of, settings_of
from swarm.config import Settings


class Plan(NamedTuple):
    """By backend what was found, and why a backend could not be asked; ``gone`` are names of what was removed."""

    found: dict[str, PrunePlan]
    absent: dict[str, str]
    cache: tuple[Kept, ...] = ()
    gone: frozenset[str] = frozenset()
    dry: bool = True

    def verdict(self, one: Judged) -> str:
        """What became of a sandbox, or would."""
        if not one.removed:
            return "stays"
        if self.dry:
            return "would go"
        return "removed" if one.left.name in self.gone else "not gone"


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
    plan = door.run(_pruned(settings, dry=dry_run or not yes, all_owners=all_owners, cache=cache))
    if json:
        screen.document(_document(plan))
    else:
        _print(plan)
    verdicts = {plan.verdict(one) for found in plan.found.values() for one in found.judged}
    raise typer.Exit(Code.FAULT if "not gone" in verdicts else Code.OK)


async def _pruned(settings: Settings, *, dry: bool, all_owners: bool, cache: bool) -> Plan:
    found: dict[str, PrunePlan] = {}
    absent: dict[str, str] = {}
    gone: set[str] = set()
    for name in BACKENDS:
        async with AsyncExitStack() as stack:
            config = config_of(settings, BackendName(name))
            try:
                backend = await stack.enter_async_context(chosen_backend(config, state=settings.daemon.state))
            except SandboxUnavailableError as error:
                absent[name] = str(error).splitlines()[-1].strip().removeprefix(f"{name}: ")
                continue
            found[name] = prune_plan(await backend.left_behind(), all_owners=all_owners)
            going = {left.name for left in found[name].removed}
            if going and not dry:
                await backend.sweep(only=going)
                gone |= going - {left.name for left in await backend.left_behind()}
    kept = tuple(_shelved(settings, dry=dry)) if cache else ()
    return Plan(found, absent, kept, frozenset(gone), dry)


def _shelved(settings: Settings, *, dry: bool) -> Iterable[Kept]:
    shelves = shelves_in(settings.daemon.state, settings.sandbox.images)
    for shelf in (shelves.setups, shelves.images):
        yield from shelf.prune(dry=dry)


def _document(plan: Plan) -> dict[str, object]:
    judged = [(name, one) for name, found in plan.found.items() for one in found.judged]
    sandboxes = [
        {
            "backend": name,
            "name": one.left.name,
            "removable": one.removed,
            "removed": one.left.name in plan.gone,
            "why": one.why,
            "labels": one.left.labels,
        }
        for name, one in judged
    ]
    cache = [{"name": kept.name, "bytes": kept.size, "removed": not plan.dry} for kept in plan.cache]
    return {
        "dry_run": plan.dry,
        "sandboxes": sandboxes,
        "cache": cache,
        "not_asked": plan.absent,
        "removed": len(plan.gone),
    }


def _print(plan: Plan) -> None:
    rows = [
        (plan.verdict(one), name, one.left.name, _age(one.left.created), one.why)
        for name, found in plan.found.items()
        for one in found.judged
    ]
    verb = "would go" if plan.dry else "removed"
    rows += [(verb, "cache", kept.name, "", f"{kept.size >> 20} MiB kept for later use") for kept in plan.cache]
    if rows:
        screen.table(("", "where", "what", "age", "why"), rows)
    elif plan.found:
        screen.say("nothing was left behind")
    for name, why in plan.absent.items():
        screen.hint(f"{name} could not be asked: {why}")
    if any(row[0] == "would go" for row in rows):
        screen.hint("nothing was touched; to remove these, say the same with --yes")
    if any(row[0] == "not gone" for row in rows):
        screen.hint("what is not gone was kept by its backend: look at it as root, or as the daemon's user")


def _age(created: float) -> str:
    seconds = max(0.0, time.time() - created)
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
