"""`swarm queue`: the head of the queue, each task's place, when it is likely to be done, and why it waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from swarm.cli import door, screen, view
from swarm.cli.clean import one_line
from swarm.cli.door import ConfigOption, JsonOption
from swarm.scheduling.shown import QueuedView, QueueView

app = typer.Typer()
HEADERS = ("place", "id", "repository", "user", "priority", "waits", "done in", "why it waits")


@app.command()
def queue(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="At most this many.")] = 30,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show what waits, where it stands and why."""
    found = door.ask(door.daemon(ctx, config), lambda client: client.queue(limit))
    if json:
        screen.document(found.model_dump(mode="json"))
        return
    screen.say("\n".join(summary(found)))
    if found.entries:
        screen.table(HEADERS, [row(entry, time.time()) for entry in found.entries])


def summary(found: QueueView) -> Iterator[str]:
    """How full it is, and what holds it back."""
    yield f"{view.many(found.queued, 'task')} in the queue; {found.running} of {found.slots} workers busy"
    yield from (f"  nothing starts here: {one_line(reason, 300)}" for reason in found.holds)
    yield from (f"  {one_line(breaker.reason, 300)}" for breaker in found.breakers if breaker.reason)


def row(entry: QueuedView, now: float) -> tuple[str, ...]:
    """One line of the table, under HEADERS."""
    likely = f"{view.seconds(entry.eta.low)} to {view.seconds(entry.eta.high)}" if entry.eta else "not known yet"
    why = one_line(entry.waits_for, 200) or "its turn"
    waited = view.age(now - entry.queued)
    return str(entry.place), entry.task, entry.repository, entry.user, str(entry.priority), waited, likely, why
