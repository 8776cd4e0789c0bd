"""Where a task's time goes: each line of its journal as increments of its parts, which sum up to the wall clock. Pure.

A clock stands at the last line that told of time, and names the part that the time since then belongs to unless the
next such line tells better. So every second is counted once, however much ran at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from swarm.types import Step, TaskState

PARTS = ("queued", "prepare", "pool", "prefill", "decode", "tools", "checks", "broker", "paused", "away", "other")
"""Of the wall clock. ``pool`` is waiting for a model's place, ``prefill`` and ``decode`` are its reading and writing.
Between them lies ``other``: what the daemon itself does; ``away`` is when there was none."""
TOKENS = ("told", "cached", "recomputed")
"""Parts without time, of tokens read by models: where a server told what its cache held, of these what it held, and
what a conversation had computed before and had to compute once more."""

_STATES: Mapping[str, str] = {
    TaskState.QUEUED.value: "queued",
    TaskState.RUNNING.value: "other",
    TaskState.DELIVERING.value: "broker",
    TaskState.PAUSED.value: "paused",
}
_PHASES: Mapping[str, str] = {
    "prepare": "prepare",
    "work": "other",
    "seal": "other",
    "check": "checks",
    "deliver": "broker",
}
_RUNS = {"command": "tools", "candidate": "tools", "note": "prepare"}
_OVER = ""


@dataclass(frozen=True, slots=True)
class Clock:
    """Until when a task's time is counted, and which part goes on since; none while it has ended."""

    at: float
    part: str = _OVER


@dataclass(frozen=True, slots=True)
class Part:
    """An increment."""

    name: str
    seconds: float = 0.0
    count: int = 0
    tokens: int = 0


def advance(clock: Clock | None, line: Step) -> tuple[Clock, tuple[Part, ...]] | None:
    """What a line adds, and the clock after it. None where it tells nothing of time; then the clock stays as it is."""
    data = line.data
    to: str | None = None
    told: tuple[Part, ...] = ()
    match line.kind:
        case "state":
            to = _STATES.get(str(data.get("to")), _OVER)
        case "phase_started":
            to = _PHASES.get(str(data.get("phase")), "other")
        case "phase_ended":
            to = "other"
        case "model_call":
            told = _call(data)
        case "command" | "candidate" | "note" if _number(data, "seconds") > 0:
            part = str(data.get("part"))
            told = (Part(part if part in PARTS else _RUNS[line.kind], _number(data, "seconds"), 1),)
        case "note" if data.get("doing") in PARTS:
            to = str(data["doing"])
        case _:
            return None
    return _passed(clock, line, to, told, count=int(line.kind in {"state", "phase_ended"}))


def whole(lines: Iterable[Step]) -> Iterator[tuple[Clock, tuple[Part, ...], Step]]:
    """All that lines of one task add, from its first one on."""
    clock: Clock | None = None
    for line in lines:
        told = advance(clock, line)
        if told is not None:
            clock = told[0]
            yield clock, told[1], line


def _passed(
    clock: Clock | None, line: Step, to: str | None, told: tuple[Part, ...], *, count: int = 0
) -> tuple[Clock, tuple[Part, ...]]:
    """The time since the clock: what the line tells of it, newest last, and the rest to the part that went on."""
    now = max(line.at, clock.at) if clock else line.at
    went = clock.part if clock else _OVER
    passed = now - clock.at if clock and went else 0.0
    seconds = sum(part.seconds for part in told)
    scale = min(1.0, passed / seconds) if seconds > 0 else 0.0
    parts = tuple(Part(part.name, part.seconds * scale, part.count, part.tokens) for part in told)
    rest = max(0.0, passed - sum(part.seconds for part in parts))
    if went and (rest or count):
        parts += (Part(went, rest, count),)
    return Clock(now, went if to is None else to), parts


def _call(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """A model call. Where nobody told when the first token came, reading and writing are not told apart: it wrote."""
    seconds = _number(data, "seconds")
    waited = min(_number(data, "waited"), seconds)
    prefill = min(_number(data, "prefill"), seconds - waited)
    read, written = int(_number(data, "prompt_tokens")), int(_number(data, "completion_tokens"))
    parts = (
        Part("pool", waited, 1),
        Part("prefill", prefill, 1, read),
        Part("decode", seconds - waited - prefill, 1, written),
    )
    if data.get("cached_tokens") is None:
        return parts
    cached, again = int(_number(data, "cached_tokens")), int(_number(data, "recomputed"))
    return (*parts, Part("told", 0.0, 1, read), Part("cached", 0.0, 1, cached), Part("recomputed", 0.0, 1, again))


def _number(data: Mapping[str, Any], name: str) -> float:
    value = data.get(name)
    return max(0.0, float(value)) if isinstance(value, int | float) else 0.0
