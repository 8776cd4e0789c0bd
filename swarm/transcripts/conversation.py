"""Steps out of a chat's messages, as importers make them: an answer, then the results of what it asked for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from swarm.transcripts import values
from swarm.transcripts.shape import Observation, Result, Step, ToolCall

_SOURCES = {"system": "system", "developer": "system", "assistant": "agent"}


@dataclass
class Conversation:
    """Grows by one message at a time; whatever is no result of the last answer is a step of its own."""

    _facts: list[dict[str, Any]] = field(default_factory=list)
    _results: dict[int, list[Result]] = field(default_factory=dict)
    _open: int | None = None
    _made: frozenset[str] = frozenset()

    def say(self, role: str, message: str, extra: dict[str, Any] | None = None, **more: Any) -> None:
        """A step; ``more`` are further fields of it."""
        source = _SOURCES.get(role, "user")
        facts = extra or {}
        told = {"source": source, "message": message, "extra": facts if source == "agent" else {"role": role, **facts}}
        self._facts.append({name: value for name, value in {**told, **more}.items() if value not in (None, {}, ())})
        self._open = len(self._facts) - 1 if source == "agent" else None
        self._made = frozenset(each.tool_call_id for each in more.get("tool_calls", ()))

    def result(self, content: str, call: str | None = None, extra: dict[str, Any] | None = None) -> None:
        """What the last answer's call gave; a step of its own where no answer came before."""
        if self._open is None:
            self.say("user", content, extra)
            return
        known = call in self._made
        unknown = {"call": call} if call is not None and not known else {}
        told = Result(source_call_id=call if known else None, content=content, extra=(extra or {}) | unknown)
        self._results.setdefault(self._open, []).append(told)

    def steps(self) -> tuple[Step, ...]:
        """All of it."""
        found = []
        for place, facts in enumerate(self._facts):
            given = self._results.get(place)
            results = {"observation": Observation(results=tuple(given))} if given else {}
            found.append(Step.model_validate({"step_id": place + 1, "message": "", **facts, **results}))
        return tuple(found)


def calls(raw: Any, seen: int) -> tuple[ToolCall, ...]:
    """The calls of a message in OpenAI's form; one without an id gets one of its place, ``seen`` messages in."""
    found = []
    for place, call in enumerate(values.items(raw), 1):
        function = values.mapping(call.get("function")) or call
        given = function.get("arguments")
        arguments, extra = given_arguments(given)
        id_ = values.text(call.get("id") or call.get("call_id")) or f"call-{seen}-{place}"
        found.append(
            ToolCall(
                tool_call_id=id_, function_name=values.text(function.get("name")), arguments=arguments, extra=extra
            )
        )
    return tuple(found)


def given_arguments(given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments as an object; where they are none, an empty one, and what they were."""
    if isinstance(given, dict):
        return given, {}
    raw = values.text(given)
    try:
        value = values.parsed(raw)
    except ValueError:
        value = None
    return (value, {}) if isinstance(value, dict) else ({}, {"raw": raw} if raw else {})
