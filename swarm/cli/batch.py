"""Batches: a file with one JSON object a line, into requests with keys and needs of their own. Pure.

The same file again makes nothing again: a line's key is the batch's name with the line's ``id`` or, without one, its
text, so lines may be added, moved and removed.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field, ValidationError

from swarm.cli.request import merge, ready
from swarm.cli.task_file import TaskFile
from swarm.config import Settings
from swarm.config_text import problems
from swarm.errors import ConfigError, SwarmError, TaskError
from swarm.scheduling.needs import cycle
from swarm.types import TaskRequest

LINE = 200_000  # characters of one line
MOST = 10_000  # lines of one file
ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class BatchTask(TaskFile):
    """What one line may say: the keys of a task file, and what the other lines of the batch call it."""

    id: str | None = Field(
        default=None, pattern=ID, description="its name in this batch, for the `needs` of other lines"
    )


@dataclass(frozen=True)
class Entry:
    """A line that can be handed in. ``after`` are the task ids of lines that go before it."""

    line: int
    request: TaskRequest


@dataclass(frozen=True)
class Bad:
    """A line that cannot be."""

    line: int
    error: SwarmError


@dataclass(frozen=True)
class Sheet:
    """How a batch is read: its name, what the command line says for all its lines, and the settings."""

    name: str
    settings: Settings
    given: Mapping[str, object]
    limits: Mapping[str, object]


class Reader:
    """Reads a batch line by line, and remembers what its lines are called."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._seen: Counter[str] = Counter()
        self._names: dict[str, tuple[int, str]] = {}

    def read(self, number: int, text: str) -> tuple[BatchTask, str] | Bad | None:
        """One line and the id of its task; None for an empty one, or one that begins with #."""
        if not text.strip() or text.lstrip().startswith("#"):
            return None
        try:
            wanted = _parsed(number, text)
            task = self._named(number, wanted, text)
        except SwarmError as error:
            return Bad(number, error)
        return wanted, task

    def entry(self, number: int, wanted: BatchTask, task: str) -> Entry | Bad:
        """The request of a line, once all that it may need were read."""
        sheet = self._sheet
        needs = tuple(self._names[name][1] if name in self._names else name for name in wanted.needs)
        whole = merge(wanted.model_copy(update={"needs": needs}), sheet.given, sheet.limits)
        try:
            request = ready(whole, sheet.settings, f"batch:{task}")
        except SwarmError as error:
            return Bad(number, TaskError(f"line {number}: {error}", error.mend))
        return Entry(number, request.model_copy(update={"task": task, "batch": sheet.name}))

    def _named(self, number: int, wanted: BatchTask, text: str) -> str:
        said = json.dumps(json.loads(text), sort_keys=True)
        self._seen[said] += 1
        own = f"id:{wanted.id}" if wanted.id else f"text:{said}:{self._seen[said]}"
        task = f"{prefix(self._sheet.name)}-{hashlib.sha256(own.encode()).hexdigest()[:12]}"
        if wanted.id:
            before = self._names.setdefault(wanted.id, (number, task))
            if before[0] != number:
                raise TaskError(f'line {number}: the id "{wanted.id}" is taken by line {before[0]}', "give it another")
        return task


def prefix(name: str) -> str:
    """What the ids of a batch's tasks begin with."""
    return f"b{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def whole(sheet: Sheet, lines: Iterable[str]) -> tuple[list[Entry], list[Bad]]:
    """All lines of a file, those that are needed before those that need them. Raises TaskError: too many, or a ring."""
    reader = Reader(sheet)
    found: list[tuple[int, BatchTask, str]] = []
    bad: list[Bad] = []
    for number, text in enumerate(lines, 1):
        if number > MOST:
            raise TaskError(f"the batch has more than {MOST} lines", "hand it in as several files")
        match reader.read(number, text):
            case Bad() as one:
                bad.append(one)
            case (wanted, task):
                found.append((number, wanted, task))
    made = [reader.entry(*one) for one in found]
    bad += [one for one in made if isinstance(one, Bad)]
    entries = [one for one in made if isinstance(one, Entry)]
    _no_ring(entries)
    return list(_in_order(entries)), sorted(bad, key=lambda one: one.line)


def _no_ring(entries: Sequence[Entry]) -> None:
    lines = {str(one.request.task): one.line for one in entries}
    ring = cycle({str(one.request.task): [need for need in one.request.needs if need in lines] for one in entries})
    if ring:
        told = " → ".join(f"line {lines[task]}" for task in ring)
        raise TaskError(f"the lines need one another in a ring: {told}", "take one of these needs out")


def _in_order(entries: Sequence[Entry]) -> Iterator[Entry]:
    by_task = {str(one.request.task): one for one in entries}
    done: set[str] = set()
    for start in by_task:
        stack = [start]
        while stack:
            task = stack[-1]
            left = [need for need in by_task[task].request.needs if need in by_task and need not in done]
            if left and task not in done:
                stack += left
                continue
            stack.pop()
            if task not in done:
                done.add(task)
                yield by_task[task]


def _parsed(number: int, text: str) -> BatchTask:
    where = f"line {number}"
    if len(text) > LINE:
        raise ConfigError(f"{where}: is longer than {LINE} characters", "say it in fewer words")
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where}: is not JSON: {error}", _MEND) from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: is no JSON object", _MEND)
    try:
        return BatchTask.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        told = "; ".join(f"{one.key}: {one.message}" for one in problems(error, BatchTask, "")[:5])
        raise ConfigError(f"{where}: {told}", _MEND) from None


_MEND = 'each line is one JSON object, as {"repository": "sample", "instructions": "..."}; see: swarm help task-files'
