"""The tool apply_patch: all files of a patch are changed, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sandbox.base import Sandbox
from sandbox.errors import SandboxPathError
from swarm.history import clean
from swarm.recording import fingerprint
from swarm.tools import syntax
from swarm.tools.arguments import ApplyPatch
from swarm.tools.editing import elided
from swarm.tools.editing.edit import Missed
from swarm.tools.editing.seen import Seen, kept
from swarm.tools.files import LIMIT, Files
from swarm.tools.pages import decode, page, split
from swarm.tools.patches import hunks, reading
from swarm.tools.patches.change import Change
from swarm.tools.patches.hunks import Applied
from swarm.tools.result import Result, refused
from swarm.tools.viewing import state

_SHOWN = 8  # hunks whose lines are shown, of all files
_FILES = 200
_NOTES = 5  # told of one file


@dataclass
class _State:
    """A file as the patch makes it: None for one that is not there. ``places`` are the changed lines,
    ``how`` is in what the patch was not followed to the letter."""

    data: bytes | None
    executable: bool = False
    places: list[tuple[int, int]] = field(default_factory=list)
    how: str = ""


class _MissedError(Exception):
    """A patch that does not fit; the message is for the model. Never leaves this file."""


class Patcher:
    """Applies patches."""

    def __init__(self, sandbox: Sandbox, files: Files, seen: Seen) -> None:
        self._sandbox, self._files, self._seen = sandbox, files, seen

    async def apply(self, asked: ApplyPatch, seconds: float | None) -> Result:
        """Apply one patch."""
        changes = reading.read(asked.patch)
        if isinstance(changes, Missed):
            return refused(f"the patch was not applied: {changes.reason}")
        if len(changes) > _FILES:
            return refused(f"the patch was not applied: it changes more than {_FILES} files")
        before: dict[str, _State] = {}
        after: dict[str, _State] = {}
        try:
            for change in changes:
                await self._plan(change, before, after)
        except _MissedError as error:
            return refused(f"the patch was not applied, nothing is changed: {clean(str(error))[:4000]}")
        await self._write(before, after)
        return await self._told(before, after, seconds)

    async def _plan(self, change: Change, before: dict[str, _State], after: dict[str, _State]) -> None:
        """What one change makes of its file, on top of those before it. Raises _MissedError."""
        path = await self._files.place(change.path)
        old = await self._state(path, before, after)
        if old.data is None and change.to is not None:  # as plain diff names one file: a.py.orig, a.py
            path, change = await self._files.place(change.to), replace(change, to=None)
            old = await self._state(path, before, after)
        if change.kind == "add":
            if old.data is not None:
                raise _MissedError(f"{path} is there already: update it, or delete it first")
            after[path] = _State(change.added.encode(), bool(change.executable), [(1, change.added.count("\n"))])
            return
        if old.data is None:
            raise _MissedError(f"there is no file {path}")
        if change.kind == "delete":
            if left := await asyncio.to_thread(hunks.left, old.data, change.hunks):
                raise _MissedError(f"{path} is not removed: {left}")
            after[path] = _State(None)
            return
        made = await asyncio.to_thread(_updated, path, old, change)
        if change.to is not None:
            target = await self._files.place(change.to)
            if target != path and (await self._state(target, before, after)).data is not None:
                raise _MissedError(f"{path} cannot become {target}, which is there already")
            after[path] = _State(None)
            path = target
        after[path] = made

    async def _state(self, path: str, before: dict[str, _State], after: dict[str, _State]) -> _State:
        """A file as it is now, or as the patch has made it so far."""
        if path in after:
            return after[path]
        if path not in before:
            found = await self._files.find(path)
            if found is not None and not found.whole:
                raise _MissedError(f"{path} is too large to patch (over {LIMIT} bytes)")
            executable = found is not None and await self._files.executable(path)
            before[path] = _State(found.data if found else None, executable)
        return before[path]

    async def _write(self, before: dict[str, _State], after: dict[str, _State]) -> None:
        """Bring the files into their new states; where one cannot be, all go back. Raises SandboxPathError then."""
        done: list[str] = []
        try:
            for path, new in after.items():
                done.append(path)
                await self._put(path, new)
        except SandboxPathError:
            for path in done:
                await self._put(path, before[path])
            raise

    async def _put(self, path: str, wanted: _State) -> None:
        if wanted.data is None:
            await self._files.remove(path)
        else:
            await self._files.write(path, wanted.data, executable=wanted.executable)

    async def _told(self, before: dict[str, _State], after: dict[str, _State], seconds: float | None) -> Result:
        """What was done, with the changed lines as they are now."""
        told, shown, room = [], [], _SHOWN
        for path, new in after.items():
            old = before[path].data
            if new.data is None:
                self._seen.forget(path)
                if old is not None:
                    told.append(f"removed {path}")
                continue
            told.append(f"{'added' if old is None else 'changed'} {path}{clean(new.how)}")
            if old is not None:
                told += _pages(new.data, new.places[: max(0, room)])
            room -= len(new.places)
            shown.append(self._remember(path, old, new))
            if wrong := await syntax.fault(self._sandbox, path, new.data, old or b"", seconds):
                told.append(wrong)
        data = {"path": ", ".join(after), "shown": shown}
        return Result("\n".join(told), kind="edit", data=data, changed=True)

    def _remember(self, path: str, old: bytes | None, new: _State) -> dict[str, object]:
        data = new.data or b""
        lines = split(decode(data))
        if old is None:
            seen = self._seen.show(path, fingerprint(data), len(lines), (1, len(lines)))
        else:
            seen = self._seen.renew(path, fingerprint(old), state(data, page(lines, len(lines) + 1)))
        return kept(path, seen)


def _updated(path: str, old: _State, change: Change) -> _State:
    """A file with the hunks applied. Raises _MissedError."""
    data = old.data or b""
    added = "\n".join(text for hunk in change.hunks for sign, text in hunk.lines if sign == "+")
    if line := elided.stand_in(added, decode(data)):
        raise _MissedError(f"{path}: {elided.refusal(line)}")
    made = hunks.apply(data, change.hunks)
    if isinstance(made, Missed):
        raise _MissedError(f"{path}: {made.reason}")
    executable = old.executable if change.executable is None else change.executable
    return _State(made.data, executable, list(made.places), _how(made))


def _how(made: Applied) -> str:
    ways = ("matched but for whitespace",) if made.tolerant else ()
    parts = (*ways, *made.notes[:_NOTES], *(("and more",) if len(made.notes) > _NOTES else ()))
    return f" ({'; '.join(parts)})" if parts else ""


def _pages(data: bytes, places: Sequence[tuple[int, int]]) -> list[str]:
    """The changed lines with three around, of long ones the beginning."""
    lines = split(decode(data))
    shown = [page(lines, max(1, first - 3), min(last, first + 40) + 3).text for first, last in places if lines]
    return ["\n...\n".join(text for text in shown if text)] if shown else []
