"""Whether an agent still gets anywhere: a detector over its last calls, and what is said to it. Pure.

The patterns and their numbers begin with OpenHands' stuck detector (same call and result 4 times, same error 3, no call
3, alternation 6, over 20 events); that a hint comes before the end is what OpenHands/software-agent-sdk#4331 asks for.
Added are edits that undo one another and tests that do not move.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from swarm.types import Frozen, Step

Pattern = Literal["repetition", "error", "alternation", "undoing", "tests", "monologue"]
Silence = Literal["", "words", "reasoning", "empty", "broken"]
WINDOW = 20  # events that are looked at
EVENT = "event"
"""The key of a journal line under which its event is kept, so that a restart goes on counting."""
_LENGTH = 12
_VOLATILE = re.compile(r"0x[0-9a-fA-F]+|\b(?=[a-f]*\d)[0-9a-f]{7,64}\b|\d+(?:\.\d+)*|(?<=/tmp/)[\w.-]+")

# How often a pattern is seen before it is told of, and before the attempt is over.
LIMITS: Mapping[Pattern, tuple[int, int]] = {
    "repetition": (3, 6),
    "error": (3, 6),
    "alternation": (6, 10),
    "undoing": (2, 4),
    "tests": (4, 10),
    "monologue": (1, 6),
}
_SILENT = {"": 0, "words": 6, "broken": 6, "reasoning": 6, "empty": 5}
"""Answers in a row without a call that can be run after which it is over, by the kind of the last."""
_SAME = 4  # of them that are the same word for word: asked otherwise and hotter, the model answers alike


class Event(Frozen):
    """One thing that an agent did, by the names of what it said and heard.

    ``silence`` says why an answer held no call that could be run; ``change`` holds where the files were changed by an
    edit, ``undo`` names the edit with its effect, ``undoes`` the one that it would take back. ``tests`` names what a
    test run found failing, "passed" where nothing did.
    """

    turn: int
    call: str = ""
    result: str = ""
    ok: bool = True
    silence: Silence = ""
    change: bool = False
    undo: str = ""
    undoes: str = ""
    tests: str = ""


class Stuck(Frozen):
    """A pattern that was seen ``count`` times. ``over`` holds where a hint was of no use."""

    pattern: Pattern
    count: int = Field(gt=0)
    over: bool
    text: str


@dataclass(frozen=True)
class Progress:
    """The last events, and for how many test runs in a row, with a change before each, the same tests fail."""

    events: tuple[Event, ...] = ()
    tests: str = ""
    unmoved: int = 0
    changed: bool = False

    def after(self, event: Event) -> Progress:
        """With one more event."""
        kept = replace(self, events=(*self.events, event)[-WINDOW:], changed=self.changed or event.change)
        if not event.tests:
            return kept
        if event.tests != self.tests:
            return replace(kept, tests=event.tests, unmoved=int(event.tests != PASSED), changed=False)
        return replace(kept, unmoved=self.unmoved + int(self.changed and event.tests != PASSED), changed=False)


PASSED = "passed"


def of(past: Iterable[Step]) -> Progress:
    """The progress as the journal tells it."""
    progress = Progress()
    for step in past:
        if (told := step.data.get(EVENT)) is not None:
            progress = progress.after(Event.model_validate(told))
    return progress


def called(turn: int, name: str, arguments: Mapping[str, Any], text: str, *, ok: bool, change: bool) -> Event:
    """The event of a call that was run; ``change`` where it edited a file."""
    event = Event(turn=turn, call=_digest(name, _said(arguments)), result=_digest(plain(text)), ok=ok, change=change)
    before, after = arguments.get("search"), arguments.get("replace")
    if not change or before is None or after is None:
        return event
    path = str(arguments.get("path"))
    there, back = _digest(path, str(before), str(after)), _digest(path, str(after), str(before))
    return event.model_copy(update={"undo": there, "undoes": back})


def tested(event: Event, failed: Iterable[str], text: str, *, passed: bool) -> Event:
    """The event of a test run: which tests failed by their names, else what was printed."""
    names = sorted(failed)
    return event.model_copy(update={"tests": PASSED if passed else _digest(*names) if names else _digest(plain(text))})


def silent(turn: int, silence: Silence, text: str = "") -> Event:
    """The event of an answer without a call that could be run, or of one such call."""
    return Event(turn=turn, silence=silence, ok=False, result=_digest(plain(text)))


def stuck(progress: Progress) -> Stuck | None:
    """The worst pattern that holds with the last event, worth a word; None while all is well."""
    found = [one for one in _patterns(progress) if one.count >= LIMITS[one.pattern][0]]
    return max(found, key=lambda one: (one.over, one.count / LIMITS[one.pattern][1]), default=None)


def idle(progress: Progress) -> int:
    """Answers in a row without a call that could be run."""
    return len(_silent_turns(progress.events))


def plain(text: str) -> str:
    """Text without what differs from run to run: numbers, addresses, names of temporary files."""
    return _VOLATILE.sub("0", text)


def _patterns(progress: Progress) -> Iterator[Stuck]:
    events = progress.events
    if not events:
        return
    yield from _silence(events)
    if not events[-1].silence:
        yield from _told("repetition", _repeated(events), _REPETITION)
        yield from _told("error", _errors(events), _ERROR)
        yield from _told("alternation", _alternating(events), _ALTERNATION)
        yield from _told("undoing", _undoing(events), _UNDOING)
        if events[-1].tests:
            yield from _told("tests", progress.unmoved, _TESTS)


def _told(pattern: Pattern, count: int, text: str) -> Iterator[Stuck]:
    if count:
        yield Stuck(pattern=pattern, count=count, over=count >= LIMITS[pattern][1], text=text.format(count=count))


def _silence(events: tuple[Event, ...]) -> Iterator[Stuck]:
    turns = _silent_turns(events)
    if not turns:
        return
    last = turns[-1]
    same = next((n for n, one in enumerate(reversed(turns)) if one.result != last.result), len(turns))
    over = len(turns) >= _SILENT[last.silence] or (same >= _SAME and last.silence in {"words", "broken"})
    text = f"{len(turns)} answers in a row held no tool call that could be run"
    yield Stuck(pattern="monologue", count=len(turns), over=over, text=text)


def _silent_turns(events: tuple[Event, ...]) -> list[Event]:
    """Of each of the last turns that held nothing that could be run, its last event."""
    found: dict[int, Event] = {}
    for event in reversed(events):
        if not event.silence:
            found.pop(event.turn, None)  # the turn had something that could be run as well
            break
        found.setdefault(event.turn, event)
    return list(reversed(found.values()))


def _repeated(events: tuple[Event, ...]) -> int:
    """How often the last call gave its result since the last edit: an edit makes the same question a new one."""
    last = events[-1]
    count = 0
    for event in reversed(events):
        if event is not last and event.change:
            break
        count += (event.call, event.result) == (last.call, last.result)
    return count


def _errors(events: tuple[Event, ...]) -> int:
    """Different calls in a row that failed in the same words."""
    last = events[-1]
    if last.ok or last.tests:
        return 0
    run = 0
    for event in reversed(events):
        if event.ok or event.tests or event.result != last.result:
            break
        run += 1
    return run


def _alternating(events: tuple[Event, ...]) -> int:
    """Length of the last run A B A B."""
    names = [(event.call, event.result) for event in events if not event.silence]
    if len(names) < 2 or names[-1] == names[-2]:
        return 0
    run = 2
    while run < len(names) and names[-run - 1] == names[-run + 1]:
        run += 1
    return run


def _undoing(events: tuple[Event, ...]) -> int:
    """How many edits in the window take back another one, where the last one does."""
    if not events[-1].undoes:
        return 0
    made: dict[str, int] = {}
    count = 0
    for event in events:
        if event.undoes and made.get(event.undoes):
            made[event.undoes] -= 1
            count += 1
            last = True
        elif event.undo:
            made[event.undo] = made.get(event.undo, 0) + 1
            last = False
        else:
            continue
    return count if count and last else 0


def _said(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True, default=str)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:_LENGTH]


_REPETITION = (
    "[You have made this same call {count} times with the same result. It will not change. Try something different: "
    "look at other files, question what you assumed, or finish with what you have.]"
)
_ERROR = (
    "[{count} calls in a row failed for the same reason. Read the error again: it says what to change. If it stays, "
    "reach the goal in another way.]"
)
_ALTERNATION = (
    "[You go back and forth between the same two steps, {count} by now. Neither brings anything new. Stop, say to "
    "yourself what you know and what is missing, and take another way.]"
)
_UNDOING = (
    "[This edit takes back an earlier one, {count} times by now. Decide on one version: find out with a small command "
    "which is right before you edit again.]"
)
_TESTS = (
    "[{count} test runs, with changes before each, and the same tests fail. The cause is elsewhere than where you "
    "edit. Read one failing test and its error from the start, and print what really happens.]"
)
