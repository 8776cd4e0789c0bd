"""`swarm transcript`: read what happened in an attempt, check it, hand it on without secrets, take that of others."""

from __future__ import annotations

import json as jsons
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from swarm.cli import door, screen, view
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.salvage import opened, readable
from swarm.cli.transcript_view import Wish, shown, wanted
from swarm.client import DaemonClient
from swarm.config import Settings, secrets_known, secrets_missing
from swarm.errors import TaskNotFoundError, TranscriptError
from swarm.salvage import telling
from swarm.salvage.entries import task_of
from swarm.telemetry.redaction import Redactor
from swarm.transcripts import atif, chats, foreign, lines, mini, swe_agent
from swarm.transcripts.scrubbing import scrubbed
from swarm.transcripts.shape import Transcript
from swarm.types import Attempt, Step, TaskView

app = typer.Typer(no_args_is_help=True)


class From(StrEnum):
    """Who wrote a file."""

    AUTO = foreign.AUTO
    JSONL = foreign.OURS
    JOURNAL = foreign.JOURNAL
    ATIF = "atif"
    MINI = mini.NAME
    SWE_AGENT = swe_agent.NAME


class Form(StrEnum):
    """What is written."""

    JSONL = "jsonl"
    ATIF = "atif"
    MESSAGES = "messages"


What = Annotated[str, typer.Argument(metavar="TASK|FILE", help="A task, an attempt, or a file.")]
AttemptOption = Annotated[
    int | None, typer.Option("--attempt", min=1, help="Which attempt of a task; default: the last.")
]
FromOption = Annotated[From, typer.Option("--from", help="Which program wrote a file.")]
OutOption = Annotated[Path | None, typer.Option("--output", "-o", help="The file; - is standard output.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]


@app.callback()
def transcript() -> None:
    """Read, check and hand on what happened in an attempt.

    Who said what, what was called, what came of it and what it cost: of a task of yours, or of a file.
    """


@app.command("view")
def look(
    ctx: typer.Context,
    what: What,
    attempt: AttemptOption = None,
    step: Annotated[str, typer.Option("--step", help="Only this step, or these: 7, 3-9. Shown whole.")] = "",
    search: Annotated[str, typer.Option("--search", "-s", help="Only steps that hold this text.")] = "",
    full: Annotated[bool, typer.Option("--full", help="Fold nothing.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="One line a step.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The lines of the transcript, as they are in a file.")] = False,
    pager: Annotated[bool, typer.Option(help="On a terminal, page through it.")] = True,
    form: FromOption = From.AUTO,
    config: ConfigOption = None,
) -> None:
    """Show a transcript: of a task of yours, or of a file of this program's or another's."""
    steps = _range(step)
    told = _told(ctx, config, what, attempt, form)
    if steps is not None and not any(each.step_id in steps for each in told.steps):
        steps_there = f"its steps are 1 to {len(told.steps)}" if told.steps else "it has no steps"
        raise TranscriptError(f"{what} has no step {step}", steps_there)
    if raw:
        for each in (told.header, *(one for one in told.steps if steps is None or one.step_id in steps)):
            screen.raw(lines.line(each))
        return
    wish = Wish(steps, search, full=full, brief=brief)
    with _paged(wanted=pager and not steps) as say:
        for line in shown(told, wish):
            say(line)
    if search and not any(wanted(each, wish) for each in told.steps):
        screen.hint(f"no step holds {search!r}")


@app.command()
def export(
    ctx: typer.Context,
    what: What,
    out: OutOption = None,
    attempt: AttemptOption = None,
    form: Annotated[Form, typer.Option("--format", help="Ours, one ATIF document, or a chat's messages.")] = Form.JSONL,
    source: FromOption = From.AUTO,
    keep_paths: Annotated[
        bool, typer.Option("--keep-paths", help="Keep the names in home folders and mail addresses.")
    ] = False,
    force: ForceOption = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Write a transcript that may leave the house: without secrets, and without names in paths and addresses."""
    settings = door.perhaps(ctx, config)
    told = _told(ctx, config, what, attempt, source)
    if settings is None:
        screen.hint("there is no swarm.toml: only what looks like a secret is struck out, not the values that it names")
        settings = Settings()
    clean = scrubbed(told, Redactor(secrets_known(settings, os.environ)), paths=not keep_paths)
    if missing := secrets_missing(settings, os.environ):
        screen.hint(
            f"WARNING: secrets that this user does not have were not looked for: {', '.join(missing)}. They may stand "
            "in the file. Give it to nobody; export again with these set, as where the daemon is started"
        )
    # never by what a file says of itself: that may be a path
    name = Path(what).stem.removesuffix(".traj") if _is_file(what) else told.header.attempt
    path = out or Path(f"{name}.transcript.{'jsonl' if form is Form.JSONL else 'json'}")
    _write(path, _formed(clean.transcript, form), force=force)
    if json and str(path) != "-":
        facts = {"file": str(path), "steps": len(told.steps), "struck": clean.secrets, "paths": clean.paths}
        screen.document(facts | {"unknown_secrets": list(missing)})
    elif str(path) != "-":
        screen.say(f"{path} holds {view.many(len(told.steps), 'step')}")
        screen.hint(
            f"struck out: {view.many(clean.secrets, 'secret')}; made general: {view.many(clean.paths, 'name')}. "
            "What the repository's files and commands said is in it: give it to nobody who may not see that"
        )


@app.command("import")
def take(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trajectory of another program's.")],
    form: FromOption = From.AUTO,
    out: OutOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Make a transcript of another program's: mini-swe-agent, SWE-agent, or an ATIF document."""
    told = _of_file(file, form)
    path = out or Path(f"{file.stem.removesuffix('.traj')}.transcript.jsonl")
    _write(path, lines.dumps(told), force=force)
    if json and str(path) != "-":
        screen.document({"file": str(path), "steps": len(told.steps), "origin": told.header.origin})
    elif str(path) != "-":
        screen.say(f"{path} holds {view.many(len(told.steps), 'step')} of {told.header.agent.name}")
        screen.hint(f"read it with: swarm transcript view {path}")


@app.command()
def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A transcript, or what --from names.")],
    form: FromOption = From.JSONL,
    json: JsonOption = False,
) -> None:
    """Check that a file is a transcript; where it is none, the first line that is wrong is named."""
    told = _of_file(file, form)
    whole = told.end is not None
    if json:
        screen.document({"file": str(file), "steps": len(told.steps), "whole": whole, "origin": told.header.origin})
    else:
        end = "" if whole else "; it has no end: it was cut off, or goes on"
        screen.say(f"{file} is a transcript of {view.many(len(told.steps), 'step')}{end}")


def _formed(told: Transcript, form: Form) -> str:
    if form is Form.JSONL:
        return lines.dumps(told)
    value = atif.document(told) if form is Form.ATIF else chats.messages(told)
    return jsons.dumps(value, ensure_ascii=True, indent=1) + "\n"


def _write(path: Path, text: str, *, force: bool) -> None:
    if str(path) == "-":
        screen.raw(text)
    else:
        lines.write(path, text, over=force)


def _range(words: str) -> range | None:
    """Steps by number: one, or from one to another. Raises TranscriptError."""
    if not words:
        return None
    first, dash, last = words.partition("-")
    try:
        begin = int(first)
        return range(begin, (int(last) if dash else begin) + 1)
    except ValueError:
        raise TranscriptError(f"{words!r} is no step", "say one number, or two as in 3-9") from None


@contextmanager
def _paged(*, wanted: bool) -> Iterator[Callable[[Text], None]]:
    """What prints a line: into a pager on a terminal, else to standard output."""
    out = screen.console()
    if not (wanted and door.interactive()):
        yield out.print
        return
    os.environ.setdefault("LESS", "FRX")  # as git has it: colours pass, and what fits on one screen is not paged
    with out.pager(styles=True):
        yield out.print


def _told(ctx: typer.Context, config: Path | None, what: str, attempt: int | None, form: From) -> Transcript:
    """The transcript that is meant: of a file that is there, else of a task or an attempt."""
    if _is_file(what):
        return _of_file(Path(what), form, torn=True)
    settings = door.loaded(ctx, config).settings
    return door.run(_recorded(settings, what, attempt) if readable(settings) else _asked(settings, what, attempt))


def _of_file(path: Path, form: From, *, torn: bool = False) -> Transcript:
    """The transcript in a file; see `foreign.read`. Raises TranscriptError, which names the file."""
    raw = lines.content(path)
    try:
        return foreign.read(raw, form.value, torn=torn)
    except TranscriptError as error:
        raise TranscriptError(f"{path}: {error}", error.mend.replace("FILE", str(path))) from error


def _is_file(what: str) -> bool:
    return Path(what).is_file() or "/" in what or what.endswith((".json", ".jsonl", ".traj"))


async def _recorded(settings: Settings, wanted: str, number: int | None) -> Transcript:
    """From this machine's records: the database, or where that does not know it, what lies beside the salvage."""
    task, named = task_of(wanted)
    async with opened(settings) as (shelf, store):
        if store is not None:
            try:
                seen = await store.view(task if named else wanted)
            except TaskNotFoundError:
                seen = None
            if seen is not None:
                one = _attempt(seen, wanted, number)
                found: list[Step] = []
                while page := await store.steps(seen.task.id, after=found[-1].seq if found else 0, attempt=one.id):
                    found += page
                return telling.transcript(telling.about(seen, one, 0), found)
        left = await shelf.found(wanted)
        if left.about is None or not left.steps:
            raise TaskNotFoundError(f"no transcript of {wanted} is on this host", "see what is: swarm salvage list")
        return telling.transcript(left.about, left.steps)


async def _asked(settings: Settings, wanted: str, number: int | None) -> Transcript:
    """From the daemon, for users who may not look into its folder."""
    task, named = task_of(wanted)
    async with DaemonClient(settings.daemon.socket) as client:
        seen = await client.task(task if named else wanted)
        one = _attempt(seen, wanted, number)
        found = [step for step in await client.steps(seen.task.id, 0) if step.attempt == one.id]
    return telling.transcript(telling.about(seen, one, 0), found)


def _attempt(seen: TaskView, wanted: str, number: int | None) -> Attempt:
    """The attempt that is meant: by its id, by its number, else the last. Raises TaskNotFoundError."""
    if not seen.attempts:
        raise TaskNotFoundError(f"task {seen.task.id} was never worked on", f"watch it: swarm follow {seen.task.id}")
    named = task_of(wanted)[1] > 0
    for one in reversed(seen.attempts):
        if one.id == wanted or (not named and number in (None, one.number)):
            return one
    told = wanted if named else f"number {number}"
    raise TaskNotFoundError(f"task {seen.task.id} has no attempt {told}", f"see them: swarm show {seen.task.id}")
