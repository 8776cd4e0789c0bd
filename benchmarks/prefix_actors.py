"""The tasks of `prefix_discipline`: real files, real tools, and scripted agents that behave in five known ways.

Each task is a row of HumanEvalFix in a folder with some modules of Python's own library around it. What its agent says
is made up, from a seed; what it is told is what the tools really gave. Lengths are those of public trajectories of
SWE-agent: 5 to 14 turns, remarks of some 250 characters, results of some 300 with single ones of 4,000 to 9,000. The
``long`` ones go on until they outgrow the window, once or twice: some 40 turns for each 8,192 tokens of it.
"""

from __future__ import annotations

import json
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from swarm.evaluation.case import Case
from swarm.evaluation.sets.catalogue import set_named

LIBRARY = (
    "json/decoder.py",
    "textwrap.py",
    "bisect.py",
    "fnmatch.py",
    "shlex.py",
    "csv.py",
    "string.py",
    "calendar.py",
)
WAYS = ("thrifty", "explorer", "tester", "blunderer", "long")
TASKS = 50
_SPEECH = """the function returns early when the list holds one element so the loop never sees the last pair and the
test that compares both ends fails I look at the definition first then at whoever calls it before I change a line"""


@dataclass(frozen=True)
class Actor:
    """One task and what its agent will say, answer by answer."""

    case: Case
    way: str
    answers: tuple[str, ...]


def actors(count: int, window: int) -> list[Actor]:
    """The first so many tasks for a window of so many tokens, in an order that is always the same."""
    cases = list(set_named("humanevalfix").cases())[:count]
    dice = random.Random  # the same every time, and no secret
    return [_actor(case, WAYS[number % len(WAYS)], dice(number), window) for number, case in enumerate(cases)]


def files_of(case: Case) -> dict[str, bytes]:
    """The repository: the row's files, and the library around them."""
    library = Path(sysconfig.get_paths()["stdlib"])
    around = {f"library/{name}": (library / name).read_bytes() for name in LIBRARY}
    return around | {file.path: file.content for file in case.files}


def _actor(case: Case, way: str, dice: random.Random, window: int) -> Actor:
    moves = {"thrifty": _thrifty, "explorer": _explorer, "tester": _tester, "blunderer": _blunderer}
    said = moves[way](case, dice) if way in moves else _long(case, dice, window)
    return Actor(case, way, (*said, *_end(case, dice)))


def _thrifty(case: Case, dice: random.Random) -> Iterator[str]:
    yield _call(dice, "view", path=_main(case))
    yield _call(dice, "run_tests")


def _explorer(case: Case, dice: random.Random) -> Iterator[str]:
    yield _call(dice, "shell", command="ls -l && ls library")
    for _ in range(dice.randint(4, 8)):
        yield dice.choice((_look, _grep))(dice)
    yield _call(dice, "view", path=_main(case))


def _tester(case: Case, dice: random.Random) -> Iterator[str]:
    yield _call(dice, "view", path=_main(case))
    for number in range(dice.randint(2, 5)):
        yield _call(
            dice,
            "write",
            path=f"probe_{number}.py",
            content=f"import {_main(case).removesuffix('.py')}\nprint({number})\n",
        )
        yield _call(dice, "shell", command=f"python3 probe_{number}.py")
        yield _call(dice, "run_tests")


def _blunderer(case: Case, dice: random.Random) -> Iterator[str]:
    yield _words(dice)
    yield _call(dice, "open_file", file_path=_main(case))
    yield _call(dice, "edit", path=_main(case), search="no such line anywhere", replace="x")
    yield f"{_words(dice)}\n```tool\n{{not json at all\n```"
    yield _call(dice, "launch", what="missiles")
    yield _look(dice)
    yield ""
    yield _call(dice, "shell", command="false && echo never")


def _long(case: Case, dice: random.Random, window: int) -> Iterator[str]:
    yield _call(dice, "view", path=_main(case))
    for number in range(dice.randint(34, 46) * window // 8192):
        yield _look(dice) if number % 3 else _grep(dice)


def _end(case: Case, dice: random.Random) -> Iterator[str]:
    """The reference solution, the tests, and finish."""
    if case.solution is None:
        raise SystemExit(f"{case.id} has no solution")
    for file in case.solution.files:
        yield _call(dice, "write", path=file.path, content=file.content.decode())
    yield _call(dice, "run_tests")
    yield _call(dice, "finish", title="Repair the function", summary=_words(dice))


def _look(dice: random.Random) -> str:
    first = dice.randint(1, 80)
    length = int(min(160, 10 + dice.expovariate(1 / 18)))
    return _call(dice, "view", path=f"library/{dice.choice(LIBRARY)}", first=first, last=first + length)


def _grep(dice: random.Random) -> str:
    word = dice.choice(("def __", "return None", "raise ", "import re", "isinstance", "for line"))
    return _call(
        dice, "shell", command=f"grep -rn '{word}' library/{dice.choice(LIBRARY)} | head -n {dice.randint(5, 40)}"
    )


def _main(case: Case) -> str:
    return case.look_first[0] if case.look_first else case.files[0].path


def _words(dice: random.Random) -> str:
    """A remark of some 250 characters."""
    return " ".join(dice.choices(_SPEECH.split(), k=max(4, int(dice.lognormvariate(3.8, 0.5)))))


def _call(dice: random.Random, name: str, **arguments: object) -> str:
    return f"{_words(dice)}\n```tool\n{json.dumps({'name': name, 'arguments': arguments})}\n```"
