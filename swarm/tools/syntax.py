"""Whether a file that was changed still parses, judged inside the sandbox by the project's own interpreter.

The content is hostile and its grammar is that of whatever Python the project runs on, so the host parses nothing: what
a deep nesting or a slow parser does is bounded by the sandbox.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from sandbox.base import Sandbox
from sandbox.types import Command
from swarm.history import clean
from swarm.tools.pages import decode, page, split

_JUDGED = (".py", ".pyi", ".json", ".toml")
_SECONDS = 10.0
_TOLD = re.compile(r"(\d{1,9}) ([01]) (.{1,300})\n")


@cache
def source(name: str) -> str:
    """The text of a program that runs inside."""
    return files("swarm.tools.inside").joinpath(f"{name}.py").read_text()


async def fault(sandbox: Sandbox, path: str, data: bytes, former: bytes, seconds: float | None = None) -> str:
    """What is wrong with a file that holds ``data`` now and held ``former`` before, with the lines around; empty where
    it parses, where it is of no kind that is judged, and where nothing inside can judge it."""
    if not path.endswith(_JUDGED):
        return ""
    argv = ("python3", "-I", "-S", "-W", "ignore", "-c", source("syntax"), f"./{path}")
    outcome = await sandbox.run(Command(argv=argv, stdin=former, timeout=min(seconds or _SECONDS, _SECONDS)))
    match = _TOLD.fullmatch(outcome.output.decode("utf-8", "replace"))
    if outcome.exit_code or match is None:
        return ""
    line, parsed = int(match[1]), match[2] == "1"
    if former and not parsed and path.endswith(".json"):  # with comments, as some tools want it
        return ""
    lines = split(decode(data))
    place = page(lines, max(1, line - 2), line + 2).text if lines else ""
    since = "" if parsed or not former else " (it did not before this either)"
    return f"[{path} does not parse now{since}: line {line}: {clean(match[3])}]\n{place}"
