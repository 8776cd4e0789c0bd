"""An attempt's journal as a transcript: each model call is a step with what its calls gave; all else is a step of the
program's. Every line of the journal is in it, so that nothing that happened is left out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from swarm.transcripts import sums, values
from swarm.transcripts.shape import Extra, Header, Metrics, Observation, Result, Step, ToolCall, Transcript
from swarm.types import Step as Line

OPENING = "opening"  # as swarm.history has it: the first messages of a conversation
_USAGE = ("prompt_tokens", "completion_tokens", "cached_tokens")
_COSTS = ("seconds", "waited", "prefill", "gpu_seconds", "money", "recomputed", "tokens")
_TOLD = {"message", "messages", "reasoning", "model", *_USAGE, *_COSTS}


@dataclass
class _Draft:
    """A step that may still get results."""

    facts: dict[str, Any]
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def step(self, number: int) -> Step:
        calls = {"tool_calls": tuple(self.calls)} if self.calls else {}
        results = {"observation": Observation(results=tuple(self.results))} if self.results else {}
        return Step.model_validate({"step_id": number, **self.facts, **calls, **results})


def transcript(header: Header, lines: Iterable[Line], *, ending: str = "", reason: str = "") -> Transcript:
    """The transcript of one attempt: its journal's lines in order. ``ending`` and ``reason`` tell how it ended, where
    it did; one that goes on has no end."""
    drafts: list[_Draft] = []
    asked: dict[str, _Draft] = {}  # by part: the last answer of a model, whose results are still to come
    last = 0.0
    for line in lines:
        last = line.at
        data = values.mapping(values.mended(line.data, values.DEEPEST * 4, lenient=True))
        part = str(data.get("part", ""))
        if line.kind == "note" and data.get("about") == OPENING:
            drafts += _opening(line, data)
        elif line.kind == "model_call":
            asked[part] = _answer(line, data)
            drafts.append(asked[part])
        elif (result := _result(line, data, asked.get(part))) is not None:
            asked[part].results.append(result)
        else:
            drafts.append(_Draft(_event(line, data)))
    steps = tuple(draft.step(number) for number, draft in enumerate(drafts, 1))
    model = header.agent.model_name or sums.most_used(steps)
    told = header.model_copy(update={"agent": header.agent.model_copy(update={"model_name": model})})
    end = sums.ended(steps, ending=ending, reason=reason, ended=sums.stamp(last)) if ending else None
    return Transcript(header=told, steps=steps, end=end)


def _opening(line: Line, data: Mapping[str, Any]) -> list[_Draft]:
    """The messages that a conversation began with, each a step."""
    common = {name: value for name, value in data.items() if name not in _TOLD}
    drafts = []
    for place, message in enumerate(values.items(data.get("messages"))):
        extra = _extra(line, {} if place else common) | {"role": values.text(message.get("role"))}
        facts = {"message": values.text(message.get("content")), "extra": extra}
        drafts.append(_Draft(_stamped(line) | facts | {"source": _source(message.get("role"))}))
    return drafts


def _answer(line: Line, data: Mapping[str, Any]) -> _Draft:
    """What a model answered. Samples and calls of an agent of others have no message; their facts tell of them."""
    message = values.mapping(data.get("message"))
    reasoning = values.text(message.get("reasoning")) or values.text(data.get("reasoning"))
    rest = {name: value for name, value in data.items() if name not in _TOLD}
    facts: dict[str, Any] = {
        "source": "agent",
        "message": values.text(message.get("content")),
        "reasoning_content": reasoning or None,
        "model_name": values.text(data.get("model")) or None,
        "metrics": _metrics(data),
        "llm_call_count": 1,
        "extra": _extra(line, rest),
    }
    return _Draft(_stamped(line) | facts, _calls(message, line.seq))


def _calls(message: Mapping[str, Any], seq: int) -> list[ToolCall]:
    """The calls of a message; arguments that are no JSON object are kept as they came."""
    found = []
    for place, call in enumerate(values.items(message.get("tool_calls")), 1):
        raw = values.text(call.get("arguments"))
        fault = {"fault": values.text(call["fault"])} if call.get("fault") else {}
        try:
            arguments, extra = values.parsed(raw), fault
        except ValueError:
            arguments, extra = None, fault
        if not isinstance(arguments, dict):
            arguments, extra = {}, fault | {"raw": raw}
        name, id_ = values.text(call.get("name")), values.text(call.get("id")) or f"call-{seq}-{place}"
        found.append(ToolCall(tool_call_id=id_, function_name=name, arguments=arguments, extra=extra))
    return found


def _result(line: Line, data: Mapping[str, Any], asked: _Draft | None) -> Result | None:
    """What a call gave, where the line is such: a tool's message, or in the text protocol a user's with its tool."""
    message = values.mapping(data.get("message"))
    if asked is None or not message or (message.get("role") != "tool" and "tool" not in data):
        return None
    made = {call.tool_call_id for call in asked.calls}
    id_ = message.get("tool_call_id")
    rest = {name: value for name, value in data.items() if name not in {"message", "text"}}
    extra = _extra(line, rest) | {"at": sums.stamp(line.at)}
    unknown = {} if id_ is None or id_ in made else {"call": values.text(id_)}
    return Result(
        source_call_id=id_ if id_ in made else None,
        content=values.text(message.get("content")),
        extra=extra | unknown,
    )


def _event(line: Line, data: Mapping[str, Any]) -> dict[str, Any]:
    """A line that is nobody's answer: what a person said, a nudge, a save, a report, what an agent printed."""
    message = values.mapping(data.get("message"))
    said = line.kind == "message"
    text = values.text(message.get("content")) or values.text(data.get("text"))
    rest = {name: value for name, value in data.items() if name not in {"message", "text"}}
    role = {"role": values.text(message.get("role"))} if message and not said else {}
    source = "user" if said else "system"
    return _stamped(line) | {"source": source, "message": text, "extra": _extra(line, rest) | role}


def _metrics(data: Mapping[str, Any]) -> Metrics:
    usage = {name: values.count(data.get(name)) for name in _USAGE}
    extra = {name: data[name] for name in _COSTS if data.get(name) is not None}
    return Metrics(**usage, extra=extra)


def _stamped(line: Line) -> dict[str, Any]:
    return {"timestamp": sums.stamp(line.at) or None}


def _extra(line: Line, data: Mapping[str, Any]) -> Extra:
    return {"kind": line.kind, "seq": line.seq, **data}


def _source(role: Any) -> str:
    return {"system": "system", "assistant": "agent"}.get(role, "user") if isinstance(role, str) else "user"
