"""Two strategies of evaluations alone: `reference` puts a case's reference solution in, `nothing` changes nothing.

Both go through the agent's own loop, tools, sandbox, sealing and judging, with a script in the model's place: one has
to solve all cases and the other none, or the harness is at fault. The daemon knows neither.
"""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pool.errors import PermanentError
from pool.types import ChatRequest, Choice, CompletionRequest, Reply, ToolCall, Traits, Usage
from swarm.agent import Agent
from swarm.errors import EvaluationError
from swarm.evaluation.case import Case, File
from swarm.types import Conclusion
from swarm.work import Work

REFERENCE, NOTHING = "reference", "nothing"
SCRIPTED = (REFERENCE, NOTHING)
MODEL = "script"
_HERE = "SWARM_EVAL_END"
Turn = tuple[str, Mapping[str, Any]]  # a tool and its arguments


class ScriptedModel:
    """Keeps `swarm.work.Chat`: makes its calls in order, then says again and again that it is done. Costs no tokens."""

    def __init__(self, turns: Iterator[Turn]) -> None:
        self._turns = turns
        self._count = 0

    async def chat(self, request: ChatRequest) -> Reply:  # noqa: ARG002  a script does not listen
        """The next call."""
        self._count += 1
        name, arguments = next(self._turns, ("finish", {"title": "Done", "summary": "as the script says"}))
        call = ToolCall(id=f"call-{self._count}", name=name, arguments=json.dumps(arguments))
        choice = Choice(tool_calls=(call,), finish_reason="tool_calls")
        return Reply(choices=(choice,), usage=Usage(), endpoint=MODEL, model=MODEL, seconds=0.0)

    async def complete(self, request: CompletionRequest) -> Reply:  # noqa: ARG002  the protocol names it
        """There is none. Raises PermanentError."""
        raise PermanentError("a script in a model's place completes no text")

    async def native_tools(self, tier: str) -> bool:  # noqa: ARG002  the protocol names it
        """It speaks them."""
        return True

    async def traits(self, tier: str) -> Traits:  # noqa: ARG002  the protocol names it
        """Native calls and nothing else."""
        return Traits(model=MODEL, native=True)

    def acting(self, session: str, tool: str, expected: float | None = None) -> None:
        """Nothing is kept for it."""

    def end_session(self, session: str) -> None:
        """Nothing is kept for it."""


class Scripted:
    """The agent with a script in the model's place."""

    def __init__(self, turns: tuple[Turn, ...]) -> None:
        self._turns = turns

    async def work(self, work: Work) -> Conclusion:
        """Play the script. Raises SandboxError."""
        return await Agent().work(replace(work, pool=ScriptedModel(iter(self._turns))))


def scripted(name: str, case: Case, base: Mapping[str, bytes]) -> Scripted:
    """The strategy of that name; ``base`` holds the base's files that the solution replaces, by path.

    Raises EvaluationError for a case without a reference solution.
    """
    if name == NOTHING:
        return Scripted(())
    if case.solution is None:
        raise EvaluationError(f"case {case.id!r} has no reference solution", "leave it out, or use another strategy")
    return Scripted((*_solving(case, base), *((("run_tests", {}),) if case.test_command else ())))


def replaced(case: Case) -> tuple[str, ...]:
    """The paths that a reference solution writes whole."""
    return tuple(file.path for file in case.solution.files) if case.solution else ()


def _solving(case: Case, base: Mapping[str, bytes]) -> Iterator[Turn]:
    solution = case.solution
    if solution is None:
        return
    if solution.patch:
        yield "shell", {"command": f"git apply --whitespace=nowarn - <<'{_HERE}'\n{solution.patch.rstrip()}\n{_HERE}"}
    if solution.script:
        yield "shell", {"command": f"(\n{solution.script}\n)"}  # what it leaves of its shell is no concern of the tests
    for file in solution.files:
        yield from _putting(file, base.get(file.path))


def _putting(file: File, before: bytes | None) -> Iterator[Turn]:
    """One file: an edit of the lines that differ where that can be said in text, else the whole file."""
    text, old = _text(file.content), _text(before)
    if text is None:
        yield "shell", {"command": _written(file)}
    elif old is not None and (found := changed(old, text)) is not None:
        yield "edit", {"path": file.path, "search": found[0], "replace": found[1]}
    else:
        yield "write", {"path": file.path, "content": text}
    if file.executable:
        yield "shell", {"command": f"chmod +x -- {_quoted(file.path)}"}


def changed(old: str, new: str) -> tuple[str, str] | None:
    """The smallest block of whole lines around all that differs which stands once in the old text, and what replaces
    it. None where there is none short of the whole. Pure."""
    was, will = old.splitlines(keepends=True), new.splitlines(keepends=True)
    blocks = difflib.SequenceMatcher(a=was, b=will, autojunk=False).get_matching_blocks()
    head = blocks[0].size if blocks[0].a == blocks[0].b == 0 else 0
    last = blocks[-2] if len(blocks) > 1 else blocks[0]
    tail = last.size if last.a + last.size == len(was) and last.b + last.size == len(will) else 0
    tail = min(tail, len(was) - head, len(will) - head)
    while head > 0 or tail > 0:
        search = "".join(was[head : len(was) - tail])
        if search.strip() and old.find(search) == old.rfind(search):  # counting misses what overlaps
            return search, "".join(will[head : len(will) - tail])
        head, tail = max(0, head - 1), max(0, tail - 1)
    return None


def _text(content: bytes | None) -> str | None:
    """As text that a tool may be told; None for what is no plain text."""
    if content is None or b"\r" in content or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _written(file: File) -> str:
    path = _quoted(file.path)
    return (
        f"mkdir -p -- \"$(dirname -- {path})\" && base64 -d > {path} <<'{_HERE}'\n"
        f"{base64.encodebytes(file.content).decode()}{_HERE}"
    )


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"
