"""What attempts left behind, as data: read off references and transcripts, told apart and ordered. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from sandbox.trees.keeping import Kept
from swarm.store.snapshots import Entry as Snapshot
from swarm.types import Frozen, Step, TaskView

SALVAGE, LEFT, TRANSCRIPTS = "refs/salvage/", "refs/left/", "refs/transcripts/"
FORKS = "refs/forks/"
_KINDS: dict[Literal["attempt", "left", "fork"], str] = {"attempt": SALVAGE, "left": LEFT, "fork": FORKS}
ABOUT = "attempt.json"
LINES = "journal/"
_WORDS = re.compile(r"Salvage of attempt (?P<attempt>[A-Za-z0-9][A-Za-z0-9._-]{0,99})\Z")
_TOLD = re.compile(r"Transcript of attempt \S+ to line (?P<last>\d+)(?P<whole>, whole)?\Z")
_NAME = re.compile(r"(?P<task>[a-z0-9][a-z0-9-]*)-(?P<number>\d+)-[0-9a-f]{4}\Z")


class About(Frozen):
    """What a transcript says of its attempt, for when the database is gone. ``last`` is its last line's number."""

    version: Literal[1] = 1
    task: str
    attempt: str
    repository: str
    number: int
    title: str = ""
    base: str = ""
    tier: str = ""
    strategy: str = ""
    started: float = 0.0
    ended: float | None = None
    ending: str | None = None
    detail: str = ""
    last: int = 0


class Entry(Frozen):
    """One thing that an attempt left. ``id`` is the attempt's, or the sandbox's for what was found beside its work.

    A "fork" is what a forked task begins with: no attempt's own work, ``id`` is its reference, and it is only pruned.

    ``commit`` and ``tree`` are empty where only a transcript was left. ``place`` says where its objects are: in this
    host's git folder, in the shared database, or on the disk of whichever host worked on it.
    """

    id: str
    kind: Literal["attempt", "left", "fork"]
    attempt: str
    task: str
    repository: str
    ref: str
    commit: str = ""
    tree: str = ""
    base: str = ""
    at: float
    transcript: str = Field(default="", description="the commit that holds its transcript")
    whole: bool = Field(default=False, description="whether the transcript goes to the attempt's end")
    place: Literal["here", "database", "elsewhere"] = "here"
    size: int = Field(default=0, description="bytes of a snapshot in the database")
    number: int = 0
    state: str = Field(default="", description="of its task, where the database tells")
    ending: str = ""
    title: str = ""


def task_of(attempt: str) -> tuple[str, int]:
    """The task and the number in an attempt's id; the id itself and 0 where it has another form."""
    found = _NAME.match(attempt)
    return (found["task"], int(found["number"])) if found else (attempt, 0)


def reach(subject: str) -> tuple[int, bool]:
    """How far a transcript goes: its last line, and whether that is the attempt's end."""
    found = _TOLD.match(subject)
    return (int(found["last"]), bool(found["whole"])) if found else (0, False)


def words(about: About) -> str:
    """What a transcript's commit says."""
    end = "" if about.ended is None else ", whole"
    return f"Transcript of attempt {about.attempt} to line {about.last}{end}"


def entries_of(repository: str, kept: Iterable[Kept]) -> tuple[Entry, ...]:
    """The entries of one repository's references, the newest first."""
    kept = tuple(kept)
    told = {each.ref.removeprefix(TRANSCRIPTS): each for each in kept if each.ref.startswith(TRANSCRIPTS)}
    found = [_entry(repository, each, told) for each in kept if each.ref.startswith((SALVAGE, LEFT))]
    there = {entry.id for entry in found if entry.kind == "attempt"}
    found += [_told_only(repository, name, each) for name, each in told.items() if name not in there]
    return tuple(sorted(found, key=lambda entry: entry.at, reverse=True))


def forks_of(repository: str, kept: Iterable[Kept]) -> tuple[Entry, ...]:
    """What the forked tasks of one repository begin with."""
    return tuple(
        Entry(
            id=each.ref,
            kind="fork",
            attempt="",
            task=each.ref.removeprefix(FORKS),
            repository=repository,
            ref=each.ref,
            commit=each.commit,
            tree=each.tree,
            base=each.parent,
            at=each.at,
        )
        for each in kept
    )


def known_only(views: Iterable[TaskView], here: Collection[str]) -> Iterator[Entry]:
    """Entries that tasks tell of and that are not among the references ``here``."""
    for view in views:
        for attempt in view.attempts:
            if attempt.salvage and attempt.salvage not in here:
                yield Entry(
                    id=attempt.id,
                    kind="attempt",
                    attempt=attempt.id,
                    task=view.task.id,
                    number=attempt.number,
                    repository=view.task.request.repository,
                    ref=attempt.salvage,
                    at=attempt.ended or attempt.started,
                    place="elsewhere",
                )


def of_snapshot(snapshot: Snapshot) -> Entry | None:
    """A snapshot of the shared database; None for one under a reference that is not known here."""
    kind = next((kind for kind, prefix in _KINDS.items() if snapshot.ref.startswith(prefix)), None)
    if kind is None:
        return None
    return Entry(
        id=snapshot.ref if kind == "fork" else snapshot.ref.removeprefix(_KINDS[kind]),
        kind=kind,
        attempt="" if kind == "fork" else snapshot.attempt,
        task=snapshot.task,
        number=task_of(snapshot.attempt)[1],
        repository=snapshot.repository,
        ref=snapshot.ref,
        tree=snapshot.tree,
        base=snapshot.base,
        at=snapshot.at,
        place="database",
        size=snapshot.size,
    )


def newest(entry: Entry, snapshot: Snapshot | None) -> Entry:
    """What is here, or what another host has saved under the same reference since."""
    if snapshot is None or snapshot.tree == entry.tree or snapshot.at <= entry.at:
        return entry
    update = {"tree": snapshot.tree, "base": snapshot.base, "at": snapshot.at, "place": "database"}
    return entry.model_copy(update=update | {"size": snapshot.size})


def with_view(entry: Entry, view: TaskView) -> Entry:
    """The entry with what the database says of its task."""
    attempt = next((each for each in view.attempts if each.id == entry.attempt), None)
    ending = view.stand_of(attempt) if attempt else ""
    return entry.model_copy(update={"state": view.state.value, "title": titled(view), "ending": ending})


def with_about(entry: Entry, about: About | None) -> Entry:
    """The entry with what its own transcript says of it."""
    if about is None:
        return entry
    update = {"title": about.title, "ending": about.ending or "", "number": about.number, "task": about.task}
    return entry.model_copy(update=update)


def source(view: TaskView, lines: Iterable[Step]) -> str | None:
    """The reference of the work that an attempt went on from, by its first lines; None for one that began anew."""
    told = (step.data.get("continues") for step in lines if step.kind == "attempt")
    attempt = next((each for each in told if each), None)
    if attempt is None:
        return None
    own = any(each.id == attempt for each in view.attempts)
    return f"{SALVAGE}{attempt}" if own else f"{FORKS}{view.task.id}"


def titled(view: TaskView) -> str:
    """What a task is about, in one line."""
    request = view.task.request
    return (request.title or request.instructions.strip().split("\n", 1)[0])[:200]


def about_of(raw: bytes | None) -> About | None:
    """What a transcript says of its attempt; None where it cannot be read."""
    try:
        return About.model_validate_json(raw or b"")
    except ValidationError:
        return None


def lines_of(files: Mapping[str, bytes]) -> tuple[Step, ...]:
    """The journal's lines in a transcript, in order. What cannot be read is left out."""
    parts = [content for name, content in sorted(files.items()) if name.startswith(LINES)]
    found: list[Step] = []
    for line in b"".join(parts).splitlines():
        try:
            found.append(Step.model_validate_json(line))
        except ValidationError:
            continue
    return tuple(found)


def part(steps: Iterable[Step]) -> bytes:
    """Lines of the journal as a transcript keeps them."""
    return b"".join(_line(step.model_dump(mode="json")) for step in steps)


def matching(entries: Iterable[Entry], wanted: str) -> tuple[Entry, ...]:
    """The entries that a person means: by id, by reference, by a beginning of an id, or all of a task."""
    entries = tuple(entries)
    for fits in (
        lambda entry: wanted in {entry.id, entry.ref},
        lambda entry: wanted == entry.task,
        lambda entry: entry.id.startswith(wanted),
    ):
        if found := tuple(entry for entry in entries if fits(entry)):
            return found
    return ()


def _line(data: dict[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _entry(repository: str, kept: Kept, told: Mapping[str, Kept]) -> Entry:
    left = kept.ref.startswith(LEFT)
    name = kept.ref.removeprefix(LEFT if left else SALVAGE)
    said = _WORDS.match(kept.subject)
    attempt = said["attempt"] if left and said else name
    task, number = task_of(attempt)
    transcript = told.get(attempt)
    return Entry(
        id=name,
        kind="left" if left else "attempt",
        attempt=attempt,
        task=task,
        number=number,
        repository=repository,
        ref=kept.ref,
        commit=kept.commit,
        tree=kept.tree,
        base=kept.parent,
        at=kept.at,
        transcript=transcript.commit if transcript else "",
        whole=bool(transcript and reach(transcript.subject)[1]),
    )


def _told_only(repository: str, attempt: str, kept: Kept) -> Entry:
    task, number = task_of(attempt)
    return Entry(
        id=attempt,
        kind="attempt",
        attempt=attempt,
        task=task,
        number=number,
        repository=repository,
        ref=kept.ref,
        at=kept.at,
        transcript=kept.commit,
        whole=reach(kept.subject)[1],
    )
