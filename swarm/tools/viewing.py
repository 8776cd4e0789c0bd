"""The tool view: a file or a part of it with line numbers, a folder, or a long output of before."""

from __future__ import annotations

from sandbox.base import Sandbox
from sandbox.types import Command
from swarm.history import clean
from swarm.recording import fingerprint
from swarm.tools.arguments import View
from swarm.tools.editing.seen import Seen, Shown, kept
from swarm.tools.files import LIMIT, Files, outside
from swarm.tools.outputs import Outputs
from swarm.tools.pages import Page, decode, page, split
from swarm.tools.result import Result, refused

_ENTRIES = 200
# Two levels of a folder, folders with a slash behind; what tools put there themselves is left out.
_FIND = 'find "$1" -mindepth 1 -maxdepth 2 \\( -name .git -o -name __pycache__ -o -name "*.pyc" \\) -prune -o {}'
_LIST = f"{_FIND.format('-type d -print')} | sed 's,$,/,'; {_FIND.format('! -type d -print')}"


class Viewer:
    """Shows what there is, and remembers what of it was shown."""

    def __init__(self, sandbox: Sandbox, files: Files, seen: Seen, outputs: Outputs) -> None:
        self._sandbox, self._files, self._seen, self._outputs = sandbox, files, seen, outputs

    async def view(self, asked: View, seconds: float | None) -> Result:
        """What a path names. Raises SandboxPathError where it names nothing inside."""
        try:
            output = self._outputs.find(asked.path)
        except KeyError:
            return refused(f"{asked.path} is not kept any more: run the command again")
        if output is not None:
            return _of_output(asked, split(output))
        path = await self._files.place(asked.path)
        outside(path)
        if path == "." or await self._files.is_folder(path):
            return await self._folder(path, seconds)
        return await self._file(path, asked, seconds)

    async def _file(self, path: str, asked: View, seconds: float | None) -> Result:
        found = await self._files.need(path, seconds)
        if b"\0" in found.data[:8192]:
            return Result(f"a binary file of {len(found.data)} bytes" + ("" if found.whole else " or more"))
        if not found.data:
            shown = self._seen.show(path, fingerprint(b""), 0)
            return Result("an empty file", data={"shown": kept(path, shown)})
        lines = split(decode(found.data))
        first = asked.first or 1
        if first > len(lines):
            return refused(f"the file has only {len(lines)} lines" + ("" if found.whole else " in its first part"))
        one = page(lines, first, asked.last)
        if not found.whole:
            return Result(told(one, whole=False))
        shown = self._seen.show(path, fingerprint(found.data), len(lines), *one.ranges)
        return Result(told(one, whole=True), data={"shown": kept(path, shown)})

    async def _folder(self, path: str, seconds: float | None) -> Result:
        command = Command(argv=("/bin/sh", "-c", _LIST, "sh", f"./{path}" if path != "." else "."), timeout=seconds)
        outcome = await self._sandbox.run(command)
        entries = sorted(line.removeprefix("./") for line in clean(outcome.text).split("\n") if line)
        if not entries:
            return Result(f"{path} is an empty folder")
        more = len(entries) - _ENTRIES
        note = f"\n[{more} more entries are not shown: view a folder in it, or use grep or find]" if more > 0 else ""
        if outcome.cut:
            note = (
                f"\n[the folder holds too much to be listed whole: {_ENTRIES} entries are shown; view a folder in it]"
            )
        return Result("\n".join(entries[:_ENTRIES]) + note)


def _of_output(asked: View, lines: list[str]) -> Result:
    if (asked.first or 1) > len(lines):
        return refused(f"{asked.path} has only {len(lines)} lines")
    return Result(told(page(lines, asked.first or 1, asked.last), whole=True))


def told(one: Page, *, whole: bool) -> str:
    """A page, and what of the file it does not show."""
    notes = []
    if one.first > 1 or one.last < one.total:
        go_on = f"; go on with first {one.last + 1}" if one.last < one.total else ""
        notes.append(f"[lines {one.first}-{one.last} of {one.total} are shown{go_on}]")
    if one.cut:
        notes.append(f"[{len(one.cut)} long lines are shown in part only]")
    if not whole:
        notes.append(f"[the file is larger than {LIMIT} bytes and its end was not read: use shell for the rest]")
    return "\n".join([one.text, *notes])


def around(lines: list[str], first: int, last: int, room: int = 60) -> Page:
    """The lines that an edit left, with three before and after; of a long one its beginning."""
    return page(lines, max(1, first - 3), min(last, first + room) + 3)


def state(data: bytes, one: Page) -> Shown:
    """What a page tells of the file that holds these bytes."""
    return Shown(fingerprint(data), one.total, one.ranges, one.ranges)
