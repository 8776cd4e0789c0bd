"""Trajectories of SWE-agent (`*.traj`, 0.x and 1.x) as transcripts. Pure.

Its ``history`` is what the model was told in the end, its ``trajectory`` how each turn went; the times and states of
the turns are joined to the answers in their order. Described at swe-agent.com/latest/usage/trajectories.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarm.transcripts import sums, values
from swarm.transcripts.conversation import Conversation, calls
from swarm.transcripts.shape import Agent, Header, Transcript

NAME = "swe-agent"
_TOLD = {"role", "content", "thought", "action", "tool_calls", "tool_call_ids", "thinking_blocks"}


def is_one(value: Any) -> bool:
    """Whether a value looks like one."""
    return isinstance(value, dict) and isinstance(value.get("trajectory"), list)


def transcript_of(value: Any) -> Transcript:
    """The transcript; what has another type than it should is left out."""
    root = values.mapping(value)
    turns, info = values.items(root.get("trajectory")), values.mapping(root.get("info"))
    history = values.items(root.get("history"))
    talk = Conversation()
    if history:
        _from_history(talk, history, turns)
    else:
        for number, turn in enumerate(turns, 1):
            talk.say("assistant", _answer(turn), _facts(turn), llm_call_count=1)
            talk.result(values.text(turn.get("observation")), None, _took(turn) | {"turn": number})
    steps = talk.steps()
    stats = values.mapping(info.get("model_stats"))
    rest = {name: each for name, each in info.items() if name not in {"exit_status", "submission", "model_stats"}}
    end = sums.ended(
        steps,
        ending=values.text(info.get("exit_status")),
        submission=values.text(info.get("submission")),
        total_prompt_tokens=values.count(stats.get("tokens_sent")),
        total_completion_tokens=values.count(stats.get("tokens_received")),
        total_cost_usd=values.amount(stats.get("instance_cost")),
        extra=rest | ({"model_stats": stats} if stats else {}),
    )
    told = {name: root[name] for name in root if name not in {"trajectory", "history", "info"}}
    header = Header(
        agent=Agent(name=NAME, version=values.text(info.get("swe_agent_version")), model_name=_model(told)),
        origin=NAME,
        task=values.text(root.get("instance_id")),
        extra=told,
    )
    return Transcript(header=header, steps=steps, end=end if info else None)


def _from_history(talk: Conversation, history: list[dict[str, Any]], turns: list[dict[str, Any]]) -> None:
    """Each message, with what the turn that it belongs to knows of it. A demonstration is no turn."""
    ahead = iter(turns)
    turn: dict[str, Any] = {}
    for number, message in enumerate(history, 1):
        role = values.text(message.get("role"))
        facts = {name: value for name, value in message.items() if name not in _TOLD}
        shown = bool(message.get("is_demo"))
        if role == "assistant":
            turn = {} if shown else next(ahead, {})
            action = {"action": values.text(message["action"])} if message.get("action") else {}
            talk.say(
                role,
                values.text(message.get("content")),
                facts | action | _facts(turn),
                tool_calls=calls(message.get("tool_calls"), number),
                reasoning_content=_thinking(message) or None,
                llm_call_count=0 if shown else 1,
            )
        elif role == "tool" or (turn and role == "user"):
            ids = message.get("tool_call_ids")
            id_ = ids[0] if isinstance(ids, list) and ids else message.get("tool_call_id")
            talk.result(values.text(message.get("content")), values.text(id_) if id_ else None, facts | _took(turn))
        else:
            talk.say(role or "user", values.text(message.get("content")), facts)


def _thinking(message: Mapping[str, Any]) -> str:
    blocks = values.items(message.get("thinking_blocks"))
    return "\n".join(values.text(each.get("thinking")) for each in blocks)


def _answer(turn: Mapping[str, Any]) -> str:
    return values.text(turn.get("response") or turn.get("thought"))


def _facts(turn: Mapping[str, Any]) -> dict[str, Any]:
    """What a turn knows and its message does not. Its ``messages`` and ``query`` repeat the conversation so far."""
    kept = {name: turn[name] for name in ("action", "state", "extra_info") if turn.get(name)}
    if isinstance(kept.get("action"), list | dict):
        kept["action"] = values.text(kept["action"])
    return kept


def _took(turn: Mapping[str, Any]) -> dict[str, Any]:
    seconds = values.amount(turn.get("execution_time"))
    return {} if seconds is None else {"seconds": seconds}


def _model(root: Mapping[str, Any]) -> str:
    """The model's name, out of the configuration that a run of 1.x keeps."""
    config = values.mapping(root.get("replay_config"))
    if isinstance(root.get("replay_config"), str):
        try:
            config = values.mapping(values.parsed(str(root["replay_config"])))
        except ValueError:
            config = {}
    model = values.mapping(values.mapping(config.get("agent")).get("model"))
    return values.text(model.get("name"))
