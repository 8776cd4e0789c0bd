"""`swarm pool recipe`: the launch commands of a profile, each flag with its reason, judged for one vLLM release."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from pool.launch import refusals
from pool.profiles.checking import installed
from pool.profiles.recipes import Doubt, Recipe, Server
from pool.profiles.recipes import recipe as made_recipe
from pool.profiles.shapes import PROFILES, profile
from pool.profiles.versions import Release, releases
from swarm.cli import door, screen
from swarm.cli.door import JsonOption
from swarm.cli.exits import Code
from swarm.cli.pool.wishes import (
    Asked,
    ConnectorOption,
    CountOption,
    DraftOption,
    GpuOption,
    HostMemoryOption,
    KvBitsOption,
    ModelOption,
    PortOption,
    PythonOption,
    ReasoningOption,
    SessionsOption,
    TemplateOption,
    ToolParserOption,
    WindowOption,
    found_python,
    mended,
    wish,
)
from swarm.errors import ConfigError

ProfileArgument = Annotated[
    str, typer.Argument(help=f"One of: {', '.join(PROFILES)}.", metavar="PROFILE", show_default=False)
]


def recipe(  # each option of a command is a parameter
    name: ProfileArgument,
    model: ModelOption,
    version: Annotated[
        str | None,
        typer.Option("--version", help="The vLLM release.", show_default="that of `vllm`, else the newest known"),
    ] = None,
    gpu: GpuOption = None,
    count: CountOption = None,
    window: WindowOption = None,
    sessions: SessionsOption = None,
    kv_bits: KvBitsOption = 16,
    host_memory: HostMemoryOption = None,
    port: PortOption = 8000,
    connector: ConnectorOption = None,
    draft: DraftOption = None,
    tool_parser: ToolParserOption = None,
    reasoning_parser: ReasoningOption = None,
    chat_template: TemplateOption = None,
    python: PythonOption = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Ask the installed vLLM, if there is one.")] = True,
    json: JsonOption = False,
) -> None:
    """Print the launch commands of a profile for stock vLLM; exit code 1 when the vLLM asked would refuse one."""
    asked = Asked(
        model, gpu, count, window, sessions, kv_bits, host_memory, port, connector, draft,
        tool_parser, reasoning_parser, chat_template,
    )  # fmt: skip
    if python and version:
        raise ConfigError("--version names a release of the table, --python an installed vLLM", "give one of the two")
    which = found_python(python) if check and version is None else None
    with mended():
        profile(name)
        made, judged, problems = door.run(_made(asked, name, which, version))
    if json:
        screen.document(_document(made, judged, problems))
    else:
        _print(made, judged, problems, asked_vllm=which is not None)
    if problems and which:
        raise typer.Exit(Code.FAULT)


async def _made(asked: Asked, name: str, python: str | None, version: str | None) -> tuple[Recipe, str, list[str]]:
    """The recipe, who judged it, and what they object to."""
    wanted = wish(asked, name, python)
    if python is None:
        release = Release(version or releases()[-1])
        made = made_recipe(wanted, release)
        return made, f"a table of vLLM {', '.join(releases())}", _doubted(made, release)
    async with installed(python, os.environ) as found:
        made = made_recipe(wanted, found.release)
        return made, f"the vLLM {found.release.version} of {python}", await refusals(made, found)


def _doubted(made: Recipe, release: Release) -> list[str]:
    """What the table cannot confirm; one line for a release that it does not reach, whose every flag is in doubt."""
    if release.assumed is None:
        return [f"{doubt.words[0]}: {doubt.why}" for doubt in made.unconfirmed]
    side = "newer" if release.assumed == releases()[-1] else "older"
    beyond = f"vLLM {release.version} is {side} than all of the table, so no flag is confirmed for it"
    return [f"{beyond}; it is assumed to take what {release.assumed} takes (--python asks an installed vLLM itself)"]


def _document(made: Recipe, judged: str, problems: list[str]) -> dict[str, object]:
    return {
        "profile": made.profile,
        "version": made.version,
        "judged_by": judged,
        "problems": problems,
        "first": list(made.first),
        "modules": [name for name, _ in made.modules],
        "notes": list(made.notes),
        "dropped": [doubt.model_dump() for doubt in made.dropped],
        "unconfirmed": [doubt.model_dump() for doubt in made.unconfirmed],
        "servers": [
            {
                "name": server.name,
                "role": server.role,
                "command": ["vllm", "serve", *server.words],
                "env": {variable.name: variable.value for variable in server.env},
                "reasons": {piece.words[0]: piece.why for piece in server.pieces},
            }
            for server in made.servers
        ],
    }


def _print(made: Recipe, judged: str, problems: list[str], *, asked_vllm: bool) -> None:
    screen.say(f"profile {made.profile} for vLLM {made.version}: {PROFILES[made.profile].about}")
    for name, mend in made.modules:
        screen.say(f"first: vLLM's Python needs the module {name}: {mend}")
    for step in made.first:
        screen.say(f"first: {step}")
    for server in made.servers:
        _server(server)
    for doubt in made.dropped:
        screen.hint(f"left out: {_flag(doubt)} ({doubt.why})")
    for note in made.notes:
        screen.hint(f"note: {note}")
    if problems:
        verdict = "not good" if asked_vllm else "not all is confirmed"
        screen.say(f"\nchecked by {judged}: {verdict}", screen.STYLES["fail" if asked_vllm else "warn"])
        for problem in problems:
            screen.say(f"  {problem}")
    else:
        screen.hint(f"checked by {judged}: every flag is known")


def _server(server: Server) -> None:
    screen.say(f"\n# {server.name}\n{server.shell()}\n")
    reasons = [(f"{variable.name}=", variable.why) for variable in server.env]
    reasons += [(piece.words[0], piece.why) for piece in server.pieces]
    screen.table(("flag", "because"), reasons)


def _flag(doubt: Doubt) -> str:
    return " ".join(doubt.words)
