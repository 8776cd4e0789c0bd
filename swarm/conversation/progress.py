"""Whether an agent still gets anywhere: a detector over its last calls, and what is said to it. Pure.

The patterns and their numbers begin with OpenHands' stuck detector (same call and result 4 times, same error 3, no call
3, alternation 6, over 20 events); that a hint comes before the end is what OpenHands/software-agent-sdk#4331 asks for.
Added are longer circles, polls without end, edits that undo one another, tests that do not move, and plans alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from swarm.conversation import circles
from swarm.conversation.events import PASSED, Event
from swarm.types import Frozen, Step

Pattern = Literal["repetition", "poll", "error", "alternation", "circle", "undoing", "tests", "planning", "monologue"]
WINDOW = 20  # events that are looked at
EVENT = "event"
"""The key of a journal line under which its event is kept, so that a restart goes on counting."""

# How often a pattern is seen before it is told of, and before the attempt is over.
LIMITS: Mapping[Pattern, tuple[int, int]] = {
    "repetition": (3, 6),
    "poll": (12, 40),
    "error": (3, 6),
    "alternation": (6, 10),
    "circle": (12, 18),
    "undoing": (2, 4),
    "tests": (4, 10),
    "planning": (4, 10),
    "monologue": (1, 6),
}
_SILENT = {"": 0, "words": 6, "broken": 6, "reasoning": 6, "empty": 5}
"""Answers in a row without a call that can be run after which it is over, by the kind of the last."""
_SAME = 4  # of them that are the same word for word: asked otherwise and hotter, the model answers alike


class Stuck(Frozen):
    """A pattern that was seen ``count`` times. ``over`` holds where a hint was of no use."""

    pattern: Pattern
    count: int = Field(gt=0)
    over: bool
    text: str


@dataclass(frozen=True)
class Progress:
    """The last events, for how many test runs in a row, with a change before each, the same tests fail, and how often
    in a row one call was made whose results differ by numbers at most."""

    events: tuple[Event, ...] = ()
    tests: str = ""
    unmoved: int = 0
    changed: bool = False
    polls: int = 0

    def after(self, event: Event) -> Progress:
        """With one more event."""
        events = (*self.events, event)[-WINDOW:]
        kept = replace(self, events=events, changed=self.changed or event.change, polls=self._polls(event))
        if not event.tests:
            return kept
        if event.tests != self.tests:
            return replace(kept, tests=event.tests, unmoved=int(event.tests != PASSED), changed=False)
        return replace(kept, unmoved=self.unmoved + int(self.changed and event.tests != PASSED), changed=False)

    def _polls(self, event: Event) -> int:
        last = self.events[-1] if self.events else None
        if event.silence:
            return 0
        same = last is not None and bool(event.words) and (event.call, event.words) == (last.call, last.words)
        return self.polls + 1 if same else 1


def of(past: Iterable[Step]) -> Progress:
    """The progress as the journal tells it."""
    progress = Progress()
    for step in past:
        if (told := step.data.get(EVENT)) is not None:
            progress = progress.after(Event.model_validate(told))
    return progress


def stuck(progress: Progress) -> Stuck | None:
    """The worst pattern that holds with the last event, worth a word; None while all is well."""
    found = [one for one in _patterns(progress) if one.count >= LIMITS[one.pattern][0]]
    return max(found, key=lambda one: (one.over, one.count / LIMITS[one.pattern][1]), default=None)


def idle(progress: Progress) -> int:
    """Answers in a row without a call that could be run."""
    return len(_silent_turns(progress.events))


def _patterns(progress: Progress) -> Iterator[Stuck]:
    events = progress.events
    if not events:
        return
    yield from _silence(events)
    if events[-1].silence:
        return
    yield from _told("repetition", circles.repeated(events))
    yield from _told("poll", progress.polls)
    yield from _told("error", circles.errors(events))
    yield from _told("alternation", circles.alternating(events))
    yield from _told("circle", circles.circling(events))
    yield from _told("undoing", circles.undoing(events))
    yield from _told("planning", circles.planning(events))
    if events[-1].tests:
        yield from _told("tests", progress.unmoved)


def _told(pattern: Pattern, count: int) -> Iterator[Stuck]:
    if count:
        text = _HINTS[pattern].format(count=count)
        yield Stuck(pattern=pattern, count=count, over=count >= LIMITS[pattern][1], text=text)


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


_HINTS: Mapping[Pattern, str] = {
    "repetition": (
        "[You have made this same call {count} times with the same result. It will not change. Try something "
        "different: look at other files, question what you assumed, or finish with what you have.]"
    ),
    "poll": (
        "[This is call {count} of the same command, and only numbers differ in what it gives. If something runs, "
        "wait for it within one command (sleep, a loop with an end), or do something else meanwhile.]"
    ),
    "error": (
        "[{count} calls in a row failed for the same reason. Read the error again: it says what to change. If it "
        "stays, reach the goal in another way.]"
    ),
    "alternation": (
        "[You go back and forth between the same two steps, {count} by now. Neither brings anything new. Stop, say to "
        "yourself what you know and what is missing, and take another way.]"
    ),
    "circle": (
        "[The last {count} steps are the same few over and over, with the same results. Stop, say to yourself what "
        "you know and what is missing, and do something that you have not done yet.]"
    ),
    "undoing": (
        "[This edit takes back an earlier one, {count} times by now. Decide on one version: find out with a small "
        "command which is right before you edit again.]"
    ),
    "tests": (
        "[{count} test runs, with changes before each, and the same tests fail. The cause is elsewhere than where you "
        "edit. Read one failing test and its error from the start, and print what really happens.]"
    ),
    "planning": ("[{count} plans in a row, and nothing done. The list is good enough: take its first open step now.]"),
}
