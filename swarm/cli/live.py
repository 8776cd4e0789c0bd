"""Three ways to show a task as it goes: a live view on a terminal, plain lines, or one JSON object a line."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

from swarm.cli import screen, view
from swarm.cli.clean import clean
from swarm.cli.told import STYLES, told
from swarm.types import Step, TaskView


class Show(AbstractContextManager["Show"], Protocol):
    """What a watched task is shown on."""

    def step(self, step: Step) -> None:
        """A line was written to the journal."""

    def state(self, task: TaskView) -> None:
        """How the task stands now; called about once a second."""

    def end(self, task: TaskView) -> None:
        """The task is final."""


class Plain(AbstractContextManager["Plain"]):
    """Lines for a pipe or a log."""

    def __exit__(self, *_: object) -> None:
        """Nothing was opened."""

    def step(self, step: Step) -> None:
        """One line."""
        screen.say(told(step))

    def state(self, task: TaskView) -> None:
        """Lines tell it all."""

    def end(self, task: TaskView) -> None:
        """The summary."""
        screen.say("\n".join(view.summary(task)))


class Json(AbstractContextManager["Json"]):
    """One object a line: steps as they come, then the task."""

    def __exit__(self, *_: object) -> None:
        """Nothing was opened."""

    def step(self, step: Step) -> None:
        """A step, marked as one."""
        screen.json_line({"type": "step"} | step.model_dump(mode="json"))

    def state(self, task: TaskView) -> None:
        """Left out, so that the lines are the journal."""

    def end(self, task: TaskView) -> None:
        """The task, marked as one."""
        screen.json_line({"type": "task"} | task.model_dump(mode="json"))


class Live(AbstractContextManager["Live"]):
    """Journal lines that scroll by above bars of what is spent of each budget."""

    def __init__(self) -> None:
        self._console = screen.console()
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[words]}", markup=False),
            console=self._console,
            transient=True,
        )
        self._rows: dict[str, TaskID] = {}
        self._phase = ""

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def step(self, step: Step) -> None:
        """One line above the bars."""
        if step.kind == "phase_started":
            self._phase = clean(str(step.data.get("phase", "")))
        self._console.print(Text(told(step), style=STYLES.get(step.kind, "")), soft_wrap=True)

    def state(self, task: TaskView) -> None:
        """Move the bars."""
        budget, spent = task.task.budget, task.spent
        wall = max(spent.wall, elapsed(task, time.time()))
        phase = f" · {self._phase}" if self._phase and not task.state.final else ""
        self._bar(f"{task.state.value}{phase}", 0, None, view.title(task, 50))
        self._bar("  steps", spent.steps, budget.steps, f"{spent.steps} of {budget.steps}")
        tokens = f"{view.amount(spent.tokens)} of {view.amount(budget.tokens)}"
        self._bar("  tokens", spent.tokens, budget.tokens, tokens)
        self._bar("  time", wall, budget.wall, f"{view.seconds(wall)} of {view.seconds(budget.wall)}")

    def end(self, task: TaskView) -> None:
        """Leave the bars and print the summary."""
        self._bars.stop()
        first, *rest = view.summary(task)
        self._console.print(Text(clean(first), style=f"bold {view.style(task.state)}"))
        screen.say("\n".join(rest))

    def _bar(self, name: str, done: float, total: float | None, words: str) -> None:
        key = "state" if total is None else name
        if key not in self._rows:
            self._rows[key] = self._bars.add_task(name, total=total, words=words)
        self._bars.update(self._rows[key], description=name, completed=done, total=total, words=words)


def elapsed(task: TaskView, now: float) -> float:
    """Seconds of wall clock that the task's attempts took so far."""
    return sum(max(0.0, (attempt.ended or now) - attempt.started) for attempt in task.attempts)
