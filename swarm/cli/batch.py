"""Batches: a file with one JSON object a line, into requests with keys and needs of their own. Pure.

The same file again makes nothing again: a line's key is the batch's name with the line's ``id`` or, without one, its
text, so lines may be added, moved and removed.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
RINGS = 10  # rings among the lines of a file that are told one by one
ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class BatchTask(TaskFile):
    """What one line may say: the keys of a task file, and what the other lines of the batch call it."""

    id: str | None = Field(
        default=None, pattern=ID, description="its name in this batch, for the `needs` of other lines"
    )


@dataclass(frozen=True)
class Entry:
    """A line that can be handed in. ``after`` has the lines that go before it, by the ids of their tasks."""

    line: int
    request: TaskRequest
    after: Mapping[str, int] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """The id of its task."""
        return str(self.request.task)


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
        after = {self._names[name][1]: self._names[name][0] for name in wanted.needs if name in self._names}
        needs = tuple(self._names[name][1] if name in self._names else name for name in wanted.needs)
        whole = merge(wanted.model_copy(update={"needs": needs}), sheet.given, sheet.limits)
        try:
            request = ready(whole, sheet.settings, f"batch:{task}")
        except SwarmError as error:
            return Bad(number, TaskError(f"line {number}: {error}", error.mend))
        return Entry(number, request.model_copy(update={"task": task, "batch": sheet.name}), after)

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
    """All lines of a file, those that are needed before those that need them. Raises TaskError for too many."""
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
    entries, ringed = _in_order([one for one in made if isinstance(one, Entry)])
    return entries, sorted([*bad, *ringed], key=lambda one: one.line)


def cut_off(entries: Iterable[Entry], wrong: Collection[int]) -> list[Bad]:
    """What cannot be handed in where the lines ``wrong`` are not, since it needs them; ``entries`` in their order."""
    left_out, found = set(wrong), list[Bad]()
    for one in entries:
        needed = sorted(left_out.intersection(one.after.values()))
        if needed and one.line not in left_out:
            left_out.add(one.line)
            words = f"line {one.line}: needs line {needed[0]}, which cannot be handed in"
            found.append(Bad(one.line, TaskError(words, f"mend line {needed[0]} first")))
    return found


def _in_order(entries: Sequence[Entry]) -> tuple[list[Entry], list[Bad]]:
    """Those that are needed first; and those that can never be, as they need one another in a ring or need such."""
    left = {one.task: one for one in entries}
    waiting = {task: sum(need in left for need in set(one.request.needs)) for task, one in left.items()}
    needed_by: dict[str, list[str]] = {}
    for task, one in left.items():
        for need in set(one.request.needs).intersection(left):
            needed_by.setdefault(need, []).append(task)
    ready_, ordered = deque(task for task, count in waiting.items() if not count), list[Entry]()
    while ready_:
        ordered.append(left.pop(done := ready_.popleft()))
        for task in needed_by.get(done, ()):
            waiting[task] -= 1
            if not waiting[task]:
                ready_.append(task)
    return ordered, list(_ringed(left))


def _ringed(left: dict[str, Entry]) -> Iterator[Bad]:
    """Each of these lines, with the ring that it is in as far as few enough were looked for."""
    for _ in range(RINGS):
        ring = cycle({task: [need for need in one.request.needs if need in left] for task, one in left.items()})
        told = " → ".join(f"line {left[task].line}" for task in ring)
        for task in dict.fromkeys(ring):
            line = left.pop(task).line
            yield Bad(line, TaskError(f"line {line}: needs itself in a ring: {told}", "take one of these needs out"))
    for one in left.values():
        words = f"line {one.line}: needs lines that need one another in a ring"
        yield Bad(one.line, TaskError(words, "take one of these needs out"))


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
