"""A recorded attempt: what was asked of it, its journal, the tree that it began with and the one that it came to. Pure.

An attempt that was interrupted had several lives: each began in a fresh sandbox on what the last one had saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from pool.types import Traits
from swarm import history, recording
from swarm.agents import agent_of
from swarm.manners import Manners
from swarm.store.journal import surviving
from swarm.strategies.auto import CHOICE
from swarm.types import Attempt, Frozen, Phase, Spent, Step, Task


class Ground(Frozen):
    """What the sandbox stood on, as far as the settings tell."""

    backend: str = ""
    image: str = ""
    setup: tuple[str, ...] = ()
    devcontainer: bool = False


class Recording(Frozen):
    """One attempt as it was. ``past`` are lines of attempts that it went on from, ``sealed`` the tree that it came to.

    ``struck`` counts the secrets that were struck out of it.
    """

    version: Literal[1] = 1
    program: str = Field(default="", description="version that recorded it")
    task: Task
    attempt: Attempt
    before: Spent = Spent()
    test_command: str | None = None
    base: str = Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")
    sealed: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")
    ground: Ground = Ground()
    shallow: bool = False
    struck: int = 0
    past: tuple[Step, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Life:
    """From one start of the work to the next, or to the end.

    ``start`` and ``end`` are the trees that it began with (None: the base's) and that were kept of it last, ``sealed``
    whether that was its proper end.
    """

    past: tuple[Step, ...]
    lines: tuple[Step, ...]
    start: str | None
    end: str | None
    sealed: bool


def lives(recorded: Recording) -> tuple[Life, ...]:
    """The lives of an attempt, in order; none where it never came to work."""
    steps = recorded.steps
    begins = [index for index, step in enumerate(steps) if _begins(step)]
    found = []
    for number, begin in enumerate(begins):
        end = begins[number + 1] if number + 1 < len(begins) else len(steps)
        before = (*recorded.past, *steps[:begin])
        lines = steps[begin:end]
        known = surviving(before) if number or recorded.past else ()
        start, kept = last_tree(before), last_tree(lines) or last_tree(before)
        found.append(Life(known, lines, start, kept, any(line.kind == "sealed" for line in lines)))
    return tuple(found)


def last_tree(lines: Iterable[Step]) -> str | None:
    """The tree that was kept last in these lines."""
    trees = [step.data.get("tree") for step in lines if step.kind in {"salvage", "sealed"}]
    return str(trees[-1]) if trees else None


def trees(recorded: Recording) -> tuple[str, ...]:
    """Every tree that a replay may begin with or come to."""
    ends = [tree for life in lives(recorded) for tree in (life.start, life.end) if tree]
    return tuple(dict.fromkeys([*ends, *([recorded.sealed] if recorded.sealed else [])]))


def hindrance(recorded: Recording) -> str:
    """Why this attempt cannot be replayed; empty where it can."""
    tried = (recorded.attempt.strategy, *chosen(recorded.steps), *chosen(recorded.past))
    if (name := next((one for one in map(agent_of, tried) if one is not None), None)) is not None:
        return (
            f"the agent {name} asked the models from inside its sandbox, in its own way: what it was answered is "
            "counted in the journal, not kept, so it cannot be heard again"
        )
    if not lives(recorded):
        return "it never came to work: it ended while it was prepared, or only carried on an earlier attempt's result"
    calls = [step for step in recorded.steps if step.kind == "model_call"]
    if any("request" not in step.data for step in calls):
        return "it was recorded by an older version, which did not keep what was asked and answered in full"
    return ""


def chosen(lines: Iterable[Step]) -> tuple[str, ...]:
    """The strategies that `auto` tried; none where it was not asked."""
    found = next((step.data for step in lines if step.data.get("about") == CHOICE), {})
    return tuple(str(name) for name in found.get("names", ()))


def native(lines: Sequence[Step]) -> bool:
    """Whether the models spoke native tool calls."""
    told = (step.data["native"] for step in lines if "native" in step.data)
    return bool(next(told, False))


def traits(lines: Sequence[Step], tier: str) -> Traits:
    """What was known of a tier's models when it was asked about; of an older journal, how they spoke."""
    known = [step.data for step in lines if "traits" in step.data]
    told = next((data["traits"] for data in reversed(known) if data.get("tier", tier) == tier), None)
    return Traits(native=native(lines)) if told is None else Traits.model_validate(told)


def manners(lines: Iterable[Step]) -> dict[str, Manners]:
    """What was set for models when the conversation began."""
    told: dict[str, Any] = next((step.data["manners"] for step in lines if "manners" in step.data), {})
    return {str(name): Manners.model_validate(one) for name, one in told.items()}


def ladder(lines: Iterable[Step]) -> tuple[str, ...]:
    """The tiers that might be asked beside the attempt's own, as the first line that names them tells it."""
    return next((tuple(map(str, step.data["ladder"])) for step in lines if "ladder" in step.data), ())


def _begins(step: Step) -> bool:
    return step.kind == "phase_started" and step.data.get("phase") == Phase.WORK.value


def test_command(lines: Iterable[Step]) -> str | None:
    """The command that the work was tested with, as the lines tell it; None where they do not."""
    for step in lines:
        if step.data.get("about") == history.OPENING and step.data.get("test_command"):
            return str(step.data["test_command"])
        if step.kind == "command" and "tool" not in step.data:  # sampled repair runs it first of all
            return str(step.data.get("text", "")) or None
    return None


def in_turn(kind: str, data: Mapping[str, Any]) -> bool:
    """Whether a line's place in the order of the work is fixed: calls of a model, what tools gave, what was said."""
    if kind == "model_call":
        return "ask" not in data
    if data.get("about") == recording.BEFORE:
        return False
    return kind in {"command", "edit", "message"} or "message" in data or data.get("about") in recording.NO_ANSWER


def at_once(kind: str, data: Mapping[str, Any]) -> bool:
    """Whether a line tells of one of many things that went on at the same time: samples, and tests of candidates."""
    return kind == "candidate" or (kind == "model_call" and "ask" in data)


def in_order(step: Step) -> bool:
    """Whether a replay plays a line."""
    return in_turn(step.kind, step.data) or at_once(step.kind, step.data)
