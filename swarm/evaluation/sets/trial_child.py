"""The process in which mutants are tried: started by `trial` by its path, imports nothing of the project.

Its arguments are the seconds for each module and the files of modules, each of which holds its own tests as functions
``tried_NUMBER(self)``. Writes one JSON line for each: the places of the tests that it fails. A module that makes the
process itself end has no line; who reads goes on behind it.
"""

from __future__ import annotations

import json
import resource
import runpy
import signal
import sys
import unittest
from types import FrameType

MEMORY = 1024 * 1024 * 1024  # bytes
TEST = "tried_"


class TooSlowError(BaseException):
    """Not to be caught by code that catches everything it may."""


def _late(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError


def failing(path: str, seconds: float) -> list[int]:
    """Which tests a module fails; -1 where it cannot be loaded, or takes longer than that over all of it."""
    found: list[int] = []
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        made = runpy.run_path(path, run_name="tried")
        tests = [(int(name.removeprefix(TEST)), test) for name, test in made.items() if name.startswith(TEST)]
        for number, test in tests:
            try:
                test(unittest.TestCase())
            except Exception:  # noqa: BLE001  any error is a failure of the test
                found.append(number)
    except (TooSlowError, Exception):  # noqa: BLE001
        return [-1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def main() -> None:
    """Try them one after the other."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, _late)
    sys.setrecursionlimit(2000)
    sys.dont_write_bytecode = True
    seconds, *paths = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr
    for path in paths:
        answers.write(json.dumps(failing(path, float(seconds))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
