"""Transcripts as ATIF documents and back, nothing lost: https://harborframework.com/docs/trajectory-format. Pure.

What an ATIF document has no place for (header and end of ours) stands under ``extra.agent_swarm`` of its root.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from swarm.errors import TranscriptError
from swarm.transcripts import sums, values
from swarm.transcripts.lines import fault, require_calls
from swarm.transcripts.shape import Agent, End, Header, Metrics, Observation, Result, Step, ToolCall, Transcript

SCHEMA = "ATIF-v1.7"
OURS = "agent_swarm"
UNKNOWN = "unknown"  # where ATIF must have a word and there is none
_KNOWN = tuple(f"ATIF-v1.{minor}" for minor in range(9))
_TOTALS = ("total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_cost_usd", "total_steps")
_ROOTS = ("notes", "continued_trajectory_ref", "subagent_trajectories")  # kept under extra, having no field
_AGENTS_ALONE = ("model_name", "reasoning_content", "tool_calls", "metrics")
_MEND = "its format is described at harborframework.com/docs/trajectory-format"


def document(transcript: Transcript) -> dict[str, Any]:
    """An ATIF document. Raises TranscriptError for a transcript without a step, which ATIF cannot tell."""
    if not transcript.steps:
        raise TranscriptError("it has no step, and an ATIF document has one at least", "export it as jsonl")
    header = transcript.header
    agent = _bare(header.agent.model_dump(mode="json", exclude_defaults=True))
    ours: dict[str, Any] = {"header": header.model_dump(mode="json", exclude_defaults=True, exclude={"agent", "extra"})}
    root: dict[str, Any] = {
        "schema_version": SCHEMA,
        "session_id": header.task or header.attempt or UNKNOWN,
        "trajectory_id": header.attempt or header.task or UNKNOWN,
        "agent": {"name": header.agent.name, "version": header.agent.version or UNKNOWN} | agent,
        "steps": [_step(step) for step in transcript.steps],
    }
    if transcript.end is not None:
        end = transcript.end.model_dump(mode="json", exclude_defaults=True)
        root["final_metrics"] = {name: end.pop(name) for name in _TOTALS if name in end}
        ours["end"] = end
    return root | {"extra": dict(header.extra) | {OURS: ours}}


def transcript_of(value: Any) -> Transcript:
    """The transcript that an ATIF document tells. Raises TranscriptError."""
    root = values.mapping(value)
    if root.get("schema_version") not in _KNOWN:
        told = str(root.get("schema_version"))[:50]
        raise TranscriptError(f"it is of schema {told!r}; {_KNOWN[0]} to {_KNOWN[-1]} are read", _MEND)
    try:
        steps = tuple(
            Step.model_validate(_read(each, number)) for number, each in enumerate(_list(root.get("steps")), 1)
        )
        header, end = _header(root), _end(root)
    except ValidationError as error:
        raise TranscriptError(f"it is no ATIF document: {fault(error)}", _MEND) from error
    for step in steps:
        require_calls(step, f"step {step.step_id}")
    return Transcript(header=header, steps=steps, end=end)


def is_one(value: Any) -> bool:
    """Whether a value says of itself that it is one."""
    return isinstance(value, dict) and str(value.get("schema_version", "")).startswith("ATIF-")


def _bare(agent: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in agent.items() if name in {"model_name", "tool_definitions", "extra"}}


def _step(step: Step) -> dict[str, Any]:
    told = step.model_dump(mode="json", exclude_defaults=True, exclude={"type"})
    told = {"message": "", **told}
    for call in told.get("tool_calls", ()):
        call.setdefault("arguments", {})
    if step.source != "agent":  # ATIF keeps these to agents
        kept = {name: told.pop(name) for name in _AGENTS_ALONE if name in told}
        told |= {"extra": told.get("extra", {}) | {OURS: kept}} if kept else {}
    return told


def _read(value: Any, number: int) -> dict[str, Any]:
    """A step of ours out of one of ATIF's."""
    raw = values.mapping(value)
    extra = values.mapping(raw.get("extra"))
    raw |= values.mapping(extra.pop(OURS, {})) if isinstance(extra.get(OURS), dict) else {}
    for name in ("reasoning_effort", "is_copied_context"):
        extra |= {name: raw[name]} if raw.get(name) is not None else {}
    if isinstance(raw.get("message"), list):
        extra["parts"] = raw["message"]
    told: dict[str, Any] = {"step_id": number, "source": raw.get("source"), "message": values.text(raw.get("message"))}
    told |= {"extra": extra} if extra else {}
    told |= {"timestamp": raw["timestamp"]} if sums.is_stamp(raw.get("timestamp")) else {}
    for name in ("reasoning_content", "model_name", "llm_call_count"):
        told |= {name: raw[name]} if raw.get(name) is not None else {}
    if calls := values.items(raw.get("tool_calls")):
        told["tool_calls"] = tuple(ToolCall.model_validate(_given(call)) for call in calls)
    if raw.get("metrics") is not None:
        told["metrics"] = _metrics(values.mapping(raw["metrics"]))
    if raw.get("observation") is not None:
        told["observation"] = _observation(values.mapping(raw["observation"]))
    return told


def _observation(raw: Mapping[str, Any]) -> Observation:
    results = []
    for each in values.items(raw.get("results")):
        extra = values.mapping(each.get("extra"))
        if isinstance(each.get("content"), list):
            extra["parts"] = each["content"]
        if each.get("subagent_trajectory_ref"):
            extra["subagent_trajectory_ref"] = each["subagent_trajectory_ref"]
        content = values.text(each.get("content"))
        results.append(
            Result.model_validate({"source_call_id": each.get("source_call_id"), "content": content, "extra": extra})
        )
    return Observation(results=tuple(results))


def _metrics(raw: Mapping[str, Any]) -> Metrics:
    told = _given(raw)
    lists = {name: told.pop(name) for name in ("prompt_token_ids", "completion_token_ids", "logprobs") if name in told}
    return Metrics.model_validate(told | ({"extra": values.mapping(told.get("extra")) | lists} if lists else {}))


def _header(root: Mapping[str, Any]) -> Header:
    extra = values.mapping(root.get("extra"))
    ours = values.mapping(values.mapping(extra.pop(OURS, {})).get("header"))
    agent = Agent.model_validate(_given(values.mapping(root.get("agent"))))
    if ours:
        known = agent if agent.version != UNKNOWN else agent.model_copy(update={"version": ""})
        return Header.model_validate(ours | {"agent": known, "extra": extra})
    rest = {name: root[name] for name in _ROOTS if root.get(name)}
    told = {"task": values.text(root.get("session_id")), "attempt": values.text(root.get("trajectory_id"))}
    return Header(agent=agent, origin="atif", extra=extra | rest, **told)


def _end(root: Mapping[str, Any]) -> End | None:
    ours = values.mapping(values.mapping(root.get("extra")).get(OURS))
    totals = _given(values.mapping(root.get("final_metrics")))
    if not totals and "end" not in ours:
        return None
    extra = {"extra": totals.pop("extra")} if "extra" in totals else {}
    return End.model_validate(values.mapping(ours.get("end")) | totals | extra)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise TranscriptError("it has no list of steps", _MEND)
    return value


def _given(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if value is not None}
