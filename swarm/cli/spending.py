"""Commands that tell where time and money went: time, budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from swarm.cli import door, screen, view
from swarm.cli.clean import clean
from swarm.cli.door import ConfigOption, JsonOption
from swarm.shown import BudgetsView, FleetTimes, Scope, TaskTimes, Times

app = typer.Typer()

WORDS = {
    "queued": "queued",
    "prepare": "preparing",
    "pool": "waiting for a model",
    "prefill": "models reading",
    "decode": "models writing",
    "tools": "tools",
    "checks": "checks",
    "broker": "broker",
    "paused": "paused",
    "away": "no daemon there",
    "other": "the daemon itself",
}
LIMITS = (("steps", "steps"), ("tokens", "tokens"), ("gpu_seconds", "GPU-seconds"), ("money", "money"))


@app.command("time")
def time_command(
    ctx: typer.Context,
    task: Annotated[str | None, typer.Argument(help="A task's id; without one, all tasks.", show_default=False)] = None,
    days: Annotated[int, typer.Option(min=1, max=366, help="Of all tasks: so many days, today included.")] = 7,
    repository: Annotated[str | None, typer.Option(help="Of all tasks: this repository's alone.")] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show where the time went: queue, models, tools, checks, broker. Of one task, or of all by day."""
    daemon = door.daemon(ctx, config)
    found: TaskTimes | FleetTimes
    if task is not None:
        found = door.ask(daemon, lambda client: client.task_time(task))
    else:
        found = door.ask(daemon, lambda client: client.times(days, repository))
    if json:
        screen.document(found.model_dump(mode="json"))
    elif isinstance(found, TaskTimes):
        screen.say(f"task {found.task} {found.state.value}, {view.seconds(found.times.seconds)} in all")
        _print(found.times)
    else:
        _print_days(found)


@app.command()
def budget(ctx: typer.Context, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Show what was spent today by each repository, each user and all, and what may be."""
    found = door.ask(door.daemon(ctx, config), lambda client: client.budgets())
    if json:
        screen.document(found.model_dump(mode="json"))
        return
    screen.table(("scope", *(name for _, name in LIMITS)), [_row(one, found) for one in found.scopes])
    for one in found.scopes:
        if one.shut:
            screen.hint(clean(one.shut))
    if not any(one.limits for one in found.scopes):
        screen.hint("no budget is set for a day; see [budgets] in: swarm config explain budgets")


def lines(times: Times) -> Iterator[tuple[str, str, str, str, str]]:
    """The parts that took time, and what the models' caches were good for."""
    for part in times.parts:
        if part.seconds or part.part in WORDS:
            share = part.seconds / times.seconds if times.seconds else 0.0
            tokens = f"{view.amount(part.tokens)} tokens" if part.tokens else ""
            many = str(part.count) if part.count else ""
            yield WORDS.get(part.part, part.part), view.seconds(part.seconds), f"{share:.0%}", many, tokens


def cache(times: Times) -> str:
    """What the models' caches were good for, in one line; empty where no server told."""
    if times.cached_share is None:
        return ""
    again = f"; {view.amount(times.recomputed_tokens)} tokens were read once more" if times.recomputed_tokens else ""
    return f"{times.cached_share:.0%} of what models read was cached{again}"


def _print(times: Times) -> None:
    screen.table(("", "time", "share", "times", "of models"), list(lines(times)))
    if told := cache(times):
        screen.say(told)


def _print_days(found: FleetTimes) -> None:
    whose = f" of {clean(found.repository)}" if found.repository else ""
    if not found.by_day:
        screen.hint(f"no task{whose} did anything in the last {view.many(found.days, 'day')}")
        return
    screen.say(f"all tasks{whose}, {view.many(found.days, 'day')}, {view.seconds(found.total.seconds)} in all")
    _print(found.total)
    names = [name for name in WORDS if any(part.part == name and part.seconds for part in found.total.parts)]
    rows = []
    for day in found.by_day:
        by_name = {part.part: part.seconds for part in day.times.parts}
        rows.append((day.day, *(view.seconds(by_name[name]) if by_name.get(name) else "" for name in names)))
    screen.table(("day", *(WORDS[name] for name in names)), rows)


def _row(one: Scope, whole: BudgetsView) -> tuple[str, ...]:
    return (clean(one.scope), *(_used(one, name, whole.currency) for name, _ in LIMITS))


def _used(one: Scope, name: str, currency: str) -> str:
    spent, limit = getattr(one.spent, name), one.limits.get(name)
    if name == "money":
        told = f"{spent:.2f} {currency}" + (f" of {limit:.2f}" if limit is not None else "")
        return told if spent or limit is not None else ""
    return view.amount(int(spent)) + (f" of {view.amount(int(limit))}" if limit is not None else "")
