"""Watching a task until it ends, whatever it is shown on; `follow` and `submit --wait` share it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import typer

from swarm.cli import door, screen
from swarm.cli.exits import Code, of_state
from swarm.cli.live import Json, Live, Plain, Show
from swarm.client import DaemonClient
from swarm.types import TaskView

PERIOD = 1.0  # seconds between two looks at what is spent; steps arrive at once


def show(*, as_json: bool) -> Show:
    """What suits who looks at standard output."""
    if as_json:
        return Json()
    return Live() if door.interactive() else Plain()


def until_end(client: DaemonClient, task: str, on: Show) -> Code:
    """Follow a task to its end and give its exit code; Ctrl-C leaves the task running and says so.

    Opens and closes the client. Raises DaemonError when the daemon goes away, TaskNotFoundError for an unknown id.
    """
    try:
        with on:
            view = door.run(_follow(client, task, on))
            on.end(view)
    except KeyboardInterrupt:
        screen.hint(f"\nno longer watching; task {task} goes on")
        screen.hint(f"  watch again: swarm follow {task}\n  stop it:     swarm cancel {task}")
        raise typer.Exit(Code.INTERRUPTED) from None
    return of_state(view.state)


async def _follow(client: DaemonClient, task: str, on: Show) -> TaskView:
    async with client:
        first = await client.task(task)
        on.state(first)
        looking = asyncio.create_task(_look(client, first.task.id, on, asyncio.current_task()))
        try:
            async with aclosing(client.follow(first.task.id)) as steps:
                async for step in steps:
                    on.step(step)
        finally:
            looking.cancel()
            await asyncio.wait({looking}, timeout=PERIOD)
            if looking.done() and not looking.cancelled():
                looking.exception()  # a daemon that is away is told by whoever reads the steps
        return await client.task(first.task.id)


async def _look(client: DaemonClient, task: str, on: Show, watcher: asyncio.Task[TaskView] | None) -> None:
    """Show how the task stands, over and over; a daemon that is away is the business of whoever reads the steps."""
    while True:
        await asyncio.sleep(PERIOD)
        if watcher is not None and watcher.cancelling():
            # Seen under load: a library on the way keeps a Ctrl-C to itself. Asked once more, not counted twice.
            watcher.uncancel()
            watcher.cancel()
        on.state(await client.task(task))
