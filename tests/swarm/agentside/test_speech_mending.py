"""JSON as models write it: read where there is one reading, never where something may be cut off."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.types import Choice, ToolCall
from swarm.speech import mending
from swarm.speech.calls import Broken, Call
from swarm.speech.form import Form
from swarm.speech.turn import read
from swarm.tools.specs import specs

SPECS = specs(testable=True)
FORMS = [Form(way="native"), Form(way="text"), Form(way="constrained", shape="object")]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1,}', {"a": 1}),
        ("{'a': 'b'}", {"a": "b"}),
        ('{"a": "one\ntwo"}', {"a": "one\ntwo"}),
        ('{"a": {"b": "c"}', {"a": {"b": "c"}}),
        ('{"a": 1}}', {"a": 1}),
        ('{a: True, /* why */ "b": None} ', {"a": True, "b": None}),
        ('{"a": "\\d+"}', {"a": "\\d+"}),
        ('{"a": 1\n"b": 2}', {"a": 1, "b": 2}),
        ('{"a": "say "hi""}', {"a": 'say "hi"'}),
        ('{"c": "print("a", "b")\\n", "t": 5}', {"c": 'print("a", "b")\n', "t": 5}),
        ('{"c": "d = {"a": "b", "c": 1}"}', {"c": 'd = {"a": "b", "c": 1}'}),
        ('{"c": """x "y" z"""}', {"c": 'x "y" z'}),
        ('{\\"a\\": \\"b\\"}', {"a": "b"}),
        ("{\u201ca\u201d: \u201cb\u201d}", {"a": "b"}),
    ],
)
def test_slips_with_one_reading_are_mended(text: str, value: Any) -> None:
    found = mending.load(text)
    assert found is not None
    assert found.value == value
    assert found.mended


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "x',  '{"a": "x"', '{"a": 12', '{"path": "a", "content": "print("', '{"path": "a", "content": "x = 1"',
        '{"a": tru', '{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2', "{'a': 'it's'}", "{", "", '{"a"', '{"a":',
        '["a",', "not json", '{"a": "b" "c": "d"}{',
    ],
)  # fmt: skip
def test_what_may_be_cut_off_or_read_in_two_ways_is_not_guessed_at(text: str) -> None:
    assert mending.load(text) is None


KEYS = st.text("abc", min_size=1, max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=3)


@given(OBJECTS, st.data())
def test_no_beginning_of_a_write_is_ever_taken_for_the_whole(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps({"name": "write", "arguments": {"path": "a", "content": json.dumps(value)}})
    cut = data.draw(st.integers(0, len(text) - 3))  # with both of its last brackets gone or more
    found = mending.load(text[:cut])
    assert found is None or not isinstance(found.value, dict)


@given(OBJECTS)
def test_proper_json_is_never_mended(value: dict[str, Any]) -> None:
    found = mending.load(json.dumps(value))
    assert found is not None
    assert (found.value, found.mended) == (value, ())


@given(OBJECTS)
def test_quotes_that_nobody_escaped_are_mended_to_what_was_meant_or_not_at_all(value: dict[str, Any]) -> None:
    inner = json.dumps(value)
    said = '{"name": "write", "arguments": {"path": "a", "content": "' + inner + '"}}'
    for call in read(Choice(content=f"```tool\n{said}\n```"), SPECS, FORMS[1], number=1).calls:
        assert isinstance(call, Broken) or call.arguments == {"path": "a", "content": inner} or "\\" in inner


PIECES = st.sampled_from([
    "<tool_call>", "</tool_call>", '{"name": "view", "arguments": {"path": "a.py"}}', "<function=view>", "</function>",
    "<parameter=path>", "</parameter>", "a.py", "```tool\n", "\n```", "```", "{", "}", "[", "]", '"', "'", "\n", " ",
    "<think>", "</think>", "[TOOL_CALLS]", "view", "[ARGS]", "<|python_tag|>", "<|tool_call|>", "to=functions.view",
    "<|message|>", '<invoke name="view">', "</invoke>", "<arg_key>path</arg_key>", "<arg_value>", "</arg_value>",
    "<|tool_call>call:view{", '<|"|>', 'view(path="a")', "Action: view\nAction Input: ", "\ud83d", "\x00",
    "<|im_end|>",
    "<|im_start|>user", '{"name": "write", "arguments": {"path": "b", "content": "',
    "\uff5c", "<\uff5ctool\u2581call\u2581begin\uff5c>",
    "<view>", "<path>", "</path>", "</view>", "text",
])  # fmt: skip
SAID = st.lists(PIECES, max_size=14).map("".join)
TOLD = st.builds(
    Choice,
    content=SAID,
    reasoning=SAID,
    tool_calls=st.lists(st.builds(ToolCall, id=st.just(""), name=SAID, arguments=SAID), max_size=2).map(tuple),
    torn=st.lists(st.builds(ToolCall, id=st.just(""), name=SAID, arguments=SAID), max_size=1).map(tuple),
    finish_reason=st.sampled_from(["stop", "length", "tool_calls", "other"]),
)


@given(TOLD, st.sampled_from(FORMS))
def test_whatever_a_model_says_is_read_and_what_is_kept_is_well_formed(choice: Choice, form: Form) -> None:
    turn = read(choice, SPECS, form, number=7)
    kept = turn.message
    kept.model_dump_json().encode()  # no lone surrogate
    assert kept.role == "assistant"
    assert kept.content or kept.tool_calls
    assert len(kept.tool_calls) == (len(turn.calls) if form.native else 0)
    assert len({call.id for call in kept.tool_calls}) == len(kept.tool_calls)
    for call in kept.tool_calls:
        assert isinstance(json.loads(call.arguments), dict)
        assert len(call.id) == 9
    names = {spec.name for spec in SPECS}
    for asked in turn.calls:
        assert isinstance(asked, Broken) or asked.name in names
        assert isinstance(asked, Call) or asked.reason
    if choice.finish_reason == "length" and turn.calls and not choice.torn:
        assert isinstance(turn.calls[-1], Broken)
    assert (turn.said == "calls") == bool(turn.calls)


def test_torn_native_calls_are_mended_only_where_their_writer_had_closed_them() -> None:
    def torn(arguments: str) -> Call | Broken:
        call = ToolCall(id="x", name="write", arguments=arguments)
        (only,) = read(Choice(torn=(call,), finish_reason="length"), SPECS, FORMS[0], number=1).calls
        return only

    assert torn("{'path': 'a', 'content': 'b'}").arguments == {"path": "a", "content": "b"}  # type: ignore[union-attr]
    assert isinstance(torn('{"path": "a", "content": "b'), Broken)
    assert isinstance(torn('{"path": "a", "content": "b"'), Broken)


def test_a_broken_call_is_answered_with_the_right_form() -> None:
    (call,) = read(Choice(content='```tool\n{"name": "edit", "arguments": {"path": "a"}}\n```'), SPECS, FORMS[1],
                   number=1).calls  # fmt: skip
    assert isinstance(call, Broken)
    assert "it needs search, replace" in call.reason
    assert (
        '{"name": "edit", "arguments": {"path": "<string>", "search": "<string>", "replace": "<string>"}}'
        in call.reason
    )
