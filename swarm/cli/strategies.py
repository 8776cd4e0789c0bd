"""`swarm strategies`: the ways to work that a task may name, what each is made of, and how each did in a repository."""

from __future__ import annotations

import json as jsons
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import typer

from swarm.agents import known_agents, strategy_of
from swarm.cli import door, screen
from swarm.cli.clean import clean
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.salvage import opened, require_readable
from swarm.config import Settings, no_strategy
from swarm.config_strategies import OWN, ROUNDS, USES, StrategyConfig, ready_made
from swarm.config_text import nearest
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
        loaded = door.loaded(ctx, config).settings
        known = door.run(_known(loaded, repository))
        _tell_known(repository, known, tuple(loaded.repositories), json=json)
        return
    settings = door.perhaps(ctx, config)
    made = settings.strategies if settings else {}
    if name is not None:
        own = _named(name, made, settings or Settings())
        if json:
            screen.document({"name": name, "what": OWN.get(name, ""), "settings": own.model_dump() if own else None})
        else:
            screen.say("\n".join(_block(name, own, theirs=name in made)))
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


def _tell_known(repository: str, known: Mapping[str, Record], named: Sequence[str], *, json: bool) -> None:
    by_share = sorted(known.items(), key=lambda item: -item[1].solved / max(item[1].tried, 1e-9))
    if json:
        figures = {way: {"tried": one.tried, "solved": one.solved, "tokens": one.tokens} for way, one in by_share}
        screen.document({"repository": repository, "strategies": figures})
    elif not known:
        here = repository in named
        like = None if here else nearest(repository, named)
        known_here = (
            "" if here else f", and swarm.toml names no such repository ({', '.join(named) or 'it names none'})"
        )
        meant = f"; did you mean {like}?" if like else "; auto goes by its rule"
        screen.hint(clean(f"nothing is recorded of {repository} yet{known_here}{meant}"))
    else:
        rows = [(way, f"{one.tried:.1f}", f"{one.solved:.1f}", f"{one.tokens:.0f}") for way, one in by_share]
        screen.table(_KNOWN, rows)
        screen.hint("what is older counts for less: half after 30 days")


def _nothing(repository: str, named: Sequence[str]) -> str:
    """That nothing is recorded of a repository, and what may be why. ``named`` are those of swarm.toml."""
    words = f"nothing is recorded of {repository} yet"
    if repository in named:
        return f"{words}; auto goes by its rule"
    like = nearest(repository, named)
    words += f", and swarm.toml names no such repository ({', '.join(named) or 'it names none'})"
    return f"{words}; did you mean {like}?" if like else f"{words}; auto goes by its rule"


def _named(name: str, made: Mapping[str, StrategyConfig], settings: Settings) -> StrategyConfig | None:
    """What a strategy is made of, None for one that is made of nothing else. Raises ConfigError where there is none."""
    config = made.get(name) or ready_made(name)
    if config is None and name not in OWN:
        raise ConfigError(*no_strategy(name, settings))
    return config


def _block(name: str, config: StrategyConfig | None, *, theirs: bool) -> Iterator[str]:
    """A strategy as it would stand in swarm.toml, with all that may be changed, commented where it is the default."""
    if config is None:
        yield f"{name}: {OWN[name]}; it is made of nothing else"
        return
    yield f"[strategies.{name}]" if theirs else f"[strategies.my-{name}]"
    given = config.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    lines = [f"{key} = {jsons.dumps(value)}" for key, value in given.items()]
    others = [key for key in StrategyConfig.model_fields if key in USES[config.kind] and key not in given]
    lines += [f"# {key} = {jsons.dumps(_default(key, config))}" for key in others]
    width = max(map(len, lines))
    for key, line in zip((*given, *others), lines, strict=True):
        yield f"{line:<{width}}  # {StrategyConfig.model_fields[key].description}"


def _default(key: str, config: StrategyConfig) -> object:
    """What a setting is where it is not set, or could be where that is nothing."""
    value = getattr(config, key)
    if value is not None:
        return value
    return ROUNDS[config.kind] if key == "rounds" else "mutation_repair" if key == "opener" else "TIER"


def _told(one: StrategyConfig) -> str:
    """What it is made of, and what of it is not the default."""
    parts = {"kind", "of", "planner", "opener", "ways"}
    given = one.model_dump(mode="json", exclude_defaults=True, exclude_none=True, exclude=parts)
    facts = ", ".join(f"{key} = {jsons.dumps(value)}" for key, value in given.items())
    return f"{one.kind} of {', '.join(dict.fromkeys(one.inner()))}" + (f"; {facts}" if facts else "")
