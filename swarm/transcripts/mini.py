"""Trajectories of mini-swe-agent as transcripts: its formats 1 and 1.1 (`*.traj.json`), and bare lists of messages.

What its program writes is in minisweagent/agents/default.py (2.x) and run/utils/save.py (1.x) of its package. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarm.transcripts import sums, values
from swarm.transcripts.conversation import Conversation, calls
from swarm.transcripts.shape import Agent, Header, Metrics, Transcript

NAME = "mini-swe-agent"


def is_one(value: Any) -> bool:
    """Whether a value looks like one."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(each, dict) and "role" in each and "content" in each for each in value)
    told = isinstance(value, dict) and str(value.get("trajectory_format", "")).startswith(f"{NAME}-")
    return told or (isinstance(value, dict) and isinstance(value.get("messages"), list) and "info" in value)


def transcript_of(value: Any) -> Transcript:
    """The transcript; what has another type than it should is left out."""
    root = values.mapping(value)
    messages = values.items(value if isinstance(value, list) else root.get("messages"))
    info = values.mapping(root.get("info"))
    talk = Conversation()
    for number, message in enumerate(messages, 1):
        _add(talk, message, number)
    steps = talk.steps()
    last = values.mapping(messages[-1].get("extra")) if messages else {}
    config = values.mapping(info.get("config"))
    model = values.text(values.mapping(config.get("model")).get("model_name"))
    version = values.text(info.get("mini_version"))
    extra = {name: root[name] for name in root if name not in {"messages", "info"}}
    extra |= {"config": config} if config else {}
    agent = Agent(name=NAME, version=version, model_name=model or sums.most_used(steps))
    end = sums.ended(
        steps,
        ending=values.text(info.get("exit_status") or last.get("exit_status")),
        submission=values.text(info.get("submission") or last.get("submission")),
        ended=sums.stamp(values.amount(last.get("timestamp"))),
        extra={"model_stats": info["model_stats"]} if info.get("model_stats") else {},
    )
    stats = values.mapping(info.get("model_stats"))
    if end.total_cost_usd is None and (cost := values.amount(stats.get("instance_cost"))) is not None:
        end = end.model_copy(update={"total_cost_usd": cost})
    header = Header(agent=agent, origin=NAME, task=values.text(root.get("instance_id")), extra=extra)
    return Transcript(header=header, steps=steps, end=end if info or end.ending else None)


def _add(talk: Conversation, message: Mapping[str, Any], number: int) -> None:
    """One message of its list."""
    extra = values.mapping(message.get("extra"))
    role = values.text(message.get("role"))
    stamped = {"timestamp": sums.stamp(values.amount(extra.get("timestamp"))) or None}
    if message.get("object") == "response":  # of OpenAI's Responses, kept whole
        _response(talk, message, extra, number)
    elif role == "assistant":
        response = values.mapping(extra.get("response"))
        talk.say(
            role,
            values.text(message.get("content")),
            _rest(extra),
            reasoning_content=_thought(message) or None,
            model_name=values.text(response.get("model")) or None,
            tool_calls=calls(message.get("tool_calls"), number),
            metrics=_metrics(values.mapping(response.get("usage")), extra),
            llm_call_count=1,
            **stamped,
        )
    elif role == "tool" or message.get("type") == "function_call_output" or "returncode" in extra:
        id_ = message.get("tool_call_id") or message.get("call_id")
        text = values.text(message["output"] if "output" in message else message.get("content"))
        told = {"exit_code": extra.pop("returncode")} if "returncode" in extra else {}
        talk.result(text, values.text(id_) if id_ else None, told | _rest(extra))
    elif role == "user" and number > 2 and "interrupt_type" not in extra:
        talk.result(values.text(message.get("content")), None, _rest(extra))  # of format 1: a command's output
    else:
        talk.say(role or "user", values.text(message.get("content")), _rest(extra), **stamped)


def _response(talk: Conversation, message: Mapping[str, Any], extra: Mapping[str, Any], number: int) -> None:
    output = values.items(message.get("output"))
    said = [values.text(each.get("content")) for each in output if each.get("type") == "message"]
    thought = [values.text(each.get("summary")) for each in output if each.get("type") == "reasoning"]
    usage = values.mapping(message.get("usage"))
    details = values.mapping(usage.get("input_tokens_details"))
    named = {"prompt_tokens": usage.get("input_tokens"), "completion_tokens": usage.get("output_tokens")}
    talk.say(
        "assistant",
        "\n".join(said),
        _rest(extra),
        reasoning_content="\n".join(each for each in thought if each) or None,
        model_name=values.text(message.get("model")) or None,
        tool_calls=calls([each for each in output if each.get("type") == "function_call"], number),
        metrics=_metrics(named | {"prompt_tokens_details": details}, extra),
        llm_call_count=1,
        timestamp=sums.stamp(values.amount(extra.get("timestamp"))) or None,
    )


def _thought(message: Mapping[str, Any]) -> str:
    return values.text(message.get("reasoning_content") or message.get("reasoning"))


def _metrics(usage: Mapping[str, Any], extra: Mapping[str, Any]) -> Metrics | None:
    details = values.mapping(usage.get("prompt_tokens_details"))
    told = {
        "prompt_tokens": values.count(usage.get("prompt_tokens")),
        "completion_tokens": values.count(usage.get("completion_tokens")),
        "cached_tokens": values.count(details.get("cached_tokens")),
        "cost_usd": values.amount(extra.get("cost")),
    }
    return Metrics.model_validate(told) if any(value is not None for value in told.values()) else None


def _rest(extra: Mapping[str, Any]) -> dict[str, Any]:
    """What is worth keeping of a message's own facts: the response as a whole is told already."""
    return {name: value for name, value in extra.items() if name not in {"response", "timestamp", "cost"}}
