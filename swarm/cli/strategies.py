"""`swarm strategies`: the ways to work that a task may name, what each is made of, and how each did in a repository."""

from __future__ import annotations

import json as jsons
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from swarm.agents import known_agents, strategy_of
from swarm.cli import door, screen
from swarm.cli.clean import clean
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.salvage import opened, require_readable
from swarm.config import Settings, no_strategy
from swarm.config_strategies import OWN, StrategyConfig, ready_made
from swarm.errors import ConfigError
from swarm.strategies.learning import Record, recorded
from swarm.types import Experience

app = typer.Typer()
_COLUMNS = ("strategy", "what it does")
_KNOWN = ("strategy", "attempts", "solved", "tokens each")
_AGENTS = "an agent of others: swarm agents"


@app.command(epilog="Example: swarm strategies --repo web")
def strategies(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One of them, as it would stand in swarm.toml.")
    ] = None,
    repository: Annotated[
        str | None, typer.Option("--repo", "-r", help="How each did in this repository, as auto sees it.")
    ] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List the ways to work that `swarm submit --strategy` takes; agents of others are in `swarm agents`."""
    if repository is not None:
        known = door.run(_known(door.loaded(ctx, config).settings, repository))
        _tell_known(repository, known, json=json)
        return
    settings = door.perhaps(ctx, config)
    made = settings.strategies if settings else {}
    if name is not None:
        screen.say("\n".join(_one(name, made, settings or Settings())))
        return
    rows = [*OWN.items(), *((own, _told(one)) for own, one in made.items())]
    if json:
        screen.document([{"name": own, "what": words, "ours": own in OWN} for own, words in rows])
        return
    agents = known_agents(settings.agents if settings else {})
    screen.table(_COLUMNS, [*rows, *((strategy_of(agent), _AGENTS) for agent in agents)])
    screen.hint("how each did: swarm strategies --repo NAME; all about them: docs/strategies.md")


async def _known(settings: Settings, repository: str) -> Mapping[str, Record]:
    """What is recorded of a repository, read from the database. Raises DaemonError and StoreError."""
    require_readable(settings)
    async with opened(settings, needed=True) as (_, store):
        outcomes: tuple[Experience, ...] = await store.outcomes.of(repository) if store else ()
        return recorded(outcomes, now=store.clock() if store else 0.0)


def _tell_known(repository: str, known: Mapping[str, Record], *, json: bool) -> None:
    by_share = sorted(known.items(), key=lambda item: -item[1].solved / max(item[1].tried, 1e-9))
    if json:
        figures = {way: {"tried": one.tried, "solved": one.solved, "tokens": one.tokens} for way, one in by_share}
        screen.document({"repository": repository, "strategies": figures})
    elif not known:
        screen.hint(clean(f"nothing is recorded of {repository} yet; auto goes by its rule"))
    else:
        rows = [(way, f"{one.tried:.1f}", f"{one.solved:.1f}", f"{one.tokens:.0f}") for way, one in by_share]
        screen.table(_KNOWN, rows)
        screen.hint("what is older counts for less: half after 30 days")


def _one(name: str, made: Mapping[str, StrategyConfig], settings: Settings) -> Iterator[str]:
    """A strategy as it would stand in swarm.toml. Raises ConfigError where there is none."""
    config = made.get(name) or ready_made(name)
    if config is not None:
        yield f"[strategies.{name}]" if name in made else f"[strategies.my-{name}]"
        for key, value in config.model_dump(mode="json", exclude_defaults=True, exclude_none=True).items():
            yield f"{key} = {jsons.dumps(value)}"
        return
    if name not in OWN:
        raise ConfigError(*no_strategy(name, settings))
    yield f"{name}: {OWN[name]}; it is made of nothing else"


def _told(one: StrategyConfig) -> str:
    return f"{one.kind} of {', '.join(dict.fromkeys(one.inner()))}"
