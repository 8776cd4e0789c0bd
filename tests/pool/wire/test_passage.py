"""A caller gets the server's own events, but for what would mislead it."""

from __future__ import annotations

import json
from typing import Any

from pool.wire.assembly import Assembly
from pool.wire.passage import Passage
from pool.wire.stream import Event, Splitter


def event(piece: dict[str, Any]) -> Event:
    return Event("piece", b"data: " + json.dumps(piece).encode() + b"\n\n", json.dumps(piece).encode())


def piece(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


class Caller:
    """Sends pieces through a passage as a relay does."""

    def __init__(self, **body: Any) -> None:
        self.passage = Passage({"stream": True, **body})
        self.assembly = Assembly()

    def send(self, told: dict[str, Any]) -> bytes:
        self.assembly.add(told)
        return self.passage.out(event(told), json.loads(json.dumps(told)), self.assembly)

    def get(self, told: dict[str, Any]) -> dict[str, Any]:
        (found,) = Splitter().feed(self.send(told))
        return found.json()


def test_pieces_are_handed_on_byte_for_byte() -> None:
    caller = Caller()
    for told in (piece(role="assistant", content=""), piece(content="hé\u2028 "), piece("stop", strange=[1])):
        assert caller.send(told) == event(told).raw


def test_comments_and_the_terminator_pass() -> None:
    caller = Caller()
    assert caller.passage.out(Event("comment", b": ping\n\n"), None, caller.assembly) == b": ping\n\n"
    assert caller.passage.out(Event("done", b"data: [DONE]\n\n"), None, caller.assembly) == b"data: [DONE]\n\n"


USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def test_usage_that_only_the_pool_wanted_is_kept_back() -> None:
    only = {"id": "x", "choices": [], "usage": USAGE}
    assert Caller().send(only) == b""
    assert Caller(stream_options={"include_usage": True}).send(only) == event(only).raw
    assert "usage" not in Caller().get({**piece(content="a"), "usage": USAGE})


def test_call_that_was_never_made_is_not_told_as_made() -> None:
    """Seen in vLLM 0.32 under tool_choice "required": it stopped in its thinking, the finish was `tool_calls`."""
    caller = Caller()
    caller.send(piece(reasoning="hm"))
    assert caller.get(piece("tool_calls"))["choices"][0]["finish_reason"] == "stop"


def test_cut_call_is_told_as_cut() -> None:
    """vllm-project/vllm#53269, #47761."""
    caller = Caller()
    caller.send(piece(tool_calls=[{"index": 0, "id": "c", "function": {"name": "shell", "arguments": '{"c": "rm'}}]))
    assert caller.get(piece("tool_calls"))["choices"][0]["finish_reason"] == "length"


def test_whole_call_keeps_its_finish() -> None:
    caller = Caller()
    caller.send(piece(tool_calls=[{"index": 0, "id": "c", "function": {"name": "shell", "arguments": "{}"}}]))
    assert caller.send(piece("tool_calls")) == event(piece("tool_calls")).raw


def test_joint_says_no_blank_twice_and_keeps_one_id() -> None:
    caller = Caller(stream_options={"include_usage": True})
    caller.send(piece(content="one "))
    caller.passage.joined("one ", 1)
    later = {**piece(role="assistant", content=" two"), "id": "y", "model": "other"}
    told = caller.get(later)
    assert (told["id"], told["model"]) == ("x", "m")
    assert told["choices"][0]["delta"] == {"content": "two"}
    assert caller.get(piece(content=" three"))["choices"][0]["delta"]["content"] == " three"
    assert caller.get({"choices": [], "usage": USAGE})["usage"]["completion_tokens"] == 3
