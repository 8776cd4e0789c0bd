"""A clone of an Exercism track: ``exercism:FOLDER``, the track or one exercise of it.

The layout, from https://exercism.org/docs/building/tracks/practice-exercises: ``exercises/practice/NAME`` with
``.docs/introduction.md``, ``instructions.md`` and ``instructions.append.md``, and ``.meta/config.json`` whose ``files``
name ``solution`` (the stubs), ``test`` and ``example``. The agent gets the stubs and the words; the tests are hidden.
Each example takes the place of the stub at the same position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from swarm.evaluation.case import Case, File
from swarm.evaluation.sets.reading import (
    data,
    folder,
    holding,
    inside,
    json_object,
    made,
    plain,
    refuse,
    text,
    within,
    words,
)

NAME = "exercism"
SECONDS = 60.0
_CONFIG = ".meta/config.json"
_DOCS = ("introduction.md", "instructions.md", "instructions.append.md")
_COMMANDS: dict[str, Callable[[list[str]], str]] = {
    ".py": lambda tests: f"python3 -m pytest -q {words(tests)}",
    ".go": lambda _: "go test ./...",
    ".rs": lambda _: "cargo test --offline -- --include-ignored",
    ".rb": lambda tests: f"ruby {words(tests[:1])}",
    ".sh": lambda tests: f"bats {words(tests)}",
    ".bats": lambda tests: f"BATS_RUN_SKIPPED=true bats {words(tests)}",
}
"""How a track's own tests are run, by the ending of a test's name, where that needs nothing to be fetched."""


class Exercism:
    """The practice exercises of a track."""

    licence = "MIT"

    def __init__(self, path: Path) -> None:
        self._top = folder(path, "a clone of an Exercism track")
        self.name = f"{NAME}:{path}"
        self.origin = f"Exercism exercises in {self._top}"

    def cases(self) -> Iterator[Case]:
        """The exercises by name. Raises EvaluationError."""
        places = (self._top, self._top / "exercises" / "practice", self._top / "practice")
        found = next((all_ for place in places if place.is_dir() and (all_ := holding(place, _CONFIG))), [])
        if not found:
            refuse(self._top, "holds no exercise with a .meta/config.json", "name a clone of a track")
        for exercise in found:
            yield _case(exercise)


def _case(exercise: Path) -> Case:
    where = inside(exercise, _CONFIG)
    named = _named(json_object(where), where)
    stubs, tests, examples = named["solution"], named["test"], named["example"] or named["exemplar"]
    if not stubs or not tests:
        refuse(where, "files names no solution or no test", "fill in files.solution and files.test")
    command = _COMMANDS.get(Path(tests[0]).suffix)
    solution = [
        File(path=stub, content=data(within(exercise, example, where)))
        for stub, example in zip(stubs, examples, strict=False)
    ]
    return made(
        where,
        id=exercise.name,
        title=f"Solve {exercise.name}",
        statement=_statement(exercise, stubs),
        files=[_file(exercise, name, where) for name in dict.fromkeys([*stubs, *named["editor"]])],
        hidden={
            "files": [_file(exercise, name, where) for name in tests],
            "command": command(tests) if command else "false",
            "seconds": SECONDS,
        },
        solution={"files": solution} if solution else None,
        look_first=tuple(stubs),
        labels={"language": Path(stubs[0]).suffix.lstrip(".")},
        blocked="" if command else f"how tests ending in {Path(tests[0]).suffix!r} are run is not known here",
    )


def _named(told: dict[str, Any], where: Path) -> dict[str, list[str]]:
    """The lists of paths, each of them checked. Raises EvaluationError."""
    files = told.get("files")
    if not isinstance(files, dict):
        refuse(where, "has no object files", "name files.solution, files.test and files.example")
    found: dict[str, list[str]] = {}
    for kind in ("solution", "test", "example", "exemplar", "editor"):
        names = files.get(kind) or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            refuse(where, f"files.{kind} is no list of paths", "write it as a list of texts")
        found[kind] = [plain(name, where) for name in names]
    return found


def _file(exercise: Path, name: str, where: Path) -> File:
    return File(path=name, content=data(within(exercise, name, where)))


def _statement(exercise: Path, stubs: list[str]) -> str:
    docs = inside(exercise, ".docs")
    parts = [text(docs / name) for name in _DOCS if (docs / name).exists()]
    if not parts:
        refuse(docs, "holds no instructions.md", "put the exercise's instructions there")
    told = f"Write the solution into {', '.join(stubs)}. It is judged by tests that are not here."
    return "\n\n".join([*(part.strip() for part in parts), told])
