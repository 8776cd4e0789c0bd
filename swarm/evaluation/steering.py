"""Which of an agent's changes count before the hidden tests: none that decides how tests come out. Pure.

What is written here is what of the work is put back to the base. Code that counts runs in the tests' own process and
could still forge their report: see docs/evaluation.md for what that leaves open.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection

from sandbox.trees.names import above
from swarm.evaluation.case import Hidden
from swarm.evidence import is_test_file

_COMPILED = (".pyc", ".pyo", ".so", ".pth")
_METADATA = (".egg-info", ".dist-info")  # names a plugin that pytest loads, where it lies in the first folder
_BESIDE = frozenset({"iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "py", "attr", "coverage"})
_PATCHED = re.compile(r"^(?:\+\+\+|---) (?:[ab]/)?([^\t\n]+)", re.MULTILINE)


def judge_of(hidden: Hidden, base: Collection[bytes]) -> Callable[[bytes], bool]:
    """Whether a change at a path counts, where ``base`` are the paths that the base has."""
    own = frozenset(path.encode("utf-8", "surrogateescape") for path in places(hidden))
    over = frozenset(folder for path in own for folder in above(path))
    named = tuple(path.encode("utf-8", "surrogateescape") for path in hidden.paths)

    def counts(path: bytes) -> bool:
        if path in own or path in over or any(each in own for each in above(path)):
            return False
        if named:
            return any(path == each or (each.endswith(b"/") and path.startswith(each)) for each in named)
        return not steers(path.decode("utf-8", "surrogateescape"), hidden.command, new=path not in base)

    return counts


def places(hidden: Hidden) -> tuple[str, ...]:
    """The paths that the hidden tests take for themselves."""
    patched = tuple(path for path in _PATCHED.findall(hidden.patch) if path != "/dev/null")
    return (*(file.path for file in hidden.files), *patched, *(path.removesuffix("/") for path in hidden.removed))


def steers(path: str, command: str, *, new: bool) -> bool:
    """Whether a file decides how tests come out rather than what the program does.

    Tests, their settings and runners as `evidence.is_test_file` has them; what Python loads unasked or before the
    source (a compiled file, a plugin's metadata); and a new module in the first folder that takes the place of one of
    the standard library, or of what the runner needs.
    """
    parts = path.split("/")
    if is_test_file(path, command) or "__pycache__" in parts or path.endswith(_COMPILED):
        return True
    if any(part.endswith(_METADATA) for part in parts):
        return True
    first = parts[0].partition(".")[0] if len(parts) == 1 else parts[0]
    return new and (first in sys.stdlib_module_names or first in _BESIDE)
