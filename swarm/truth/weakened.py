"""Everything that a change takes from its tests, from the files before and after: the door of this folder. Pure.

It judges words, not behaviour, so it warns and proves nothing: what proves is the run with the base's own tests put
back. Input is a stranger's: sizes are bounded, and what cannot be read is said to be that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from swarm.evidence import Tested
from swarm.truth import comparing, evaded, otherwise, steering
from swarm.truth.finding import finding
from swarm.truth.python import FileFacts, read_python
from swarm.truth.syntax import LIMIT
from swarm.types import Weakened

MOST = 100  # findings that are told
FILES = 200  # that are looked at
TOTAL = 2 * 1024 * 1024  # bytes of them all, before and after together

_MORE_TESTS = re.compile(
    r"(Tests?|IT|Spec|Specs)\.(java|kt|kts|scala|groovy|cs|fs|swift|php)$|_spec\.rb$|^test_.+|(^|/)benches/"
)


Facts = tuple[FileFacts | None, FileFacts | None]
Moved = Mapping[comparing.Place, comparing.Home]


@dataclass(frozen=True)
class Change:
    """One changed file: its content before and after, None where there is none. Longer content than LIMIT need not be
    whole: it is not compared."""

    before: bytes | None
    after: bytes | None


@dataclass(frozen=True)
class Read:
    """What the words of a change say: findings, and where tests are that are gone from their place."""

    found: tuple[Weakened, ...]
    moved: Mapping[comparing.Place, comparing.Place]


def weakened(changes: Mapping[str, Change], tested: Tested) -> tuple[Weakened, ...]:
    """The findings of `read`."""
    return read(changes, tested).found


def read(changes: Mapping[str, Change], tested: Tested) -> Read:
    """What these changes take from the tests of a command, at most MOST findings, by path.

    What a hostile change holds may take a processor some seconds: call it in a thread.
    """
    looked, left = _bounded(changes, tested)
    facts = {path: _facts(change) for path, change in looked.items() if path.endswith(".py") and tests(path, tested)}
    moved = comparing.moves(facts)
    found = [
        each
        for path, change in looked.items()
        for each in _of_file(path, change, facts.get(path, (None, None)), moved, tested)
    ]
    if left:
        names = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        found.append(finding("unread", left[0], f"too much was changed to compare it: {names}"))
    return Read(tuple(dict.fromkeys(found))[:MOST], {place: home.place for place, home in moved.items()})


def relevant(files: Iterable[str], tested: Tested) -> tuple[str, ...]:
    """Of changed files, those whose content says anything about tests, tests first; FILES and one more at most."""
    found = (path for path in files if path.endswith(".py") or tests(path, tested) or otherwise.stored(path))
    return tuple(sorted(found, key=lambda path: (not tests(path, tested), path))[: FILES + 1])


def tests(path: str, tested: Tested) -> bool:
    """Whether a path is that of a test, or of what steers tests."""
    return tested.holds(path) or bool(_MORE_TESTS.search(path.rpartition("/")[2]))


def _of_file(path: str, change: Change, facts: Facts, moved: Moved, tested: Tested) -> Iterator[Weakened]:
    before, after = change.before, change.after
    yield from steering.steered(path, before, after, tested)
    if path.endswith(".py") and tests(path, tested):
        yield from _of_python(path, change, facts, moved)
    elif path.endswith(".py"):
        yield from evaded.evaded(path, before, after) if after is not None else ()
    elif before is not None and otherwise.CODE.search(path):
        yield from otherwise.compared(path, before, after) if tests(path, tested) else ()
    elif before is not None and (otherwise.stored(path) or _beside_tests(path, tested)):
        how = "deleted" if after is None else "changed"
        yield finding("expectation", path, f"tests compare with it, and it was {how}")


def _of_python(path: str, change: Change, facts: Facts, moved: Moved) -> Iterator[Weakened]:
    before, after = facts
    if before is not None and change.after is None:
        yield from comparing.gone(path, before, moved)
    elif before is not None and after is not None:
        yield from comparing.compared(path, before, after, moved)
    elif (change.before is not None and before is None) or (change.after is not None and after is None):
        large = max(len(change.before or b""), len(change.after or b"")) > LIMIT
        words = f"it is larger than the {LIMIT} bytes that are compared" if large else "it cannot be read as Python"
        yield finding("unread", path, words)
    elif after is not None:
        yield from _of_new(path, after)


def _of_new(path: str, after: FileFacts) -> Iterator[Weakened]:
    if path.rpartition("/")[2] == "conftest.py":
        yield from comparing.added(path, after.functions)
    if after.exits:
        yield finding("exit", path, f"importing it ends the run: {after.exits}")
    if after.patches:
        names = ", ".join(sorted(after.patches)[:3])
        yield finding("patched", path, f"importing it replaces {names}")


def _facts(change: Change) -> Facts:
    return (
        read_python(change.before) if change.before is not None else None,
        read_python(change.after) if change.after is not None else None,
    )


def _beside_tests(path: str, tested: Tested) -> bool:
    """Whether a file that is no code lies in a folder of tests."""
    return "/" in path and not otherwise.CODE.search(path) and tested.holds(f"{path.rpartition('/')[0]}/x")


def _bounded(changes: Mapping[str, Change], tested: Tested) -> tuple[dict[str, Change], list[str]]:
    """The changes that are looked at, and paths of the others."""
    looked: dict[str, Change] = {}
    left, room = [], TOTAL
    for path in sorted(changes, key=lambda path: (not tests(path, tested), path)):
        size = sum(len(data) for data in (changes[path].before, changes[path].after) if data is not None)
        if len(looked) >= FILES or size > room:
            left.append(path)
            continue
        room -= size
        looked[path] = changes[path]
    return looked, left
