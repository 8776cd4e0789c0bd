"""The tools edit, edit_lines and write: one file is changed, and all else in it stays."""

from __future__ import annotations

import asyncio
from collections import Counter

from sandbox.base import Sandbox
from swarm.history import clean
from swarm.recording import fingerprint
from swarm.tools import syntax
from swarm.tools.arguments import Edit, EditLines, Write
from swarm.tools.editing import edit as editing
from swarm.tools.editing import elided, hints, lines, overwriting
from swarm.tools.editing.edit import Edited, Missed
from swarm.tools.editing.seen import Seen, Shown, kept
from swarm.tools.files import LIMIT, Files
from swarm.tools.pages import decode, page, split
from swarm.tools.result import Result, refused
from swarm.tools.text import unix
from swarm.tools.viewing import around, state

_REASON = 4000
_STEER = (
    "\nThis is miss number {} in this file. Do not give this call again: view the file and change its lines by their "
    "numbers with edit_lines, or give the whole file with write."
)


class Writer:
    """Changes files one at a time."""

    def __init__(self, sandbox: Sandbox, files: Files, seen: Seen) -> None:
        self._sandbox, self._files, self._seen = sandbox, files, seen
        self._misses: Counter[str] = Counter()

    async def edit(self, asked: Edit, seconds: float | None) -> Result:
        """Search and replace."""
        path = await self._files.place(asked.path)
        found = await self._files.need(path, seconds)
        if not found.whole:
            return _too_large(path)
        search, new = hints.unfenced(asked.search, path), hints.unfenced(asked.replace, path)
        if line := elided.stand_in(unix(new), decode(found.data)):
            return refused(f"{path} is unchanged: {elided.refusal(line)}")
        change = editing.replace_all if asked.all else editing.replace
        edited = await asyncio.to_thread(change, found.data, search, new)
        if isinstance(edited, Missed):
            return self._missed(path, edited.reason)
        return await self._changed(path, found.data, edited, seconds, hints.left_below(search, new, edited.last))

    async def edit_lines(self, asked: EditLines, seconds: float | None) -> Result:
        """By line numbers, which the model must have been shown as they are now, or tell what they hold."""
        path = await self._files.place(asked.path)
        found = await self._files.need(path, seconds)
        if not found.whole:
            return _too_large(path)
        if b"\0" in found.data[:8192]:
            return refused(f"{path} is a binary file: it has no lines")
        last = asked.first if asked.last is None else asked.last
        new = hints.unfenced(asked.replace, path)
        if line := elided.stand_in(unix(new), decode(found.data)):
            return refused(f"{path} is unchanged: {elided.refusal(line)}")
        if asked.expect is None and (stale := self._stale(path, found.data, asked.first, last)):
            return stale
        edited = lines.replace_lines(found.data, asked.first, last, new, asked.expect)
        if isinstance(edited, Missed):
            return self._missed(path, edited.reason)
        return await self._changed(path, found.data, edited, seconds)

    async def write(self, asked: Write, seconds: float | None) -> Result:
        """A whole file. Over one that is there only where all of it is known to the model."""
        path = await self._files.place(asked.path)
        if await self._files.is_folder(path):
            return refused(f"{path} is a folder: give the path of a file")
        old = await self._files.find(path)
        shown = self._seen.of(path, fingerprint(old.data)) if old else None
        content = hints.unfenced(asked.content, path, "\n")
        if why := overwriting.objection(path, old, shown, content):
            return refused(f"{path} is unchanged: {why}")
        data, ways = overwriting.kept(content, old.data if old else b"")
        if old and old.data == data:
            return refused(f"{path} already holds exactly that")
        await self._files.write(path, data)
        total = len(split(decode(data)))
        digest = fingerprint(data)
        self._seen.forget(path)
        shown = self._seen.show(path, digest, total, (1, total))
        self._misses.pop(path, None)
        wrong = await syntax.fault(self._sandbox, path, data, old.data if old else b"", seconds)
        text = f"wrote {path}, {len(data)} bytes, {total} lines{ways}" + (f"\n{wrong}" if wrong else "")
        return Result(text, kind="edit", data={"path": path, "shown": kept(path, shown)}, changed=True)

    async def _changed(self, path: str, former: bytes, edited: Edited, seconds: float | None, hint: str = "") -> Result:
        """Write what an edit made, and show the place."""
        await self._files.write(path, edited.data)
        self._misses.pop(path, None)
        shown = around(split(decode(edited.data)), edited.first, edited.last)
        seen = self._remember(path, former, edited, state(edited.data, shown))
        how = " (matched but for whitespace)" if edited.tolerant else ""
        times = f" in {edited.count} places, the first" if edited.count > 1 else ""
        wrong = await syntax.fault(self._sandbox, path, edited.data, former, seconds)
        text = "\n".join(part for part in (f"edited {path}{how}{times}:", shown.text, hint, wrong) if part)
        return Result(text, kind="edit", data={"path": path, "shown": kept(path, seen)}, changed=True)

    def _remember(self, path: str, former: bytes, edited: Edited, new: Shown) -> Shown:
        old = fingerprint(former)
        if edited.count > 1:
            return self._seen.renew(path, old, new)
        filled = max(0, edited.last - edited.first + 1)
        return self._seen.edit(path, old, new, first=edited.first, last=edited.first + edited.was - 1, lines=filled)

    def _missed(self, path: str, reason: str) -> Result:
        self._misses[path] += 1
        steer = _STEER.format(self._misses[path]) if self._misses[path] > 1 else ""
        return refused(f"{path} is unchanged: {clean(reason)[:_REASON]}{steer}")

    def _stale(self, path: str, data: bytes, first: int, last: int) -> Result | None:
        """Numbers that the model cannot know are not taken: it is shown the lines, and asked again."""
        total = len(split(decode(data)))
        digest = fingerprint(data)
        shown = self._seen.of(path, digest)
        low, high = (first, last) if last >= first else (max(1, last), min(first, total))
        if first > total + 1 or last > total or (shown and _covered(shown, low, high)) or not total:
            return None
        one = page(split(decode(data)), max(1, low - 3), high + 3)
        seen = self._seen.show(path, digest, total, *one.ranges)
        return Result(
            f"error: {path} is unchanged: you have not seen lines {low}-{high} as they are now, so the numbers may be "
            f"wrong. They are now:\n{one.text}\nGive the call again if these are the lines that you mean.",
            data={"shown": kept(path, seen)},
            ok=False,
        )


def _covered(shown: Shown, low: int, high: int) -> bool:
    return any(first <= low and high <= last for first, last in shown.numbers)


def _too_large(path: str) -> Result:
    return refused(f"{path} is too large to edit (over {LIMIT} bytes); use shell")
