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

    Raises EvaluationError where no process can be started.
    """
    found: list[tuple[int, ...] | None] = []
    while len(found) < len(sources):
        lines = _run(sources[len(found) :], checks, seconds)
        found += [tuple(json.loads(line)) for line in lines]
        if len(found) < len(sources):
            found.append(None)
    return found


def _run(sources: Sequence[str], checks: Checks, seconds: float) -> list[str]:
    told = {"sources": list(sources), "setting": checks.setting, "tests": checks.tests, "seconds": seconds}
    command = [sys.executable, "-I", str(Path(trial_child.__file__))]
    with tempfile.TemporaryDirectory(prefix="swarm-mutants-") as empty:
        try:
            done = subprocess.run(
                command,
                input=json.dumps(told),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=empty,
                env={},
                timeout=SLACK + seconds * len(sources),
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raw = late.stdout or b""
            said = raw.decode() if isinstance(raw, bytes) else raw
            return [line for line in said.splitlines(keepends=True) if line.endswith("\n")]
        except OSError as error:
            raise EvaluationError(
                f"mutants cannot be tried: {error}", "see to it that Python can start processes"
            ) from error
    return [line for line in done.stdout.splitlines(keepends=True) if line.endswith("\n")]
