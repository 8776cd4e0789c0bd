"""`swarm salvage`: what attempts left behind, found on disk and in the database, with or without a daemon."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from sandbox.errors import WorkspaceError
from sandbox.trees import handing
from sandbox.trees.handing import Judged
from swarm.cli import door, screen, told, view
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.exits import Code
from swarm.client import START, DaemonClient
from swarm.config import Settings
from swarm.delivery import BrokerClient
from swarm.errors import DaemonError, StoreError, TaskError
from swarm.salvage.entries import Entry, known_only, task_of, with_view
from swarm.salvage.prune import Pruner
from swarm.salvage.pruning import Fate
from swarm.salvage.shelf import Found, Shelf
from swarm.store.store import Store
from swarm.types import TaskState

app = typer.Typer(no_args_is_help=True)
HEADERS = ("id", "ending", "state", "age", "repository", "title")
Wanted = Annotated[str, typer.Argument(metavar="ID", help="An attempt, a reference, a task, or a beginning of one.")]


@app.callback()
def salvage() -> None:
    """What attempts left behind: list it, look into it, take it, go on from it, clear it away."""


@app.command("list")
def list_salvage(
    ctx: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Those of delivered tasks too.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="At most this many.")] = 200,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List what attempts left, the newest first. Read from the disk: no daemon and no database are needed."""
    settings = door.loaded(ctx, config).settings
    found = door.run(_listed(settings, limit, every=every))
    if json:
        screen.document([entry.model_dump(mode="json") for entry in found])
    elif found:
        screen.table(HEADERS, [_row(entry) for entry in found])
        screen.hint("look into one with: swarm salvage show ID")
    else:
        screen.hint("nothing was left behind" + ("" if every else "; --all shows what delivered tasks left too"))


@app.command()
def show(
    ctx: typer.Context,
    wanted: Wanted,
    diff: Annotated[bool, typer.Option("--diff", help="The change, as a unified diff.")] = False,
    transcript: Annotated[bool, typer.Option("--transcript", help="The attempt's whole journal.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show one: of which task, when, how it ended, which files."""
    settings = door.loaded(ctx, config).settings
    found, change = door.run(_shown(settings, wanted, diff=diff))
    if json:
        screen.document(_document(found, change, transcript=transcript))
        return
    screen.say("\n".join(_facts(found)))
    if change:
        screen.say(change.rstrip("\n"))
    if transcript:
        for step in found.steps:
            screen.say(told.told(step))
    elif not diff:
        screen.hint(f"more of it: swarm salvage show {found.entry.id} --diff, or --transcript")


@app.command()
def apply(
    ctx: typer.Context,
    wanted: Wanted,
    to: Annotated[Path, typer.Option("--to", help="The folder to write to, as the top of your checkout.")] = Path(),
    branch: Annotated[
        str | None, typer.Option("--branch", help="Make this branch in the repository there, and touch no file.")
    ] = None,
    markers: Annotated[
        bool, typer.Option("--markers", help="Where both sides changed a text, write both, with marks between.")
    ] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Take the work into a checkout of yours: all of it, byte for byte, or nothing where something is in the way."""
    settings = door.loaded(ctx, config).settings
    if branch is not None:
        commit, entry = door.run(_branched(settings, wanted, to, branch))
        if json:
            screen.document({"id": entry.id, "branch": branch, "commit": commit})
        else:
            screen.say(f"branch {branch} holds the work of {entry.id} as {commit[:12]}")
        return
    entry, work, count = door.run(_applied(settings, wanted, to, markers=markers))
    conflicts = [each for each in work if each.verdict == "conflict"]
    if json:
        screen.document({"id": entry.id, "written": count, "files": [_file(each) for each in work]})
    else:
        for each in work:
            screen.say(f"{each.verdict:<9} {each.name}" + (f"  ({each.why})" if each.why else ""))
    if conflicts and not count:
        mend = f"mend these, add --markers, or take it as a branch: swarm salvage apply {entry.id} --branch NAME"
        raise TaskError(f"nothing was written: {len(conflicts)} of {len(work)} files are in conflict", mend)
    if not json:
        screen.hint(f"{view.many(count, 'file')} written to {to.absolute()}")
    if conflicts:
        raise typer.Exit(Code.TASK)


@app.command()
def resume(ctx: typer.Context, wanted: Wanted, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Queue the task again, to go on from exactly this work and with all that its agent knew."""
    settings = door.loaded(ctx, config).settings
    entry = door.run(_one(settings, wanted))
    if entry.kind == "left":
        mend = f"take it into a checkout: swarm salvage apply {entry.id} --branch NAME"
        raise TaskError(
            f"{entry.id} was found beside the work of {entry.attempt}, and no attempt goes on from it", mend
        )
    task = door.ask(door.daemon(ctx, config), lambda client: client.resume(entry.task, entry.attempt))
    if json:
        screen.document(task.model_dump(mode="json"))
    else:
        screen.say("\n".join(view.summary(task)))


@app.command()
def prune(
    ctx: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only told what would go.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Clear away what the forge shows as merged or the settings let expire ([salvage]); nothing else, ever."""
    settings = door.loaded(ctx, config).settings
    fates, gone, unasked = door.run(_pruned(settings, yes=yes))
    if json:
        screen.document([_fate(fate, gone) for fate in fates])
        return
    for fate in fates:
        word = "gone" if fate.entry.ref in gone else "would go" if fate.goes and not yes else "stays"
        why = fate.why if fate.entry.ref in gone or not (yes and fate.goes) else "something has happened to it since"
        screen.say(f"{word:<9} {fate.entry.id:<28} {view.amount(fate.size):>6} bytes  {why}")
    if unasked:
        screen.hint(f"what is merged could not be asked of the broker for all: {unasked}")
    going = sum(1 for fate in fates if fate.goes)
    if yes:
        screen.hint(f"{len(gone)} of {len(fates)} are gone")
    else:
        screen.hint(f"{going} of {len(fates)} would go; nothing was changed. Do it with: swarm salvage prune --yes")


@asynccontextmanager
async def opened(settings: Settings, *, needed: bool = False) -> AsyncIterator[tuple[Shelf, Store | None]]:
    """The shelf over the state folder, and the database where it can be read; StoreError where it is ``needed``."""
    folder = settings.daemon.state / "git"
    async with AsyncExitStack() as stack:
        store = None
        try:
            store = await stack.enter_async_context(
                await asyncio.to_thread(lambda: Store(settings.daemon.where(), reading=True))
            )
        except StoreError as error:
            if needed:
                raise
            screen.hint(f"without the database, from the git folders alone: {error}")
        yield Shelf(folder, store), store


def readable(settings: Settings) -> bool:
    """Whether this user may look into the daemon's state folder."""
    return os.access(settings.daemon.state, os.R_OK | os.X_OK)


def require_readable(settings: Settings) -> None:
    """Raises DaemonError where this user may not look into the daemon's state folder, or there is none."""
    if not readable(settings):
        state = settings.daemon.state
        if _is_missing(state):
            raise DaemonError(f"the state folder {state} does not exist: no daemon ran here yet", START)
        raise DaemonError(f"the state folder {state} cannot be read", f"run it as the user whose it is: ls -ld {state}")


def _is_missing(folder: Path) -> bool:
    """Whether it is known that it is not there; one that may not be looked for may be there."""
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


async def _listed(settings: Settings, limit: int, *, every: bool) -> Sequence[Entry]:
    if not readable(settings):
        return await _asked(settings, limit, every=every)
    async with opened(settings) as (shelf, _):
        entries = await shelf.entries()
        found: list[Entry] = []
        for entry in entries:
            found += [one for one in await shelf.told([entry]) if every or one.state != TaskState.DELIVERED]
            if len(found) >= limit:
                break
        return found


async def _asked(settings: Settings, limit: int, *, every: bool) -> Sequence[Entry]:
    """What the daemon knows of, for users who may not look into its folder."""
    async with DaemonClient(settings.daemon.socket) as client:
        tasks = await client.tasks(None, min(limit, 1000))
    views = {task.task.id: task for task in tasks if every or task.state is not TaskState.DELIVERED}
    return [with_view(entry, views[entry.task]) for entry in known_only(views.values(), ())]


async def _one(settings: Settings, wanted: str) -> Entry:
    """The entry that is meant. Who may not look into the daemon's folder names an attempt in full."""
    if not readable(settings):
        task, number = task_of(wanted)
        if not number:
            require_readable(settings)
        where = {"repository": "", "ref": f"refs/salvage/{wanted}", "at": 0.0}
        return Entry.model_validate({"id": wanted, "kind": "attempt", "attempt": wanted, "task": task, **where})
    async with opened(settings) as (shelf, _):
        return await shelf.one(wanted)


async def _shown(settings: Settings, wanted: str, *, diff: bool) -> tuple[Found, str]:
    require_readable(settings)
    async with opened(settings) as (shelf, _):
        found = await shelf.found(wanted)
        change = ""
        if diff and found.sealed is not None:
            change = await shelf.workspace(found.entry.repository).diff(found.sealed.base, found.sealed.tree)
        return found, change


async def _applied(
    settings: Settings, wanted: str, to: Path, *, markers: bool
) -> tuple[Entry, tuple[Judged, ...], int]:
    require_readable(settings)
    async with opened(settings) as (shelf, _):
        found = await shelf.found(wanted)
        if found.sealed is None:
            raise TaskError(
                f"{found.entry.id} left no work that is on this host", "see what it left: swarm salvage show"
            )
        changes = await shelf.changes(found.sealed, found.entry.repository)
    with _into("name with --to a folder that is there and that you may write, the top of your checkout"):
        work = await handing.judged(to, changes)
    stuck = [each for each in work if each.verdict == "conflict"]
    if stuck and not markers:
        return found.entry, work, 0
    with _into("set right what is named; nothing was changed"):
        return found.entry, work, await asyncio.to_thread(handing.written, to, handing.marked(work))


async def _branched(settings: Settings, wanted: str, to: Path, branch: str) -> tuple[str, Entry]:
    require_readable(settings)
    async with opened(settings) as (shelf, _):
        found = await shelf.found(wanted)
    if found.sealed is None:
        raise TaskError(f"{found.entry.id} left no work that is on this host", "see what it left: swarm salvage show")
    words = f"{found.entry.title or found.entry.task}\n\nWork of attempt {found.entry.attempt}, not reviewed.\n"
    with _into("name another branch with --branch, and with --to a repository of yours that has the base"):
        return await handing.branched(to, branch, found.sealed, words), found.entry


@contextmanager
def _into(mend: str) -> Iterator[None]:
    """What a person's own folder or repository does not take, as TaskError: no sandbox has a part in it."""
    try:
        yield
    except WorkspaceError as error:
        raise TaskError(str(error), mend) from None


async def _pruned(settings: Settings, *, yes: bool) -> tuple[tuple[Fate, ...], set[str], str]:
    require_readable(settings)
    async with opened(settings, needed=True) as (shelf, store), BrokerClient(settings.broker.socket, patience=2) as ask:
        assert store is not None  # noqa: S101 - it is needed; this tells mypy
        async with AsyncExitStack() as stack:
            writer = None
            if yes and store.shared:
                writer = await stack.enter_async_context(await asyncio.to_thread(Store, settings.daemon.where()))
            pruner = Pruner(shelf, store, ask.merged, writer)
            listed = (*await shelf.entries(), *await shelf.beginnings())
            mine = [each for each in listed if each.place != "elsewhere"]
            fates = await pruner.plan(settings.salvage, mine)
            gone = {fate.entry.ref for fate in fates if yes and fate.goes and await pruner.go(fate)}
            return fates, gone, pruner.unasked


def _row(entry: Entry) -> tuple[str, ...]:
    where = "" if entry.place == "here" else f" ({entry.place})"
    name = entry.id if entry.kind == "attempt" else f"{entry.id} (beside {entry.attempt})"
    age = view.age(time.time() - entry.at)
    return f"{name}{where}", entry.ending, entry.state, age, entry.repository, entry.title


def _facts(found: Found) -> list[str]:
    entry, sealed = found.entry, found.sealed
    facts = {
        "task": entry.task + (f", {entry.state}" if entry.state else ""),
        "attempt": entry.attempt + (f", {entry.ending}" if entry.ending else ""),
        "title": entry.title,
        "kept": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at)),
        "repository": entry.repository,
        "ref": entry.ref,
        "base": sealed.base if sealed else entry.base,
        "tree": entry.tree or "none: only the transcript was left",
        "transcript": f"{view.many(len(found.steps), 'line')}" if found.steps else "none",
        "detail": found.about.detail if found.about else "",
    }
    lines = [f"  {name:<13}{value}" for name, value in facts.items() if value]
    lines += [f"  changed      {name}" for name in (sealed.files if sealed else ())]
    return [entry.id, *lines, *(f"  left out     {note}" for note in (sealed.left_out if sealed else ()))]


def _document(found: Found, change: str, *, transcript: bool) -> dict[str, Any]:
    sealed = found.sealed
    document = found.entry.model_dump(mode="json")
    document |= {"files": list(sealed.files), "left_out": list(sealed.left_out)} if sealed else {}
    document |= {"diff": change} if change else {}
    lines = [step.model_dump(mode="json") for step in found.steps] if transcript else len(found.steps)
    return document | {"transcript": lines}


def _file(each: Judged) -> dict[str, str]:
    return {"path": each.name, "verdict": each.verdict, "why": each.why}


def _fate(fate: Fate, gone: set[str]) -> dict[str, Any]:
    entry = fate.entry
    facts = {"id": entry.id, "ref": entry.ref, "task": entry.task, "bytes": fate.size, "why": fate.why}
    return facts | {"goes": fate.goes, "gone": entry.ref in gone}
