"""Runs tool calls in a sandbox. Every result, good or bad, is text for the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from sandbox.base import Sandbox
from sandbox.errors import SandboxPathError
from swarm.history import clean, plain, shorten
from swarm.tools import arguments, tasks
from swarm.tools.arguments import Arguments
from swarm.tools.editing.seen import Seen
from swarm.tools.files import Files
from swarm.tools.mapping.mapper import Mapper
from swarm.tools.outputs import Outputs
from swarm.tools.patching import Patcher
from swarm.tools.proving import Tester
from swarm.tools.result import Result as Result  # noqa: PLC0414  whoever runs the tools meets it here
from swarm.tools.result import refused
from swarm.tools.searching import Searcher
from swarm.tools.shell import Session
from swarm.tools.specs import TOOLS
from swarm.tools.viewing import Viewer
from swarm.tools.writing import Writer

_Hand = Callable[[Any, float | None], Awaitable[Result]]


class Toolkit:
    """The tools on one sandbox. What it remembers of the conversation so far is in the journal, see `recall`."""

    def __init__(self, sandbox: Sandbox, test_command: str | None) -> None:
        self._seen, self._outputs = Seen(), Outputs()
        self._items: tuple[tasks.Item, ...] = ()
        files = Files(sandbox)
        writer = Writer(sandbox, files, self._seen)
        searcher = Searcher(sandbox, files, self._outputs)
        self._mapper = Mapper(sandbox, files)
        self._tester = Tester(sandbox, test_command, self._outputs)
        self._hands: dict[type[Arguments], _Hand] = {
            arguments.Shell: Session(sandbox, files, self._outputs).run,
            arguments.View: Viewer(sandbox, files, self._seen, self._outputs).view,
            arguments.Edit: writer.edit,
            arguments.EditLines: writer.edit_lines,
            arguments.Write: writer.write,
            arguments.ApplyPatch: Patcher(sandbox, files, self._seen).apply,
            arguments.Glob: searcher.glob,
            arguments.Grep: searcher.grep,
            arguments.RepoMap: self._mapper.map,
            arguments.RunTests: self._tester.asked,
        }

    async def run(self, name: str, arguments: Mapping[str, Any], *, seconds: float | None = None) -> Result:
        """Run one call; ``seconds`` bounds any command in it. Raises SandboxError for broken machinery only."""
        try:
            asked = TOOLS[name].model_validate(
                {key: plain(value) if isinstance(value, str) else value for key, value in arguments.items()}
            )
        except ValidationError as error:
            return refused(f"{name} was not run. {_explain(error)}")
        try:
            hand = self._hands.get(type(asked))
            return await hand(asked, seconds) if hand is not None else self._told(asked)
        except SandboxPathError as error:
            return refused(shorten(clean(str(error)), 500))

    async def tests(self, seconds: float | None = None) -> Result:
        """Run the project's tests where the agent works; the checks later run them elsewhere."""
        return await self._tester.run(seconds)

    async def map(self, about: str = "", *, budget: int, seconds: float | None = None) -> str:
        """The repository map in at most about ``budget`` characters, for a prompt. ``about`` are words that matter."""
        return await self._mapper.draw(about=about, budget=budget, seconds=seconds)

    def recall(self, past: Iterable[Mapping[str, Any]]) -> None:
        """Take over what the journal kept of an earlier part of the same conversation: the ``data`` of its results.

        What was shown, how the tests ended and the list of steps are known again; outputs and the shell's state are
        gone.
        """
        for data in past:
            shown = data.get("shown")
            for one in shown if isinstance(shown, list) else [shown]:
                if isinstance(one, Mapping):
                    self._seen.recall(one)
            self._outputs.recall(int(data.get("outputs") or 0))
            self._tester.recall(data.get("tests"))
            if isinstance(data.get("items"), str):
                self._items = tasks.read(data["items"])

    def _told(self, asked: Arguments) -> Result:
        """The calls that touch nothing."""
        match asked:
            case arguments.TaskList():
                self._items = tasks.read(asked.items)
                shown = tasks.shown(self._items)
                return (
                    Result(shown, data={"items": shown.partition("\n")[2]})
                    if self._items
                    else refused("no step is in it")
                )
            case arguments.Ask():
                return Result("asked", ask=asked.question, data={"question": asked.question})
            case arguments.Finish():
                return Result("finished", finish=asked)
        raise TypeError(f"no tool takes {type(asked).__name__}")


def _explain(error: ValidationError) -> str:
    """What is wrong with the arguments, one thing a line."""
    lines = []
    for fault in error.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in fault["loc"]) or "arguments"
        lines.append(f"{where}: {fault['msg']}")
    return "; ".join(lines[:8])
