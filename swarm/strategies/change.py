"""A change in words: a diff of two workspaces for a model to read, and what of the code lies around it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandbox.base import Sandbox
from sandbox.errors import SandboxPathError
from swarm import history
from swarm.strategies import spectrum
from swarm.strategies.candidates import changed
from swarm.strategies.carry import index, named

_FILE = 400_000
_MOST_FILES = 60
_LONGEST_LINE = 2000

Files = Mapping[str, tuple[bytes | None, bytes | None]]
"""Contents by path, before and after; None where there is none, or it is no file."""


@dataclass(frozen=True)
class Told:
    """A change as text. ``paths`` are all that were meant, ``files`` the contents of the first of them."""

    paths: tuple[str, ...]
    files: Files
    diff: str

    @property
    def size(self) -> int:
        """Characters that differ."""
        return sum(changed(_text(before or b""), _text(after or b"")) for before, after in self.files.values())

    def pieces(self, limit: int) -> str:
        """The functions that the change is in, as they are now."""
        found: dict[str, str] = {}
        for path, (before, after) in self.files.items():
            if after is None or b"\0" in after:
                continue
            for line in _lines_changed(_text(before or b""), _text(after)):
                piece = spectrum.suspect(path, _text(after), line, 1.0)
                found.setdefault(f"{path} {piece.function or f'line {line}'}:\n{piece.around}", "")
        return history.shorten(history.clean("\n\n".join(found)), limit)


async def told(
    beginning: Sandbox, now: Sandbox, *, paths: tuple[str, ...] | None = None, context: int = 6, limit: int = 24_000
) -> Told:
    """What one workspace became; ``paths`` are those that differ, where that is known. Raises SandboxError."""
    if paths is None:
        paths = named(await index(beginning), await index(now)).work
    files = {path: (await _read(beginning, path), await _read(now, path)) for path in paths[:_MOST_FILES]}
    files = {path: pair for path, pair in files.items() if pair != (None, None)}  # a folder
    return Told(tuple(files) + paths[_MOST_FILES:], files, diff_of(files, context=context, limit=limit))


def diff_of(files: Files, *, context: int, limit: int) -> str:
    """A unified diff, cleaned and shortened. Pure."""
    parts: list[str] = []
    for path, (before, after) in files.items():
        if any(side is not None and b"\0" in side for side in (before, after)):
            parts.append(f"binary file {path} differs\n")
            continue
        names = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
        old, new = (_rows(side) for side in (before, after))
        parts.append("\n".join(difflib.unified_diff(old, new, *names, n=context, lineterm="")) + "\n")
    return history.shorten(history.clean("".join(parts)), limit)


def _rows(content: bytes | None) -> list[str]:
    return [row[:_LONGEST_LINE] for row in _text(content or b"").splitlines()]


def _lines_changed(before: str, after: str) -> Iterable[int]:
    """Numbers of the first line of each run of lines that is new or follows something removed."""
    rows = after.splitlines()
    matcher = difflib.SequenceMatcher(a=before.splitlines(), b=rows, autojunk=False)
    return [min(start + 1, max(1, len(rows))) for tag, _, _, start, _ in matcher.get_opcodes() if tag != "equal"]


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


async def _read(sandbox: Sandbox, path: str) -> bytes | None:
    try:
        data = await sandbox.read(path, limit=_FILE)
    except SandboxPathError:
        return None
    return data
