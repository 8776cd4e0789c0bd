"""The shapes of circles, each counted over an agent's last events. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from swarm.conversation.events import Event

LONGEST = 6
"""Steps of the longest circle that is told from work."""


def repeated(events: Sequence[Event]) -> int:
    """How often the last call gave its result since another call changed files: that makes its question a new one."""
    last = events[-1]
    count = 0
    for event in reversed(events):
        if event.change and event.call != last.call:
            break
        count += event.step == last.step
    return count


def errors(events: Sequence[Event]) -> int:
    """Calls in a row that failed in the same words. Commands that may have changed something count half: what they were
    after may be another thing each time."""
    last = events[-1]
    if last.ok or last.tests:
        return 0
    full = half = 0
    for event in reversed(events):
        if event.ok or event.tests or event.words != last.words:
            break
        half, full = half + event.change, full + (not event.change)
    return full + half // 2


def alternating(events: Sequence[Event]) -> int:
    """Length of the last run A B A B."""
    return _run([event.step for event in events if not event.silence], 2)


def circling(events: Sequence[Event]) -> int:
    """Length of the last run of three to six steps over and over, all with the same results."""
    steps = [event.step for event in events if not event.silence]
    return max(_run(steps, period) for period in range(3, LONGEST + 1))


def _run(steps: Sequence[tuple[str, str]], period: int) -> int:
    """Length of the last run that comes again every ``period`` steps and no sooner; 0 where it comes sooner."""
    if len(steps) < period or any(_same(steps, shorter, period) for shorter in range(1, period)):
        return 0
    run = period
    while run < len(steps) and steps[-run - 1] == steps[-run - 1 + period]:
        run += 1
    return run


def _same(steps: Sequence[tuple[str, str]], shorter: int, length: int) -> bool:
    """Whether the last ``length`` steps are already a run of a ``shorter`` period."""
    last = steps[-length:]
    return all(one == other for one, other in zip(last, last[shorter:], strict=False)) and length % shorter == 0


def undoing(events: Sequence[Event]) -> int:
    """How many edits take back another one, where the last one does: by their texts, or by what the file holds."""
    return max(_taken_back(events), _returned(events))


def _taken_back(events: Sequence[Event]) -> int:
    made: dict[str, int] = {}
    count, last = 0, False
    for event in events:
        if event.undoes and made.get(event.undoes):
            made[event.undoes] -= 1
            count, last = count + 1, True
        elif event.undo:
            made[event.undo] = made.get(event.undo, 0) + 1
            last = False
    return count if last and events[-1].undoes else 0


def _returned(events: Sequence[Event]) -> int:
    """How often a file was brought back into a state that an earlier edit had given it."""
    if not events[-1].state:
        return 0
    now: dict[str, str] = {}
    known: set[str] = set()
    count, last = 0, False
    for event in events:
        if event.state:
            last = event.state in known and now.get(event.file) != event.state
            count += last
            known.add(event.state)
            now[event.file] = event.state
    return count if last else 0


def planning(events: Sequence[Event]) -> int:
    """How many of the last calls touched nothing, with nothing but silence between."""
    count = 0
    for event in reversed(events):
        if not (event.planning or event.silence):
            break
        count += event.planning
    return count
