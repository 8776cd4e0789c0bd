"""What a conversation begins with beside the task: the files that it names, and how the tests stand before any change.

A weak model does not look before it writes: it makes up what a file holds and what a test says. So both are shown to
it, as its own tools would show them, before it says a word. Times are left out, so that siblings share the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pool.types import Traits
from swarm import recording
from swarm.conversation import room
from swarm.history import shorten
from swarm.tools.kit import Result, Toolkit
from swarm.work import Work

_MOST, _SHARE = 12_000, 0.2  # characters of all files, and their share of the window
_TESTS = 2500  # characters of what the tests say
_FILES = 4
_SECONDS, _PART = 60.0, 0.05  # that the test run may take at most, and of the time that is left
_LINES = (400, 200, 100, 50)  # of a file that is too long, as many as fit
_TIMES = re.compile(r",? ?\b(?:in )?\d+\.\d+ ?s(?:econds)?\b")
_PLACES = re.compile(r'File "(?P<quoted>[^"\n]+)", line \d+|^(?P<plain>[\w./-]+\.\w+):\d+', re.MULTILINE)


@dataclass(frozen=True)
class Scene:
    """What is shown first; ``shown`` is what the tools have to know of it, ``failing`` whether the tests fail."""

    text: str = ""
    shown: tuple[Mapping[str, Any], ...] = ()
    failing: bool = False


async def scene(work: Work, kit: Toolkit, traits: Traits) -> Scene:
    """Look at the files and run the tests once. Raises SandboxError for broken machinery only."""
    tests = await _tested(work, kit)
    told = _TIMES.sub("", tests.text) if tests is not None else ""
    paths = work.task.request.paths or tuple(_places(told))
    most = min(_MOST, int(traits.window * _SHARE * room.BYTES)) if traits.window else _MOST
    parts, shown = [], []
    for path in paths[:_FILES]:
        seen = await _seen(kit, path, most)
        if seen is not None:
            most -= len(seen.text)
            parts.append(f"{path}:\n{seen.text}")
            shown += _shown(seen)
    if told:
        parts.append(f"The tests as they stand now:\n{shorten(told, _TESTS)}")
    failing = tests is not None and not tests.ok and not tests.data.get("timed_out")  # a long run tells nothing
    return Scene("\n\n".join(parts), tuple(shown), failing)


async def _tested(work: Work, kit: Toolkit) -> Result | None:
    """The tests on the untouched checkout, as far as they come in the time they get; None where there are none."""
    if not work.test_command:
        return None
    work.pool.acting(work.attempt, "run_tests")
    seconds = max(1.0, min(_SECONDS, work.ledger.seconds_left() * _PART))
    result = await kit.tests(seconds)
    data = {key: value for key, value in result.data.items() if key != "outputs"}
    await work.record("command", {"tool": "run_tests", **data, "changed": False, "about": recording.BEFORE})
    return result


async def _seen(kit: Toolkit, path: str, most: int) -> Result | None:
    """A file as it is viewed, its beginning where it is long; None where there is no such file, or no room."""
    for last in _LINES:
        seen = await kit.run("view", {"path": path, "last": last})
        if not seen.ok:
            return None
        if len(seen.text) <= most:
            return seen
    return None


def _shown(seen: Result) -> list[Mapping[str, Any]]:
    shown = seen.data.get("shown")
    return [one for one in (shown if isinstance(shown, list) else [shown]) if isinstance(one, Mapping)]


def _places(text: str) -> Iterable[str]:
    """Files of the repository that what the tests say leads to, the last of each trace first, tests after the rest."""
    found = [match["quoted"] or match["plain"] for match in _PLACES.finditer(text)]
    inside = [path.removeprefix("/workspace/").removeprefix("./") for path in found]
    own = dict.fromkeys(path for path in reversed(inside) if not path.startswith(("/", "..", "<")))
    return sorted(own, key=lambda path: "test" in path)
