"""Keeps the tests as the measure of the work: whoever would change one that is there is asked once whether it is meant.

Small models rather change what is expected than what is wrong.
"""

from __future__ import annotations

from sandbox.errors import SandboxPathError
from swarm.conversation.talk import Talk
from swarm.evidence import is_test_file
from swarm.speech.calls import Call
from swarm.tools.editing.edit import Missed
from swarm.tools.files import Files
from swarm.tools.patches import reading

EDITING = frozenset({"edit", "edit_lines", "write", "apply_patch"})


async def minded(talk: Talk, call: Call, *, alone: bool) -> tuple[str, ...]:
    """The tests that are there and that a call would change, where it is to be asked about that first: tests fail that
    the work is to mend, and it is not a call of its own that knows of the question. Nothing where it may be run."""
    work = talk.work
    if call.name not in EDITING or not talk.failing or work.task.request.changes_tests:
        return ()
    files = Files(work.sandbox)
    placed = dict.fromkeys([await files.place(path) for path in _paths(call)])
    tests = [path for path in placed if is_test_file(path, work.test_command or "") and await _there(talk, path)]
    if alone and talk.minded.issuperset(tests):
        return ()
    talk.minded.update(tests)
    return tuple(tests)


def _paths(call: Call) -> list[str]:
    """The files that a call names; those of a patch are the ones that it adds, changes, deletes and moves."""
    if call.name != "apply_patch":
        return [path for path in (str(call.arguments.get("path", "")),) if path]
    changes = reading.read(str(call.arguments.get("patch", "")))
    if isinstance(changes, Missed):  # the tool will tell
        return []
    return [path for change in changes for path in (change.path, change.to) if path]


async def _there(talk: Talk, path: str) -> bool:
    try:
        await talk.work.sandbox.read(path, limit=1)
    except SandboxPathError:
        return False  # a new one, or none
    return True
