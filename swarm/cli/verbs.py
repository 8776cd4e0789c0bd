"""What a person does to a task under way: pause, resume, retry, fork, and a word to its agent."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from swarm.cli import door, screen, view
from swarm.cli.door import ConfigOption, JsonOption, TaskArgument
from swarm.cli.rights import granted, read_capability
from swarm.client import DaemonClient
from swarm.config import Settings
from swarm.config_text import meant
from swarm.errors import TaskError
from swarm.types import ForkRequest, TaskView

app = typer.Typer()

CapabilityOption = Annotated[
    str | None,
    typer.Option(help="Granted before; @FILE reads it, and stays off the list of processes.", show_default=False),
]


@app.command()
def pause(ctx: typer.Context, task: TaskArgument, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Stop working on a task for now; its work is kept, and its place goes to others. Resume goes on with it."""
    _answer(door.ask(door.daemon(ctx, config), lambda client: client.pause(task)), json=json)


@app.command()
def priority(
    ctx: typer.Context,
    task: TaskArgument,
    number: Annotated[int, typer.Argument(min=0, max=100, help="Larger is sooner; a point is worth a minute.")],
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Give a task that waits in the queue another priority, and with it another place."""
    _answer(door.ask(door.daemon(ctx, config), lambda client: client.prioritise(task, number)), json=json)


@app.command()
def resume(ctx: typer.Context, task: TaskArgument, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Go on with a paused task where it stood."""
    _answer(door.ask(door.daemon(ctx, config), lambda client: client.resume(task)), json=json)


@app.command()
def retry(
    ctx: typer.Context,
    task: TaskArgument,
    renew: Annotated[
        bool, typer.Option("--renew", help="Ask the broker for a new right first, where the old one ran out.")
    ] = False,
    capability: CapabilityOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Put a task that ended badly back into the queue, its budget granted once more."""
    if renew and capability:
        raise TaskError("--renew and --capability are two ways to a right", "name one of them")
    settings = door.loaded(ctx, config).settings

    async def again(client: DaemonClient) -> TaskView:
        right = read_capability(capability)
        if renew:
            request = (known := await client.task(task)).task.request
            right = (await granted(settings, request.repository, request.base, known.task.id)).capability
        return await client.retry(task, right)

    _answer(door.ask(DaemonClient(settings.daemon.socket), again), json=json)


@app.command()
def fork(
    ctx: typer.Context,
    task: TaskArgument,
    instructions: Annotated[str | None, door.words("Said to the agent when it goes on")] = None,
    attempt: Annotated[
        str | None, typer.Option(help="Whose work is gone on with; default: the last with any.", show_default=False)
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="The last line of the journal that it knows of.", show_default=False)
    ] = None,
    tier: Annotated[str | None, typer.Option(help="Tier of models to start with.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the pull request.")] = None,
    capability: CapabilityOption = None,
    task_id: Annotated[str | None, typer.Option(help="The task that --capability was granted for.")] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """A new task that goes on from where another stood, with all that it had done paid already.

    The broker is asked, as you, for the right to propose its result.
    """
    if (capability is None) != (task_id is None):
        raise TaskError("--capability and --task-id belong together", "swarm-broker grant prints both")
    settings = door.loaded(ctx, config).settings

    async def forked(client: DaemonClient) -> TaskView:
        new, right = await _right(client, settings, task, task_id, capability)
        wanted: dict[str, object] = {"task": new, "capability": right}
        wanted |= {"attempt": attempt, "step": step, "instructions": instructions, "tier": tier, "title": title}
        said = meant(ForkRequest, wanted, "see: swarm fork --help")
        return await client.fork(task, said)

    _answer(door.ask(DaemonClient(settings.daemon.socket), forked), json=json)


@app.command()
def message(
    ctx: typer.Context,
    task: TaskArgument,
    text: Annotated[str, door.words("What to tell it")],
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Tell the agent that works on a task something; it hears it at its next turn."""
    key = secrets.token_hex(8)  # so that a lost answer does not say it twice
    told = door.ask(door.daemon(ctx, config), lambda client: client.message(task, text, key))
    if json:
        screen.document(told.model_dump(mode="json"))
    else:
        screen.say(f"message {told.seq} is left for task {told.task}" + (f": {told.when}" if told.when else ""))


async def _right(
    client: DaemonClient, settings: Settings, task: str, new: str | None, capability: str | None
) -> tuple[str, str]:
    """The new task's id, and the right to it: brought along, or asked of the broker now."""
    if new is not None and capability is not None:
        return new, read_capability(capability) or ""
    request = (await client.task(task)).task.request
    fresh = f"t{secrets.token_hex(4)}"
    return fresh, (await granted(settings, request.repository, request.base, fresh)).capability


def _answer(task: TaskView, *, json: bool) -> None:
    if json:
        screen.document(task.model_dump(mode="json"))
    else:
        screen.say("\n".join(view.summary(task)))
