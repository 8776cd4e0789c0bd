"""Runs tool calls in a sandbox. Every result, good or bad, is text for the model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from sandbox.base import Sandbox
from sandbox.errors import SandboxPathError
from sandbox.types import Command, Outcome
from swarm.history import clean, plain, shorten
from swarm.recording import fingerprint
from swarm.tools import edit as editing
from swarm.tools.specs import TOOLS, Arguments, Edit, Finish, RunTests, Shell, View, Write

_FILE_LIMIT = 4_000_000
_VIEW_LINES = 400
_OUTPUT = 12_000
# No pager, no prompt, no bytecode left in the workspace, which is sealed as it is.
_ENV = {
    "CI": "1", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "PAGER": "cat", "PYTEST_ADDOPTS": "-p no:cacheprovider",
    "PYTHONDONTWRITEBYTECODE": "1", "TERM": "dumb",
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What a call gave: ``text`` for the model, ``kind`` and ``data`` for the journal.

    ``changed`` tells that the workspace may differ now, ``ok`` that the call did what it asked for.
    """

    text: str
    kind: str = "note"
    data: Mapping[str, Any] = field(default_factory=dict)
    changed: bool = False
    ok: bool = True
    finish: Finish | None = None


class Toolkit:
    """The tools on one sandbox."""

    def __init__(self, sandbox: Sandbox, test_command: str | None) -> None:
        self._sandbox = sandbox
        self._test_command = test_command

    async def run(self, name: str, arguments: Mapping[str, Any], *, seconds: float | None = None) -> Result:
        """Run one call; ``seconds`` bounds any command in it. Raises SandboxError for broken machinery only."""
        try:
            asked = TOOLS[name].model_validate(
                {key: plain(value) if isinstance(value, str) else value for key, value in arguments.items()}
            )
        except ValidationError as error:
            return Result(f"error: {name} was not run. {_explain(error)}", ok=False)
        try:
            return await self._dispatch(asked, seconds)
        except SandboxPathError as error:
            return Result(f"error: {shorten(clean(str(error)), 500)}", ok=False)

    async def _dispatch(self, asked: Arguments, seconds: float | None) -> Result:
        match asked:
            case Shell():
                return await self._shell(asked.command, _least(asked.timeout, seconds))
            case RunTests():
                return await self.tests(seconds)
            case View():
                return await self._view(asked, seconds)
            case Edit():
                return await self._edit(asked)
            case Write():
                return await self._write(asked)
            case Finish():
                return Result("finished", finish=asked)
        raise TypeError(f"no tool takes {type(asked).__name__}")

    async def tests(self, seconds: float | None = None) -> Result:
        """Run the project's tests where the agent works; the checks later run them elsewhere."""
        if not self._test_command:
            return Result("error: no test command is known for this task; run what fits through shell", ok=False)
        return await self._shell(self._test_command, seconds)

    async def _shell(self, command: str, seconds: float | None) -> Result:
        outcome = await self._sandbox.run(Command(argv=("/bin/sh", "-c", command), env=_ENV, timeout=seconds))
        data = {
            "text": shorten(command, 2000),
            "exit_code": outcome.exit_code,
            "seconds": outcome.seconds,
            "timed_out": outcome.timed_out,
            "out_of_memory": outcome.out_of_memory,
            "output": fingerprint(outcome.output),
        }
        ok = outcome.exit_code == 0 and not outcome.timed_out
        return Result(_told(outcome), kind="command", data=data, changed=True, ok=ok)

    async def _view(self, asked: View, seconds: float | None) -> Result:
        path = _inside(asked.path)
        try:
            data = await self._sandbox.read(path, limit=_FILE_LIMIT + 1)
        except SandboxPathError:
            return await self._list(path, seconds)
        return Result(_numbered(data, asked.first or 1, asked.last))

    async def _list(self, path: str, seconds: float | None) -> Result:
        """A folder's files; the error of reading stands where it is no folder."""
        if path.startswith(("/", "..")) or "/../" in f"/{path}/":
            raise SandboxPathError(f"{path} lies outside the repository")
        argv = ("find", f"./{path}/", "-maxdepth", "2", "-not", "-path", "*/.git/*", "-not", "-name", "*.pyc")
        outcome = await self._sandbox.run(Command(argv=argv, timeout=seconds))
        if outcome.exit_code:
            raise SandboxPathError(f"there is no file {path} in the repository")
        listed = sorted(line.replace("//", "/") for line in outcome.text.splitlines())
        return Result(shorten(clean("\n".join(listed)), _OUTPUT))

    async def _edit(self, asked: Edit) -> Result:
        path = _inside(asked.path)
        data = await self._sandbox.read(path, limit=_FILE_LIMIT + 1)
        if len(data) > _FILE_LIMIT:  # never write back from a truncated read
            return Result(f"error: {path} is too large to edit (over {_FILE_LIMIT} bytes); use shell", ok=False)
        edited = editing.replace(data, asked.search, asked.replace)
        if isinstance(edited, editing.Missed):
            return Result(f"error: {path} is unchanged: {shorten(clean(edited.reason), 4000)}", ok=False)
        await self._sandbox.write(path, edited.data, executable=await self._executable(path))
        how = " (matched but for whitespace)" if edited.tolerant else ""
        around = _numbered(edited.data, max(1, edited.first - 3), edited.last + 3)
        return Result(f"edited {path}{how}:\n{around}", kind="edit", data={"path": path}, changed=True)

    async def _write(self, asked: Write) -> Result:
        path = _inside(asked.path)
        data = asked.content.encode("utf-8", "replace")
        await self._sandbox.write(path, data, executable=await self._executable(path))
        return Result(f"wrote {path}, {len(data)} bytes", kind="edit", data={"path": path}, changed=True)

    async def _executable(self, path: str) -> bool:
        return (await self._sandbox.run(Command(argv=("test", "-x", path)))).exit_code == 0


def _inside(path: str) -> str:
    """A path as the sandbox wants it; models like to name the root."""
    plain = re.sub(r"^(?:\./)+", "", path.strip())
    return plain.removeprefix("/workspace/") or "."


def _least(*bounds: float | None) -> float | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def _numbered(data: bytes, first: int, last: int | None) -> str:
    """Lines with their numbers, at most 400 of them, and a note of what is not shown."""
    if b"\0" in data[:8192]:
        return f"a binary file of {len(data)} bytes"
    if not data:
        return "an empty file"
    text = data[:_FILE_LIMIT].decode("utf-8", "replace")
    lines = [clean(line.removesuffix("\r")) for line in text.removesuffix("\n").split("\n")]
    last = min(last or len(lines), len(lines), first + _VIEW_LINES - 1)
    if first > len(lines):
        return f"the file has only {len(lines)} lines"
    shown = "\n".join(f"{number}\t{lines[number - 1]}" for number in range(first, last + 1))
    more = len(lines) - last
    note = f"\n[{more} more lines; the file has {len(lines)}]" if more else ""
    return shorten(shown, _OUTPUT * 2) + note


def _told(outcome: Outcome) -> str:
    """An outcome in words: how it ended, then what it printed."""
    ending = f"exit code {outcome.exit_code}"
    if outcome.timed_out:
        ending = f"killed: it did not end within {outcome.seconds:.0f} s"
    elif outcome.out_of_memory:
        ending = f"killed: out of memory (exit code {outcome.exit_code})"
    text = shorten(clean(outcome.text), _OUTPUT).strip("\n")
    cut = f" [{outcome.cut} bytes of output were dropped from the middle]" if outcome.cut else ""
    return f"[{ending}, {outcome.seconds:.1f} s]{cut}\n{text or '(no output)'}"


def _explain(error: ValidationError) -> str:
    """What is wrong with the arguments, one thing a line."""
    lines = []
    for fault in error.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in fault["loc"]) or "arguments"
        lines.append(f"{where}: {fault['msg']}")
    return "; ".join(lines[:8])
