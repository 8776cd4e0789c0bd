"""No tool call is handed on that was cut, and one that does not fit its schema says why."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.types import Choice, ToolCall, ToolSpec
from pool.wire.arguments import judged, whole_json

SHELL = ToolSpec(
    name="shell",
    description="run",
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string"}, "seconds": {"type": "integer"}},
        "required": ["command"],
    },
)


def choice(*arguments: str, name: str = "shell") -> Choice:
    calls = tuple(ToolCall(id=f"c{i}", name=name, arguments=text) for i, text in enumerate(arguments))
    return Choice(tool_calls=calls, finish_reason="tool_calls")


WHOLE = json.dumps({"command": 'echo "hi" && ls', "seconds": 3})


@given(st.integers(1, len(WHOLE) - 1))
def test_call_that_was_cut_anywhere_is_taken_out_and_told_as_cut(at: int) -> None:
    """vllm-project/vllm#53269, #47761, #47903, #9053, #47963."""
    found = judged(choice(WHOLE[:at]), [SHELL])
    assert (found.tool_calls, found.finish_reason) == ((), "length")


def test_end_by_calls_without_any_is_a_plain_end() -> None:
    assert judged(choice(), [SHELL]).finish_reason == "stop"


def test_whole_calls_before_a_cut_one_are_kept() -> None:
    found = judged(choice(WHOLE, '{"command": "rm'), [SHELL])
    assert [call.id for call in found.tool_calls] == ["c0"]
    assert found.finish_reason == "length"


def test_fitting_call_is_handed_on_as_it_is() -> None:
    assert judged(choice(WHOLE), [SHELL]) == choice(WHOLE)
    assert judged(choice(json.dumps(WHOLE)), [SHELL]) == choice(json.dumps(WHOLE))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [('{"command": 7}', "command: 7 is not of type 'string'"), ("{}", "'command' is a required property"),
     ("", "'command' is a required property"), ('{"command": "x", "seconds": "soon"}', "seconds:")],
)  # fmt: skip
def test_call_that_does_not_fit_says_why(arguments: str, told: str) -> None:
    found = judged(choice(arguments), [SHELL])
    assert told in found.tool_calls[0].fault
    assert found.finish_reason == "tool_calls"


def test_call_of_a_tool_that_nobody_offered_says_so() -> None:
    assert "no tool named 'rm'" in judged(choice("{}", name="rm"), [SHELL]).tool_calls[0].fault


def test_schema_that_is_none_faults_nobody() -> None:
    odd = ToolSpec(name="shell", description="", parameters={"type": "nonsense"})
    assert judged(choice("{}"), [odd]).tool_calls[0].fault == ""
    loop = ToolSpec(name="shell", description="", parameters={"$ref": "#"})
    assert judged(choice("{}"), [loop]).tool_calls[0].fault == ""


@pytest.mark.parametrize("text", ["[]", "7", "null", '"x"', "{", "{]", "[" * 100_000])
def test_only_an_object_is_whole(text: str) -> None:
    assert not whole_json(text)
