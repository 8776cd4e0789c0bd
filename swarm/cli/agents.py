"""`swarm agents`: the agents that may do a task's work in place of the built-in one, and how each is set up."""

from __future__ import annotations

import json as jsons
from collections.abc import Iterator
from typing import Annotated

import typer

from swarm.agents import NOTES, RECIPES, AgentConfig, known_agents
from swarm.cli import door, screen
from swarm.cli.door import ConfigOption, JsonOption
from swarm.errors import ConfigError

app = typer.Typer()
HEADERS = ("agent", "told by", "from", "tool calls", "tried")


@app.command()
def agents(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One of them, as it would stand in swarm.toml.")
    ] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List the agents that `swarm submit --agent` takes, or show how one is set up."""
    settings = door.perhaps(ctx, config)
    known = known_agents(settings.agents if settings else {})
    if name is not None and name not in known:
        raise ConfigError(f"there is no agent {name!r}", f"there are: {', '.join(known)}")
    wanted = known if name is None else {name: known[name]}
    if json:
        screen.document([_document(each, agent) for each, agent in wanted.items()])
    elif name is None:
        screen.table(HEADERS, [_row(each, agent) for each, agent in wanted.items()])
        screen.hint("see how one is set up: swarm agents NAME; all about them: docs/agents.md")
    else:
        screen.say("\n".join(_toml(name, known[name])))


def _ours(name: str, agent: AgentConfig) -> bool:
    return RECIPES.get(name) == agent


def _row(name: str, agent: AgentConfig) -> tuple[str, ...]:
    told = "protocol acp" if agent.protocol == "acp" else "its command"
    if not _ours(name, agent):
        return name, told, "swarm.toml", "", ""
    return name, told, "swarm", "native" if NOTES[name].native else "text", NOTES[name].tried


def _document(name: str, agent: AgentConfig) -> dict[str, object]:
    notes = NOTES[name].model_dump(mode="json") if _ours(name, agent) else None
    return {"name": name, "shipped": _ours(name, agent), "notes": notes} | agent.model_dump(mode="json")


def _toml(name: str, agent: AgentConfig) -> Iterator[str]:
    """As it would stand in swarm.toml: a string of JSON is one of TOML."""
    yield f"[agents.{name}]"
    for key, value in agent.model_dump(mode="json", exclude_defaults=True, exclude={"env"}).items():
        if isinstance(value, list):
            yield f"{key} = [" + "".join(f"\n  {jsons.dumps(each)}," for each in value) + "\n]"
        else:
            yield f"{key} = {jsons.dumps(value)}"
    if agent.env:
        yield f"\n[agents.{name}.env]"
        yield from (f"{key} = {jsons.dumps(value)}" for key, value in agent.env.items())
