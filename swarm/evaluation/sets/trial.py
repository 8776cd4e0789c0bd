"""Finds out which tests of a function a module fails, in a child process with limits. For code that the set's own
package brought, with one change of ours in it; what a model wrote is only ever run in a sandbox."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from swarm.errors import EvaluationError
from swarm.evaluation.sets import trial_child
from swarm.evaluation.sets.functions import Checks

SECONDS = 2.0  # for one module
SLACK = 10.0  # for the start of a process


def failures(sources: Sequence[str], checks: Checks, *, seconds: float = SECONDS) -> list[tuple[int, ...] | None]:
    """For each module the places of the tests that it fails; None where it ended the whole process.

    One that cannot be loaded, or is too slow, fails all. Raises EvaluationError where no process can be started.
    """
    found: list[tuple[int, ...] | None] = []
    with tempfile.TemporaryDirectory(prefix="swarm-mutants-") as scratch:
        paths = [Path(scratch) / f"m{number}.py" for number in range(len(sources))]
        for path, source in zip(paths, sources, strict=True):
            path.write_text(_with_tests(source, checks), "utf-8")
        while len(found) < len(sources):
            lines = _run(paths[len(found) :], seconds)
            found += [_places(json.loads(line), len(checks.tests)) for line in lines]
            if len(found) < len(sources):
                found.append(None)
    return found


def _places(told: list[int], count: int) -> tuple[int, ...]:
    return tuple(range(count)) if -1 in told else tuple(told)


def _with_tests(source: str, checks: Checks) -> str:
    """The module, with its tests as functions behind it."""
    lines = [source, *checks.setting]
    for number, test in enumerate(checks.tests):
        lines += [f"def {trial_child.TEST}{number}(self):", *(f"    {line}" for line in test.split("\n"))]
    return "\n".join([*lines, ""])


def _run(paths: Sequence[Path], seconds: float) -> list[str]:
    command = [sys.executable, "-I", str(Path(trial_child.__file__)), str(seconds), *map(str, paths)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=paths[0].parent,
            env={},
            timeout=SLACK + seconds * len(paths),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raw = late.stdout or b""
        said = raw.decode() if isinstance(raw, bytes) else raw
    except OSError as error:
        raise EvaluationError(
            f"mutants cannot be tried: {error}", "see to it that Python can start processes"
        ) from error
    else:
        said = done.stdout
    return [line for line in said.splitlines(keepends=True) if line.endswith("\n")]
