"""A task's journal as spans: task, attempt, phase, and in it each model call and tool run. Pure: lines in, spans out.

Ids follow from the task, so that a restarted daemon, or another host, goes on with the same trace. Names and attributes
are OpenTelemetry's GenAI conventions (semantic-conventions, gen-ai/gen-ai-spans.md and gen-ai-agent-spans.md); what was
said to or by a model is no part of them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from swarm.types import Step, TaskState

OPEN = 10_000  # tasks whose beginnings are remembered; of older ones a span begins where it is heard of again

Value = str | int | float | bool


@dataclass(frozen=True)
class Span:
    """One interval, in seconds since 1970. ``parent`` is 0 for a task's own; ``error`` is empty where it went well."""

    trace: int
    id: int
    parent: int
    name: str
    start: float
    end: float
    attributes: Mapping[str, Value]
    error: str = ""


@dataclass
class _Open:
    """What has begun of one task and not ended."""

    began: float
    attempt: str = ""
    attempt_at: float = 0.0
    facts: dict[str, Value] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)


class Tracker:
    """Hears journal lines in their order, each task's, and tells the spans that end with each."""

    def __init__(self, host: str = "", limit: int = OPEN) -> None:
        self._host = host
        self._limit = limit
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def heard(self, line: Step) -> tuple[Span, ...]:
        """The spans that are over with this line."""
        known = self._known(line)
        match line.kind:
            case "attempt":
                return self._attempt(line, known)
            case "phase_started":
                known.phases[str(line.data.get("phase"))] = line.at
                return ()
            case "phase_ended":
                return self._phase(line, known)
            case "model_call" | "command" | "edit" | "candidate":
                return (self._step(line, known),)
            case "state":
                return self._state(line, known)
            case _:
                return ()

    def _known(self, line: Step) -> _Open:
        known = self._open.setdefault(line.task, _Open(line.at))
        self._open.move_to_end(line.task)
        while len(self._open) > self._limit:
            self._open.popitem(last=False)
        if line.attempt and not known.attempt:
            known.attempt, known.attempt_at = line.attempt, line.at
        return known

    def _attempt(self, line: Step, known: _Open) -> tuple[Span, ...]:
        known.attempt, known.attempt_at = line.attempt or "", line.at
        known.facts = {f"swarm.{key}": value for key in ("number", "tier", "strategy") if (value := line.data.get(key))}
        return ()

    def _phase(self, line: Step, known: _Open) -> tuple[Span, ...]:
        name = str(line.data.get("phase"))
        began = known.phases.pop(name, line.at - _seconds(line))
        error = "" if line.data.get("ok", True) else "broken off"
        span = self._span(line, f"{line.attempt}/{name}", name, began, error=error)
        return (span,)

    def _step(self, line: Step, known: _Open) -> Span:
        inside = next(reversed(known.phases), None)
        parent = f"{line.attempt}/{inside}" if inside else line.attempt or line.task
        name, attributes = _called(line)
        error = "timed out" if line.data.get("timed_out") else ""
        began = line.at - _seconds(line)
        return self._span(line, f"{line.task}/{line.seq}", name, began, parent=parent, more=attributes, error=error)

    def _state(self, line: Step, known: _Open) -> tuple[Span, ...]:
        to, reason = str(line.data.get("to")), str(line.data.get("reason", ""))
        spans = []
        if line.attempt and line.attempt == known.attempt and to not in {TaskState.RUNNING, TaskState.DELIVERING}:
            facts = {**known.facts, "gen_ai.operation.name": "invoke_agent", "swarm.state": to}
            began = known.attempt_at
            spans.append(self._span(line, line.attempt, "invoke_agent", began, parent=line.task, more=facts))
            known.attempt, known.facts = "", {}
        if TaskState(to).final:
            error = "" if to in {TaskState.DELIVERED, TaskState.NO_CHANGE} else f"{to}: {reason}"
            more = {"swarm.state": to}
            spans.append(self._span(line, line.task, "task", known.began, parent="", more=more, error=error))
            del self._open[line.task]
        return tuple(spans)

    def _span(  # noqa: PLR0913  the parts of one span, named at each call
        self,
        line: Step,
        own: str,
        name: str,
        began: float,
        *,
        parent: str | None = None,
        more: Mapping[str, Value] | None = None,
        error: str = "",
    ) -> Span:
        above = (line.attempt or line.task) if parent is None else parent
        facts: dict[str, Value] = {"swarm.task": line.task, **(more or {})}
        facts |= {"swarm.attempt": line.attempt} if line.attempt else {}
        facts |= {"host.name": self._host} if self._host else {}
        ids = trace_id(line.task), _id(own, 8), _id(above, 8) if above else 0
        return Span(*ids, name, min(began, line.at), line.at, facts, error[:200])


def trace_id(task: str) -> int:
    """The 128 bits that all spans of a task share."""
    return _id(f"trace/{task}", 16)


def _called(line: Step) -> tuple[str, dict[str, Value]]:
    data = line.data
    if line.kind != "model_call":
        tool = str(data.get("tool") or line.kind)
        found: dict[str, Value] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        code = data.get("exit_code")
        return f"execute_tool {tool}", found | ({"process.exit.code": code} if isinstance(code, int) else {})
    model = str(data.get("model", ""))
    found = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "vllm", "gen_ai.response.model": model}
    counts = {
        "prompt_tokens": "input_tokens",
        "completion_tokens": "output_tokens",
        "cached_tokens": "cache_read.input_tokens",
    }
    found |= {f"gen_ai.usage.{name}": data[key] for key, name in counts.items() if isinstance(data.get(key), int)}
    found |= {"server.address": str(data["endpoint"])} if data.get("endpoint") else {}
    return f"chat {model}".strip(), found


def _seconds(line: Step) -> float:
    seconds = line.data.get("seconds")
    return float(seconds) if isinstance(seconds, (int, float)) and seconds > 0 else 0.0


def _id(name: str, size: int) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=size).digest(), "big")
