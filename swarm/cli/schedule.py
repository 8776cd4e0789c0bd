"""`swarm schedule`: tasks made again and again, under a right to so many that the broker grants to the person."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import typer

from swarm.cli import door, screen, view
from swarm.cli.clean import one_line
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.request import ready
from swarm.cli.rights import granted_for_later
from swarm.cli.submit import read_task
from swarm.client import DaemonClient
from swarm.config import Settings
from swarm.config_text import meant
from swarm.delivery import StandingRight
from swarm.errors import TaskError
from swarm.scheduling.cron import upcoming
from swarm.scheduling.shown import SAME_RIGHT, ScheduleRequest, ScheduleRight, ScheduleView

app = typer.Typer(no_args_is_help=True, help="Have tasks made again and again.")
HEADERS = ("name", "state", "next run", "cron", "repository", "made", "last", "remark")
DAY = 86400.0
Name = Annotated[str, typer.Argument(help="The schedule's name.", metavar="NAME")]
Tasks = Annotated[int, typer.Option(min=1, max=100, help="Tasks that the right is asked for.")]
Days = Annotated[float, typer.Option(min=0.01, max=90, help="Days that the right is asked for.")]


@app.command()
def add(
    ctx: typer.Context,
    name: Name,
    cron: Annotated[str, typer.Option(help='Minute, hour, day of month, month, day of week, as "30 6 * * 1-5".')],
    instructions: Annotated[str | None, door.words("What to do, in plain words")] = None,
    repo: Annotated[str | None, typer.Option("--repo", "-r", help="The broker's name of the repository.")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="A task file, see: swarm help task-files.")] = None,
    timezone: Annotated[str, typer.Option(help="Whose clock it runs by, as Europe/Berlin.")] = "UTC",
    overlap: Annotated[
        Literal["skip", "allow"], typer.Option(help="A run while the task of the last one still goes on.")
    ] = "skip",
    missed: Annotated[
        Literal["once", "skip"],
        typer.Option(help="Runs while no daemon was there: made up for once, or left out."),
    ] = "once",
    tasks: Tasks = 30,
    days: Days = 90,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Have a task made again and again, each on the base branch as it is then.

    The broker is asked, as you, for the right to so many tasks within so many days; swarm schedule resume renews it.
    """
    settings = door.loaded(ctx, config).settings
    given = {"instructions": instructions, "repository": repo}
    request = ready(read_task(file, given), settings, None)
    if upcoming(cron, timezone, time.time()) is None:
        raise TaskError(f'"{cron}" never comes', "swarm schedule add --help shows the five fields")
    said = {"name": name, "cron": cron, "timezone": timezone, "request": request, "overlap": overlap, "missed": missed}
    wanted = meant(ScheduleRequest, said, "see: swarm schedule add --help")
    _print(door.run(_add(settings, wanted, tasks, days * DAY)), json=json)


@app.command("list")
def list_schedules(ctx: typer.Context, config: ConfigOption = None, json: JsonOption = False) -> None:
    """List schedules, by name."""
    found = door.ask(door.daemon(ctx, config), lambda client: client.schedules())
    if json:
        screen.document([one.model_dump(mode="json") for one in found])
    elif found:
        screen.table(HEADERS, [row(one) for one in found])
    else:
        screen.hint("no schedules; add one with: swarm schedule add")


@app.command()
def show(ctx: typer.Context, name: Name, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Show one schedule."""
    _print(door.ask(door.daemon(ctx, config), lambda client: client.schedule(name)), json=json)


@app.command()
def pause(ctx: typer.Context, name: Name, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Make no further runs until it is resumed."""
    _print(door.ask(door.daemon(ctx, config), lambda client: client.pause_schedule(name)), json=json)


@app.command()
def resume(
    ctx: typer.Context,
    name: Name,
    tasks: Tasks = 30,
    days: Days = 90,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Go on from now, under a new right that the broker is asked for as you."""
    settings = door.loaded(ctx, config).settings
    _print(door.run(_resume(settings, name, tasks, days * DAY)), json=json)


@app.command()
def remove(ctx: typer.Context, name: Name, config: ConfigOption = None) -> None:
    """Forget a schedule; the tasks that it made stay."""
    door.ask(door.daemon(ctx, config), lambda client: client.remove_schedule(name))
    screen.say(f"schedule {name} is gone; the tasks that it made stay")


@app.command()
def run(ctx: typer.Context, name: Name, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Make a run now, in between."""
    made = door.ask(door.daemon(ctx, config), lambda client: client.run_schedule(name))
    screen.document(made.model_dump(mode="json")) if json else screen.say("\n".join(view.summary(made)))


async def _add(settings: Settings, wanted: ScheduleRequest, tasks: int, seconds: float) -> ScheduleView:
    async with DaemonClient(settings.daemon.socket) as daemon:
        await daemon.health()  # before the broker is asked: a grant that nobody uses is litter
        request = wanted.request
        if any(one.name == wanted.name for one in await daemon.schedules()):  # there may be nothing left to grant
            kept = request.model_copy(update={"capability": SAME_RIGHT, "standing": True})
            return await daemon.add_schedule(wanted.model_copy(update={"request": kept}))
        asked = StandingRight(request.repository, request.base, f"s{wanted.name}", tasks=tasks, seconds=seconds)
        right = await granted_for_later(settings, asked)
        granted = request.model_copy(update={"capability": right.capability, "base": right.base, "standing": True})
        more = {"request": granted, "until": right.expires, "uses": tasks}
        return await daemon.add_schedule(wanted.model_copy(update=more))


async def _resume(settings: Settings, name: str, tasks: int, seconds: float) -> ScheduleView:
    async with DaemonClient(settings.daemon.socket) as daemon:
        known = await daemon.schedule(name)
        request = known.request
        asked = StandingRight(request.repository, request.base, f"s{name}", tasks=tasks, seconds=seconds)
        right = await granted_for_later(settings, asked)
        given = ScheduleRight(capability=right.capability, until=right.expires, uses=tasks)
        return await daemon.resume_schedule(name, given)


def row(one: ScheduleView) -> tuple[str, ...]:
    """One line under HEADERS."""
    following = view.moment(one.next) if one.next is not None else "none"
    last = view.moment(one.last) if one.last is not None else "never"
    state = "on" if one.enabled else "off"
    made = str(one.fired) + (f" of {one.uses}" if one.uses is not None else "")
    where = f"{one.cron} {one.timezone}"
    return one.name, state, following, where, one.request.repository, made, last, one_line(one.reason, 120)


def _print(one: ScheduleView, *, json: bool) -> None:
    if json:
        screen.document(one.model_dump(mode="json"))
        return
    facts = dict(zip(HEADERS[1:], row(one)[1:], strict=True))
    facts |= {"last task": one.last_task or "none", "overlap": one.overlap, "missed": one.missed}
    facts |= {"right until": view.moment(one.until) if one.until else "not known"}
    facts |= {"task": one_line(one.request.title or one.request.instructions, 120)}
    screen.say("\n".join((f"schedule {one.name}", *(f"  {name:<13}{value}" for name, value in facts.items() if value))))
