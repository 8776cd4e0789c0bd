"""`swarm eval`: its commands and their options. What they do is in `evaluation`, which needs an extra."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from swarm.cli import screen
from swarm.cli.clean import one_line
from swarm.cli.door import ConfigOption, JsonOption
from swarm.errors import ConfigError
from swarm.evaluation.case import CaseSet
from swarm.evaluation.sets.catalogue import CATALOGUE, set_named

LIBRARIES = ("numpy", "scipy", "matplotlib")


class SetsFirst(TyperGroup):
    """Takes what is no command of its own for the name of a set."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``run`` before it."""
        if args and args[0] not in self.commands and args[0] not in {"--help", "-h"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=SetsFirst, no_args_is_help=True)

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run, as --out named it.")]
BaselineOption = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="DIR", help="An earlier run to compare with.", show_default=False),
]


@app.callback(
    epilog="Example: swarm eval humanevalfix --strategy agent --strategy cli:mini-swe-agent --limit 20 --jobs 4"
)
def evaluate() -> None:
    """Try strategies on cases with known answers, and report.

    How many each solves and at what cost, with intervals. swarm eval SET is short for swarm eval run SET.
    Needs neither daemon nor broker, but what pip installs as agent-swarm with the extra eval.
    """


@app.command()
def run(
    ctx: typer.Context,
    wanted: Annotated[
        str | None,
        typer.Argument(metavar="SET", help="A set, as swarm eval sets lists them: NAME or NAME:FOLDER."),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="A way to work; again for more. Default: auto.", show_default=False, metavar="NAME"),
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(help="A tier to ask; again for more. Default: the default one.", show_default=False),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="So many cases, the first ones.", show_default=False)] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="This case; again for more.", show_default=False)
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Tries at each case in each way. Default: 1.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of what is drawn at random. Default: 0.", show_default=False)
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Turns of one try at most.", show_default=False)] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of one try at most.", show_default=False)] = None,
    wall: Annotated[float | None, typer.Option(min=1, help="Seconds of one try at most.", show_default=False)] = None,
    jobs: Annotated[int, typer.Option(min=1, max=1000, help="Tries at a time.")] = 1,
    total_tokens: Annotated[
        int | None, typer.Option(min=1, help="Begin no more tries once so many are spent.", show_default=False)
    ] = None,
    total_wall: Annotated[
        float | None, typer.Option(min=1, help="Break off after so many seconds.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="The run's folder; one that is there is gone on with.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", metavar="DIR", help="Go on with the run in this folder, as it was begun.", show_default=False
        ),
    ] = None,
    baseline: BaselineOption = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Ask the embedded model alone; needs no swarm.toml.")
    ] = False,
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="JSON object: a case's id, and the image that you have for it.", show_default=False
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="TEMPLATE",
            help="Image of each case, with {id} {docker_id} {repo} {version} put in.",
            show_default=False,
        ),
    ] = None,
    repositories: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of clones that rows of a set name as OWNER/NAME.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Try cases, in each way that was asked for, and write a report.

    The strategies reference (puts the known solution in) and nothing (changes nothing) need no model: they prove the
    harness. Ctrl-C keeps what was tried. 0: every try was made; 23: not all were, or the machinery failed in some.
    """
    asked = {name: value for name, value in locals().items() if name not in {"ctx", "config", "json"}}
    _extra().run(ctx, asked, config, as_json=json)


@app.command()
def sets(
    wanted: Annotated[
        str | None, typer.Argument(metavar="SET", help="List the cases of this one: NAME or NAME:FOLDER.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="So many cases, the first ones.")] = 100,
    json: JsonOption = False,
) -> None:
    """List the sets that there are, where they come from, and what each needs; or the cases of one."""
    if wanted is not None:
        _tell_cases(set_named(wanted), limit, json=json)
        return
    entries = sorted(CATALOGUE.values(), key=lambda entry: entry.name)
    if json:
        screen.document([entry.model_dump(mode="json") for entry in entries])
        return
    rows = [
        (f"{entry.name}:FOLDER" if entry.needs_path else entry.name, entry.summary, entry.origin, entry.licence)
        for entry in entries
    ]
    screen.table(("set", "what it holds", "where it comes from", "licence"), rows)


@app.command()
def show(folder: FolderArgument, json: JsonOption = False) -> None:
    """Print a run's report."""
    _extra().show(folder, as_json=json)


@app.command()
def report(folder: FolderArgument, baseline: BaselineOption = None, json: JsonOption = False) -> None:
    """Make a run's report anew, from what its folder holds now."""
    _extra().report(folder, baseline, as_json=json)


@app.command()
def compare(
    folder: FolderArgument,
    baseline: Annotated[Path, typer.Argument(metavar="BASELINE", help="The folder of the run to compare it with.")],
    json: JsonOption = False,
) -> None:
    """Compare two runs, case by case: which solved more, and whether that may be chance."""
    _extra().compare(folder, baseline, as_json=json)


def _tell_cases(chosen: CaseSet, limit: int, *, json: bool) -> None:
    """The cases of a set by id, so many."""
    found = list(islice(chosen.cases(), limit + 1))
    shown = found[:limit]
    if json:
        screen.document([{"id": case.id, "title": case.heading, "labels": case.labels} for case in shown])
        return
    screen.table(("case", "title"), [(one_line(case.id), one_line(case.heading)) for case in shown])
    if len(found) > limit:
        screen.hint(f"these are the first {limit}; for more: --limit N")


def require(libraries: Iterable[str] = LIBRARIES) -> None:
    """Raises ConfigError where one of them is not installed."""
    if missing := [name for name in libraries if find_spec(name) is None]:
        raise ConfigError(
            f"an evaluation needs {', '.join(missing)}, which is not installed", "pip install 'agent-swarm[eval]'"
        )


def _extra() -> Any:
    """The module that does it. Raises ConfigError where the extra is missing, before anything runs."""
    require()
    from swarm.cli import evaluation  # noqa: PLC0415  an extra, and a second to load

    return evaluation
