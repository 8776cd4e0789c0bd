"""What was taken from the tests of one Python file: its facts before and after become findings. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from swarm.truth.finding import finding
from swarm.truth.python import FileFacts, TestFacts
from swarm.types import Weakened

_WANTS = 200  # assertions of one test that are set against one another

Place = tuple[str, str]
"""The path of a file, and a test of it as ``Class.name``."""


@dataclass(frozen=True)
class Home:
    """Where a test that moved is now, and what it is there."""

    place: Place
    facts: TestFacts


def compared(path: str, before: FileFacts, after: FileFacts, moved: Mapping[Place, Home]) -> Iterator[Weakened]:
    """Findings of a file that is there before and after. A test that ``moved`` is compared with what it became."""
    if after.skip and after.skip != before.skip:
        yield finding("skipped", path, f"the whole file is skipped: {after.skip}")
    if after.exits and after.exits != before.exits:
        yield finding("exit", path, f"importing it ends the run: {after.exits}")
    if new := sorted(after.patches - before.patches):
        yield finding("patched", path, f"importing it replaces {_some(new)}")
    for name, facts in before.functions.items():
        if (now := after.functions.get(name)) is not None:
            yield from _of_test(path, name, facts, now)
        elif (home := moved.get((path, name))) is not None:
            yield from _of_test(*home.place, facts, home.facts)
        elif name in before.tests:
            yield finding("deleted", path, "this test is gone", name)
    yield from added(path, {name: facts for name, facts in after.functions.items() if name not in before.functions})


def added(path: str, functions: Mapping[str, TestFacts]) -> Iterator[Weakened]:
    """Findings of functions that are new and run around tests that were there: fixtures, set-ups, own assertions."""
    for name, facts in functions.items():
        if not facts.always:
            continue
        if name.rpartition(".")[2].startswith("assert"):
            yield finding("patched", path, "it takes the place of an assertion", name)
        if facts.skip:
            yield finding("skipped", path, f"around every test it runs {facts.skip}", name)
        if facts.exits:
            yield finding("exit", path, f"around every test it runs {facts.exits}", name)
        if facts.patches:
            yield finding("patched", path, f"around every test it replaces {_some(sorted(facts.patches))}", name)


def gone(path: str, before: FileFacts, moved: Mapping[Place, Home]) -> Iterator[Weakened]:
    """Findings of a file that is there no more."""
    lost = [name for name in before.tests if (path, name) not in moved]
    if lost:
        yield finding("deleted", path, f"the file is gone with its tests: {_some(lost)}")
    for name, facts in before.tests.items():
        if (home := moved.get((path, name))) is not None:
            yield from _of_test(*home.place, facts, home.facts)


def moves(files: Mapping[str, tuple[FileFacts | None, FileFacts | None]]) -> dict[Place, Home]:
    """Tests that are gone from their place and are new in another, or under another name, with the same body. Each new
    one stands for one that is gone."""
    homes = _Homes()
    for path, (before, after) in files.items():
        old = before.functions if before else {}
        for name, facts in (after.tests if after else {}).items():
            if name not in old and facts.body:
                homes.add(Home((path, name), facts))
    found: dict[Place, Home] = {}
    for path, (before, after) in files.items():
        for name, facts in (before.tests if before else {}).items():
            gone = after is None or name not in after.functions
            if gone and (home := homes.taken(facts.body, name)) is not None:
                found[path, name] = home
    return found


class _Homes:
    """New tests by their bodies, each to be taken once; one of the same name is taken first."""

    def __init__(self) -> None:
        self._by_body: dict[str, dict[Place, Home]] = {}
        self._by_name: dict[tuple[str, str], list[Place]] = {}

    def add(self, home: Home) -> None:
        self._by_body.setdefault(home.facts.body, {})[home.place] = home
        self._by_name.setdefault((home.facts.body, _last(home.place[1])), []).append(home.place)

    def taken(self, body: str, name: str) -> Home | None:
        there, named = self._by_body.get(body), self._by_name.get((body, _last(name)), [])
        while there and named:
            if (home := there.pop(named.pop(), None)) is not None:
                return home
        return there.popitem()[1] if there else None


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _of_test(path: str, name: str, before: TestFacts, after: TestFacts) -> Iterator[Weakened]:
    if after.skip and after.skip != before.skip:
        yield finding("skipped", path, f"it is skipped, or may fail, now: {after.skip}", name)
    if after.exits and after.exits != before.exits:
        yield finding("exit", path, f"it ends the run: {after.exits}", name)
    if new := sorted(after.patches - before.patches):
        yield finding("patched", path, f"it replaces {_some(new)}", name)
    yield from _of_checks(path, name, before, after)
    if after.cases < before.cases:
        yield finding("fewer", path, f"it has {after.cases} cases and had {before.cases}", name)
    for key, number in after.numbers.items():
        if key in before.numbers and number > before.numbers[key]:
            words = f"{key} was {abs(before.numbers[key]):g} and is {abs(number):g}"
            yield finding("loosened", path, words, name)
        elif key not in before.numbers and key in {"reruns", "max_runs"}:
            yield finding("loosened", path, f"it is run again until it passes: {key}={number:g}", name)


def _of_checks(path: str, name: str, before: TestFacts, after: TestFacts) -> Iterator[Weakened]:
    """The first that holds: nothing is asserted any more, less is, something weaker is, something else is."""
    old, new = before.checks, after.checks
    if old and not new:
        idle = ": what is left can never fail" if after.idle > before.idle else ""
        yield finding("emptied", path, f"it asserts nothing any more{idle}", name)
    elif len(new) < len(old):
        idle = ", and some that can never fail" if after.idle > before.idle else ""
        yield finding("fewer", path, f"it has {len(new)} assertions{idle} and had {len(old)}", name)
    elif sum(each.strength for each in new) < sum(each.strength for each in old) and len(new) == len(old):
        yield finding("loosened", path, "it asserts less than it did", name)
    elif before.calls and not after.calls:
        yield finding("emptied", path, "it calls nothing any more that it could be a test of", name)
    elif after.idle > before.idle:
        yield finding("emptied", path, "it has new assertions that can never fail", name)
    for subject, was, now in _other_wants(before, after):
        yield finding("expectation", path, f"{subject} {now}, and was {was}", name)


def _other_wants(before: TestFacts, after: TestFacts) -> Iterator[tuple[str, str, str]]:
    """Assertions about the same thing that want another value; what both have is left out first."""
    old = Counter((each.subject, each.wanted) for each in before.checks)
    new = Counter((each.subject, each.wanted) for each in after.checks)
    lost, come = list((old - new).elements())[:_WANTS], list((new - old).elements())[:_WANTS]
    for subject, wanted in lost:
        other = next((pair for pair in come if pair[0] == subject and subject), None)
        if other is not None and wanted and other[1]:
            come.remove(other)
            yield subject, wanted, other[1]


def _some(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
