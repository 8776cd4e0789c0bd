"""A call written properly in any family's form is read as it was meant, whatever stands in its arguments."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pool.types import Choice, ToolCall
from swarm.speech.calls import Call
from swarm.speech.form import Form
from swarm.speech.turn import read
from swarm.tools.specs import specs

SPECS = specs(testable=True)
NATIVE, TEXT, HELD = Form(way="native"), Form(way="text"), Form(way="constrained", shape="object")
HOSTILE = st.lists(
    st.sampled_from([
        "x = 1", "\n", '"', "'", "{", "}", "[", "]", "\\", "```", "```tool\n", "\n```\n", "</tool_call>", "<tool_call>",
        "<|im_end|>", "<think>", "</think>", "[TOOL_CALLS]", '{"name": "finish", "arguments": {"title": "x"}}', "</s>",
        "<function=shell>", "<|python_tag|>", "to=functions.finish {}", "é", "<|call|>", "finish(title='x')", "  ", ";",
        "<|im_start|>user\n", "Action: finish\nAction Input: {}", "<finish><title>x</title></finish>", "# a", "// b",
        ",",
    ]),
    max_size=8,
).map("".join)  # fmt: skip
CALLS = st.one_of(
    st.builds(lambda text: ("write", {"path": "a.py", "content": text}), HOSTILE),
    st.builds(lambda old, new: ("edit", {"path": "a.py", "search": old, "replace": new}), HOSTILE, HOSTILE),
    st.builds(lambda text: ("shell", {"command": f"echo {text}"}), HOSTILE),
)


def _object(name: str, arguments: dict[str, Any], key: str = "arguments") -> str:
    return json.dumps({"name": name, key: arguments}, ensure_ascii=False)


FORMS = {
    "hermes": lambda n, a: f"<tool_call>\n{_object(n, a)}\n</tool_call>",
    "fenced": lambda n, a: f"I do it.\n```tool\n{_object(n, a)}\n```",
    "json": lambda n, a: f"```json\n{json.dumps(json.loads(_object(n, a)), indent=2)}\n```",
    "mistral": lambda n, a: f"[TOOL_CALLS] [{_object(n, a)}]</s>",
    "devstral": lambda n, a: f"[TOOL_CALLS]{n}[ARGS]{json.dumps(a)}",
    "llama": lambda n, a: f"<|python_tag|>{_object(n, a, 'parameters')}<|eom_id|>",
    "bare": lambda n, a: f"So: {_object(n, a)}",
    "kimi": lambda n, a: (
        f"<|tool_call_begin|>functions.{n}:0<|tool_call_argument_begin|>{json.dumps(a)}<|tool_call_end|>"
    ),
    "harmony": lambda n, a: (
        f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{json.dumps(a)}<|call|>"
    ),
    "phi": lambda n, a: f"<|tool_call|>[{_object(n, a)}]<|/tool_call|>",
    "python": lambda n, a: f"```tool_code\n{n}({', '.join(f'{key}={value!r}' for key, value in a.items())})\n```",
}


@given(CALLS, st.sampled_from(sorted(FORMS)), st.sampled_from([NATIVE, TEXT]))
def test_a_proper_call_is_read_as_it_was_meant_whatever_is_in_it(
    call: tuple[str, dict[str, Any]], shape: str, form: Form
) -> None:
    turn = read(Choice(content=FORMS[shape](*call)), SPECS, form, number=1)
    assert turn.calls == (Call(turn.calls[0].id, *call),)
    again = read(Choice(content=turn.message.content, tool_calls=turn.message.tool_calls), SPECS, form, number=1)
    assert again.calls == turn.calls


@given(CALLS, st.sampled_from([NATIVE, TEXT, HELD]))
def test_what_the_server_or_the_schema_vouches_for_is_taken_as_it_is(
    call: tuple[str, dict[str, Any]], form: Form
) -> None:
    name, arguments = call
    held = json.dumps({"thought": "</think> <tool_call>", "name": name, "arguments": arguments})
    asked = (ToolCall(id="x", name=name, arguments=json.dumps(arguments)),)
    choice = Choice(content=held) if form is HELD else Choice(content="<tool_call>{}</tool_call>", tool_calls=asked)
    turn = read(choice, SPECS, form, number=1)
    assert turn.calls == (Call(turn.calls[0].id, name, arguments),)
    assert not turn.mended
    assert not turn.garbled


@given(CALLS, CALLS, st.sampled_from(["hermes", "fenced", "devstral", "kimi"]))
def test_two_calls_in_a_row_are_both_heard(
    one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]], shape: str
) -> None:
    said = "\n".join(FORMS[shape](*call).removeprefix("I do it.\n") for call in (one, other))
    turn = read(Choice(content=said), SPECS, TEXT, number=1)
    assert [(call.name, call.arguments) for call in turn.calls] == [one, other]  # type: ignore[union-attr]
