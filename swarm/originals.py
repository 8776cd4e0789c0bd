"""The base's own files in a workspace that a proposal changed: read at the base, put back over what is in the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sandbox.base import Sandbox
from sandbox.errors import SandboxError, SandboxPathError
from sandbox.types import Command
from swarm.evidence import Tested
from swarm.truth.reached import Walk

Originals = Mapping[str, tuple[bytes, bool] | None]
"""Content and executable bit of files of the base by path; None for those that it does not have."""

_LIMIT = 128_000_000  # bytes of all files together, which are held in memory
_AT_ONCE = 100
_READ = 64 * 1024  # bytes of a file in which mentions are looked for
# Whatever is no folder on the way to a path goes before the path itself: nothing is ever removed or written through a
# link, which may lead to the proposal's other files, to itself, or out.
_CLEAR = """for path in "$@"; do
  at=. rest=$path
  while [ "$rest" != "${rest#*/}" ]; do
    at=$at/${rest%%/*} rest=${rest#*/}
    if [ -L "$at" ] || { [ -e "$at" ] && [ ! -d "$at" ]; }; then rm -f -- "$at" || exit 1; break; fi
  done
  rm -rf -- "./$path" || exit 1
done"""


class TooLargeError(SandboxError):
    """The base's own files are too large to be put back."""


async def tested_by(base: Sandbox, command: str, changed: Iterable[str]) -> Tested:
    """The test command, with those of the ``changed`` files that the base's own files have it run, include or load.

    Mentions are followed through the texts of a workspace at the base, bounded in depth and number.
    """
    walk = Walk(command, changed)
    while (place := walk.next()) is not None:
        try:
            walk.take(place, (await base.read(place, limit=_READ)).decode("utf-8", "replace"))
        except SandboxPathError:
            walk.take(place, None)
    return Tested(command, walk.found)


async def originals_of(base: Sandbox, paths: Iterable[str], *, most: int = _LIMIT) -> Originals:
    """What a workspace at the base holds at these paths. Raises TooLargeError for more than ``most`` bytes, which is
    the doing of whoever touched it, and SandboxError for broken machinery."""
    found: dict[str, tuple[bytes, bool] | None] = {}
    room = most
    for path in paths:
        try:
            data = await base.read(path, limit=room + 1)
        except SandboxPathError:
            found[path] = None
            continue
        if (room := room - len(data)) < 0:
            raise TooLargeError(
                f"the change touches more than {most} bytes of the base's tests, too much to put back for "
                f"the checks: {path} and others"
            )
        mode = await base.run(Command(argv=("test", "-x", path)))
        found[path] = (data, mode.exit_code == 0)
    return found


async def put_back(sandbox: Sandbox, originals: Originals) -> None:
    """Give the base's own files their place again: added files go, changed and deleted ones come back.

    A plain file or a link where the base has a folder makes way for it. Raises SandboxError where that cannot be.
    """
    for paths in _pieces(tuple(originals)):
        cleared = await sandbox.run(Command(argv=("/bin/sh", "-c", _CLEAR, "sh", *paths)))
        if cleared.exit_code:
            raise SandboxError(f"the base's own files cannot be put back: {cleared.text[-300:].strip()}")
    for path, original in originals.items():
        if original is not None:
            await sandbox.write(path, original[0], executable=original[1])


def _pieces(paths: Sequence[str]) -> Iterable[Sequence[str]]:
    return (paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE))
