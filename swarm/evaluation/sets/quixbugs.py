"""A clone of QuixBugs: ``quixbugs:FOLDER``. 40 classic algorithms with one faulty line each, Python alone.

The layout (https://github.com/jkoppel/QuixBugs, README and tests): ``python_programs/``, ``correct_python_programs/``,
``python_testcases/test_NAME.py`` for pytest, ``json_testcases/NAME.json`` with one ``[inputs, expected]`` a line, and
what tests lean on: a ``conftest.py`` that sets `pytest.use_correct` and `pytest.run_slow`, and ``load_testdata.py``.
(Where the last one lies is from memory: both places are looked at.) The agent sees the first half of a program's JSON
cases; graph programs, whose tests are code, it gets without any. Needs pytest where the sandbox runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from swarm.evaluation.case import Case, File
from swarm.evaluation.sets.reading import data, folder, inside, made, refuse, words

NAME = "quixbugs"
PROGRAMS, SOUND, TESTS, JSON = "python_programs", "correct_python_programs", "python_testcases", "json_testcases"
SECONDS = 20.0  # some of the bugs are loops without end
_HELPERS = ("node.py",)  # of programs, beside them
_LEANT_ON = ("load_testdata.py", f"{TESTS}/load_testdata.py", f"{TESTS}/node.py", f"{TESTS}/__init__.py")
_CONFTEST = (
    "import pathlib, sys\n\nimport pytest\n\nsys.path.insert(0, str(pathlib.Path(__file__).parent))\n"
    "pytest.use_correct = False\npytest.run_slow = False\n"
)
_LOADER = (
    "import json\nimport pathlib\n\n\ndef load_json_testcases(algorithm):\n"
    '    path = pathlib.Path(__file__).parent / "json_testcases" / f"{algorithm}.json"\n'
    "    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]\n"
)


class QuixBugs:
    """The Python programs of a clone."""

    licence = "MIT"

    def __init__(self, path: Path) -> None:
        self._top = folder(path, "a clone of QuixBugs")
        self.name = f"{NAME}:{path}"
        self.origin = f"QuixBugs in {self._top}"

    def cases(self) -> Iterator[Case]:
        """The programs that have a sound version and tests, by name. Raises EvaluationError."""
        for part in (PROGRAMS, SOUND, TESTS):
            folder(self._top / part, f"a clone of QuixBugs, which has {part}/")
        names = sorted(path.stem for path in (self._top / PROGRAMS).glob("*.py"))
        cases = [name for name in names if self._has(f"{SOUND}/{name}.py") and self._has(f"{TESTS}/test_{name}.py")]
        if not cases:
            refuse(self._top, f"has no program with both {SOUND}/ and {TESTS}/", "name a whole clone of QuixBugs")
        for name in cases:
            yield self._case(name)

    def _has(self, path: str) -> bool:
        return (self._top / path).is_file()

    def _case(self, name: str) -> Case:
        program = f"{PROGRAMS}/{name}.py"
        helpers = [f"{PROGRAMS}/{one}" for one in _HELPERS if self._has(f"{PROGRAMS}/{one}")]
        cases = self._data(f"{JSON}/{name}.json") if self._has(f"{JSON}/{name}.json") else b""
        seen = _first_half(cases)
        command = f"python3 -m pytest -q {words([f'{TESTS}/test_{name}.py'])}"
        return made(
            self._top / program,
            id=name,
            title=f"Repair {name}",
            statement=(
                f"{program} has a bug in a single line. Find it and repair that line. "
                "The program is judged by tests that are not here, so go by its description."
            ),
            files=(*map(self._file, (program, *helpers)), *(self._tests(name, seen) if seen else ())),
            hidden={"files": self._tests(name, cases), "command": command, "seconds": SECONDS, "paths": (program,)},
            test_command=command if seen else None,
            solution={"files": (File(path=program, content=self._data(f"{SOUND}/{name}.py")),)},
            look_first=(program,),
            labels={"tests": "json" if cases else "code"},
        )

    def _data(self, path: str) -> bytes:
        return data(inside(self._top, path))

    def _file(self, path: str) -> File:
        return File(path=path, content=self._data(path))

    def _tests(self, name: str, cases: bytes) -> tuple[File, ...]:
        found = [self._file(f"{TESTS}/test_{name}.py"), File(path="conftest.py", content=_CONFTEST.encode())]
        found += [self._file(path) for path in _LEANT_ON if self._has(path)]
        if not any(self._has(path) for path in _LEANT_ON[:2]):
            found.append(File(path="load_testdata.py", content=_LOADER.encode()))
        if cases:
            found.append(File(path=f"{JSON}/{name}.json", content=cases))
        return tuple(found)


def _first_half(cases: bytes) -> bytes:
    """At least one of the lines; none where there is but one."""
    lines = [line for line in cases.splitlines(keepends=True) if line.strip()]
    return b"".join(lines[: len(lines) // 2])
