"""`swarm sandbox prune`: what dead processes left behind, and what of it may go."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from sandbox.errors import SandboxUnavailableError
from sandbox.factory import BACKENDS, chosen_backend
from sandbox.images.shelf import Kept, shelves_in
from sandbox.reaping import Judged, PrunePlan, prune_plan
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code
from swarm.cli.sandbox.copies import left_copies, removed
from swarm.cli.sandbox.ending import in_order
from swarm.cli.sandbox.given import BackendName, config_of, own_state, settings_of
from swarm.config import Settings


class Plan(NamedTuple):
    """By backend what was found, and why a backend could not be asked; ``gone`` are names of what was removed.

    ``copies`` are folders that dead shells left, and what became of each.
    """

    found: dict[str, PrunePlan]
    absent: dict[str, str]
    cache: tuple[Kept, ...] = ()
    gone: frozenset[str] = frozenset()
    dry: bool = True
    copies: tuple[tuple[Path, str], ...] = ()

    def verdict(self, one: Judged) -> str:
        """What became of a sandbox, or would."""
        if not one.removed:
            return "stays"
        if self.dry:
            return "would go"
        return "removed" if one.left.name in self.gone else "not gone"

    @property
    def code(self) -> Code:
        """A fault where no backend could be asked, or something did not go."""
        verdicts = {self.verdict(one) for found in self.found.values() for one in found.judged}
        verdicts |= {verdict for _, verdict in self.copies}
        return Code.FAULT if "not gone" in verdicts or not self.found else Code.OK


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
    """Find sandboxes whose process is gone, and remove them: never a living one, never unsaved work.

    Exit code 1 when no backend could be asked, or something did not go.
    """
    settings = settings_of(ctx, config)
    plan = door.run(in_order(_pruned(settings, dry=dry_run or not yes, all_owners=all_owners, cache=cache)))
    if json:
        screen.document(_document(plan))
    else:
        _print(plan)
    raise typer.Exit(plan.code)


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
                absent[name] = reason(name, error)
                continue
            found[name] = prune_plan(await backend.left_behind(), all_owners=all_owners)
            going = {left.name for left in found[name].removed}
            if going and not dry:
                await backend.sweep(only=going)
                gone |= going - {left.name for left in await backend.left_behind()}
    kept = tuple(_shelved(settings, dry=dry)) if cache else ()
    return Plan(found, absent, kept, frozenset(gone), dry, tuple(_copies(settings, dry=dry)))


def reason(name: str, error: SandboxUnavailableError) -> str:
    """Why a backend cannot be asked, on one line, without what the line begins with already."""
    lines = [line.strip() for line in str(error).splitlines()]
    first = next((place for place, line in enumerate(lines) if line.startswith(f"{name}: ")), 0)
    text = " ".join(line for line in lines[first:] if line)
    while text.startswith(f"{name}: "):
        text = text.removeprefix(f"{name}: ")
    return text


def _copies(settings: Settings, *, dry: bool) -> Iterable[tuple[Path, str]]:
    for state in {settings.daemon.state, own_state(settings)}:
        for place in left_copies(state):
            yield place, "would go" if dry else "removed" if removed(place) else "not gone"


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
        "copies": [{"name": str(place), "removed": verdict == "removed"} for place, verdict in plan.copies],
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
    rows += [(told, "shell", str(place), "", "the copy of a shell that is gone") for place, told in plan.copies]
    if rows:
        screen.table(("", "where", "what", "age", "why"), rows)
    elif plan.found:
        screen.say("nothing was left behind" + (" where it could be asked" if plan.absent else ""))
    if not plan.found:
        screen.hint("no backend could be asked, so what sandboxes were left behind is not known")
    for name, why in plan.absent.items():
        screen.hint(f"{name} could not be asked: {why}")
    if any(row[0] == "would go" for row in rows):
        screen.hint("nothing was touched; to remove these, say the same with --yes")
    if any(row[0] == "not gone" for row in rows):
        screen.hint("what is not gone was kept by its backend: look at it as root, or as the daemon's user")


def _age(created: float) -> str:
    seconds = max(0.0, time.time() - created)
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
