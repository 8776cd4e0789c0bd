"""Handing in a batch: checked whole before anything is asked for or stored, then line by line, each exactly once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from swarm.answers import LARGEST_PAGE, TaskFilter
from swarm.cli import screen, view
from swarm.cli.batch import Bad, Entry, Reader, Sheet, cut_off, prefix, whole
from swarm.cli.exits import Code, of_state
from swarm.cli.rights import LATER, Standing, granted_for_later
from swarm.client import DaemonClient
from swarm.config_text import meant
from swarm.delivery import StandingRight
from swarm.errors import ConfigError, KeyReusedError, SwarmError, TaskError, TaskNotFoundError
from swarm.types import TaskState, TaskView

AT_ONCE = 100  # tasks of one standing right, and of one question to the daemon
LOOK = 2.0  # seconds between two looks at a batch that is waited for


@dataclass
class Tally:
    """What became of the lines, as far as it has come."""

    new: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)

    def text(self, name: str) -> str:
        """In one line."""
        count = len(self.new) + len(self.known)
        told = f"batch {name}: {view.many(count, 'task')}, {len(self.new)} of them new"
        return told + (f"; {view.many(len(self.bad), 'line')} could not be handed in" if self.bad else "")


def is_batch(file: str | None, name: str | None) -> bool:
    """Whether what is to be handed in is a batch: by the file's name or because it is to have a batch's name."""
    return file is not None and (name is not None or file.endswith((".jsonl", ".ndjson")))


async def hand_in(sheet: Sheet, source: str, *, keep_going: bool) -> Tally:
    """Hand in all lines of ``source``, a path or - for standard input, whose lines are taken as they come.

    Raises ConfigError and TaskError for the first lines that are wrong, with nothing handed in of a file, unless to
    keep going; DaemonError and BrokerError.
    """
    async with DaemonClient(sheet.settings.daemon.socket) as daemon:
        await daemon.health()  # before the broker is asked: a grant that nobody uses is litter
        if source == "-":
            return await _stream(sheet, daemon, keep_going=keep_going)
        entries, bad = whole(sheet, _lines(Path(source)))
        if not entries and not bad:
            raise ConfigError(
                f"{source}: there is no task in it", "write one JSON object a line; see: swarm help task-files"
            )
        tally = Tally()
        missing = await _missing(daemon, entries, tally)
        tally.bad += [*bad, *await _refused(daemon, missing)]
        if tally.bad and not keep_going:
            raise _all_of(tally, source)
        tally.bad += cut_off(missing, {one.line for one in tally.bad})
        wrong = {one.line for one in tally.bad}
        await _submit(sheet, daemon, [one for one in missing if one.line not in wrong], tally)
        if tally.bad and not keep_going:
            raise _all_of(tally, source)
        return tally


async def until_end(daemon: DaemonClient, name: str) -> Mapping[TaskState, int]:
    """Wait until every task of a batch is over; how many ended in which way."""
    async with daemon:
        while True:
            counts = await daemon.counts(_filter(name))
            if all(state.final for state in counts):
                return counts
            await asyncio.sleep(LOOK)


async def members(daemon: DaemonClient, name: str) -> tuple[TaskView, ...]:
    """The tasks of a batch, the newest first. Raises TaskNotFoundError where there is none."""
    found: list[TaskView] = []
    cursor: str | None = None
    while True:
        page = await daemon.page(_filter(name), cursor=cursor, limit=LARGEST_PAGE)
        found += page.items
        cursor = page.next
        if cursor is None:
            break
    if not found:
        raise TaskNotFoundError(f'there is no batch "{name}"', "it is named after its file, or by --batch")
    return tuple(found)


def _filter(name: str) -> TaskFilter:
    return meant(TaskFilter, {"batch": name}, "a batch is named after its file, or by --batch")


def code_of(counts: Mapping[TaskState, int]) -> Code:
    """The exit code of a batch: 0 while it goes on and once all is well, else that of its only bad ending, else 1."""
    codes = {of_state(state) for state, count in counts.items() if count} - {Code.OK, Code.NO_CHANGE}
    return Code.OK if not codes else codes.pop() if len(codes) == 1 else Code.FAULT


def told(counts: Mapping[TaskState, int]) -> str:
    """How many of a batch stand how."""
    return ", ".join(f"{count} {state.value}" for state, count in counts.items() if count) or "none"


async def _stream(sheet: Sheet, daemon: DaemonClient, *, keep_going: bool) -> Tally:
    reader, tally = Reader(sheet), Tally()
    number = 0
    async for text in _standard_input():
        number += 1
        found = reader.read(number, text)
        one = reader.entry(number, *found) if isinstance(found, tuple) else found
        before = len(tally.bad)
        if isinstance(one, Entry):
            missing = await _missing(daemon, [one], tally)
            refused = await _refused(daemon, missing)
            tally.bad += refused
            if missing and not refused:
                await _submit(sheet, daemon, missing, tally)
        elif one is not None:
            tally.bad.append(one)
        for each in tally.bad[before:]:
            screen.hint(str(each.error))
        if len(tally.bad) > before and not keep_going:
            break
    return tally


async def _missing(daemon: DaemonClient, entries: Sequence[Entry], tally: Tally) -> list[Entry]:
    """The lines of which there is no task yet. One that has a task which asks for something else is told as bad: to
    pass it over would drop what it says."""
    missing: list[Entry] = []
    for entry in entries:
        try:
            made = (await daemon.task(str(entry.request.task))).task
        except TaskNotFoundError:
            missing.append(entry)
            continue
        if made.request.alike(entry.request):
            tally.known.append(made.id)
        else:
            told = f'line {entry.line}: is task {made.id} of the batch "{entry.request.batch}" already, which asks for'
            mend = "give the line another id, or the batch a name of its own with --batch NAME"
            tally.bad.append(Bad(entry.line, KeyReusedError(f"{told} something else", mend)))
    return missing


async def _submit(sheet: Sheet, daemon: DaemonClient, missing: Sequence[Entry], tally: Tally) -> None:
    """Hand in lines in their order, under rights that several share."""
    rights: dict[tuple[str, str | None], tuple[Standing, int]] = {}
    for at, entry in enumerate(missing):
        aim = entry.request.repository, entry.request.base
        if aim not in rights or rights[aim][1] == 0:
            count = sum(1 for one in missing[at:] if (one.request.repository, one.request.base) == aim)
            asked = StandingRight(*aim, task=prefix(sheet.name), tasks=min(count, AT_ONCE), seconds=LATER)
            rights[aim] = await granted_for_later(sheet.settings, asked), asked.tasks
        right, left = rights[aim]
        more = {"capability": right.capability, "base": right.base, "standing": True}
        try:
            tally.new.append((await daemon.submit(entry.request.model_copy(update=more))).task.id)
            rights[aim] = right, left - 1
        except TaskError as error:
            tally.bad.append(Bad(entry.line, TaskError(f"line {entry.line}: {error}", error.mend)))


async def _refused(daemon: DaemonClient, entries: Sequence[Entry]) -> list[Bad]:
    """The lines that the daemon would not take, and those that need what is no task."""
    bad: list[Bad] = []
    for start in range(0, len(entries), AT_ONCE):
        some = entries[start : start + AT_ONCE]
        for fault in await daemon.check([entry.request for entry in some]):
            line = some[fault.index].line
            bad.append(Bad(line, TaskError(f"line {line}: {fault.failure.why}", fault.failure.mend)))
    wrong = {one.line for one in bad}
    return bad + await _without_needs(daemon, [entry for entry in entries if entry.line not in wrong])


async def _without_needs(daemon: DaemonClient, entries: Sequence[Entry]) -> list[Bad]:
    """The lines that need a task which is neither the daemon's nor the batch's."""
    bad: list[Bad] = []
    there: dict[str, bool] = {}
    for entry in entries:
        needed = [need for need in entry.request.needs if need not in entry.after]
        for need in needed:
            if need not in there:
                there[need] = await _is_task(daemon, need)
        if absent := [need for need in needed if not there[need]]:
            words = f"line {entry.line}: it needs {', '.join(absent[:5])}, and there is no such task"
            mend = "name the id of another line, or the whole id of a task: swarm list"
            bad.append(Bad(entry.line, TaskError(words, mend)))
    return bad


async def _is_task(daemon: DaemonClient, name: str) -> bool:
    try:
        return (await daemon.task(name)).task.id == name
    except TaskNotFoundError:
        return False


def _all_of(tally: Tally, source: str) -> SwarmError:
    bad = sorted(tally.bad, key=lambda one: one.line)
    first = bad[0].error
    listed = "\n".join(f"  {one.error}" for one in bad[:12])
    more = f"\n  and {len(bad) - 12} more" if len(bad) > 12 else ""
    mends = {one.error.mend for one in bad}
    mend = (mends.pop() if len(mends) == 1 else "") or "mend these lines, or leave them out with --keep-going"
    kind = ConfigError if isinstance(first, ConfigError) else TaskError
    others = f"the {len(tally.new)} before were" if tally.new else "so none was"
    return kind(f"{source}: {view.many(len(bad), 'line')} cannot be handed in, {others}\n{listed}{more}", mend)


def _lines(path: Path) -> Iterable[str]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8", "save the file as UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path}: {os.strerror(error.errno or 0)}", "name a file that you may read") from None


async def _standard_input() -> AsyncIterator[str]:
    while text := await asyncio.to_thread(sys.stdin.readline):
        yield text
