"""A stream and the whole say the same, in either direction."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pool.errors import TransientError
from pool.wire.assembly import Assembly, whole
from pool.wire.recast import Whole, pieces_of
from pool.wire.stream import Splitter

LIKELY = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1}}


def chat(*choices: dict[str, Any]) -> dict[str, Any]:
    return {"id": "1", "created": 5, "model": "m", "object": "chat.completion", "choices": [*choices], "usage": USAGE}


def sample(index: int, message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    return {"index": index, "message": {"role": "assistant", **message}, "finish_reason": finish, **more}


BODIES = [
    chat(sample(0, {"content": "hello"})),
    chat(sample(0, {"content": ""}, "length")),
    chat(sample(0, {"content": "a", "reasoning": "why"}, logprobs={"content": [LIKELY]}, stop_reason="x")),
    chat(sample(0, {"content": None, "tool_calls": [CALL, CALL | {"id": "d"}]}, "tool_calls")),
    chat(sample(0, {"content": "one"}), sample(1, {"content": "two"}, "length")),
    {"id": "2", "object": "text_completion", "model": "m", "usage": USAGE, "choices": [
        {"index": 0, "text": "abc", "finish_reason": "stop", "logprobs": {"tokens": ["a"], "token_logprobs": [-1.0]}}
    ]},
]  # fmt: skip


def lean(value: Any) -> Any:
    """Without what is null: a stream leaves that out."""
    if isinstance(value, dict):
        return {name: lean(one) for name, one in value.items() if one is not None}
    return [lean(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("body", BODIES)
def test_there_and_back_is_the_same(body: dict[str, Any]) -> None:
    joined = Whole()
    raw = b"".join(event.raw for event, _ in pieces_of(json.loads(json.dumps(body))))
    events = Splitter().feed(raw)
    assert events[-1].sort == "done"
    assembly = Assembly()
    for event in events[:-1]:
        joined.add(event.json())
        assembly.add(event.json())
    assert lean(joined.body) == lean(body)
    assert assembly.done() == whole(body)


def test_fragments_are_joined_and_what_is_unknown_is_kept() -> None:
    joined = Whole()
    first = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x"'}}
    for delta in (
        {"role": "assistant", "content": ""},
        {"content": "Hel", "odd": "o"},
        {"content": "lo", "odd": "dd"},
        {"tool_calls": [first]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
    ):
        joined.add({"id": "1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    joined.add({"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    (choice,) = joined.body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello", "odd": "odd", "tool_calls": [CALL]}
    assert (choice["finish_reason"], joined.body["model"]) == ("tool_calls", "m")


@pytest.mark.parametrize("part", [5, {"delta": {"tool_calls": [5]}}, {"delta": {"tool_calls": {"a": 1}}}])
def test_odd_parts_are_a_passing_fault(part: Any) -> None:
    with pytest.raises(TransientError):
        Whole().add({"choices": [part]})
