"""The process in which mutants are tried: started by `trial` by its path, imports nothing of the project.

Reads one JSON object from standard input: ``sources`` (whole modules), ``setting`` and ``tests`` (statements), and
``seconds`` for each source. Writes one JSON line for each source: the places of the tests that it fails. A source that
makes the process itself end has no line; who reads goes on behind it.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import unittest
from types import FrameType
from typing import Any

MEMORY = 1024 * 1024 * 1024  # bytes


class TooSlowError(BaseException):
    """Not to be caught by code that catches everything it may."""


def _late(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError


def failing(source: str, setting: list[str], tests: list[str], seconds: float) -> list[int]:
    """Which tests a module fails; all, where it cannot be loaded or takes longer than that."""
    found: list[int] = []
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        space: dict[str, Any] = {"__name__": "tried", "self": unittest.TestCase()}
        exec(compile("\n".join([source, *setting]), "tried", "exec"), space)  # noqa: S102  what this process is for
        for number, test in enumerate(tests):
            try:
                exec(compile(test, "test", "exec"), space)  # noqa: S102
            except Exception:  # noqa: BLE001  any error is a failure of the test
                found.append(number)
    except (TooSlowError, Exception):  # noqa: BLE001
        return list(range(len(tests)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def main() -> None:
    """Try them one after the other."""
    told = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, _late)
    sys.setrecursionlimit(2000)
    answers, sys.stdout = sys.stdout, sys.stderr
    for source in told["sources"]:
        answers.write(json.dumps(failing(source, told["setting"], told["tests"], told["seconds"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
