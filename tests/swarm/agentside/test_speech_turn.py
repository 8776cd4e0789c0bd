"""What models write as tool calls, and what becomes of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.types import Choice, ToolCall
from swarm.speech.calls import Broken, Call
from swarm.speech.form import Form
from swarm.speech.turn import read
from swarm.tools.specs import specs

NATIVE, TEXT = Form(way="native"), Form(way="text")
SPECS = specs(testable=True)
VIEW = {"name": "view", "arguments": {"path": "a.py"}}


def text_turn(content: str, **more: object):
    return read(Choice(content=content, **more), SPECS, TEXT, number=1)


def only_call(content: str) -> Call:
    (call,) = text_turn(content).calls
    assert isinstance(call, Call), call
    return call


@pytest.mark.parametrize(
    "content",
    [
        '```tool\n{"name": "view", "arguments": {"path": "a.py"}}\n```',
        'I look.\n```tool\n{"name": "view", "arguments": {"path": "a.py"}}\n```\nThen I go on.',
        '```json\n{"tool": "view", "args": {"path": "a.py"}}\n```',
        '```\n{"name": "view", "path": "a.py"}\n```',
        '```tool\n{"name": "view", "arguments": {"path": "a.py",},}\n```',
        '```tool\n{"name": "view", "arguments": "{\\"path\\": \\"a.py\\"}"}\n```',
        "```tool\n{'name': 'view', 'arguments': {'path': 'a.py'}}\n```",
        '```tool\n{"name": "view", "arguments": {"path": "a.py"}\n```',
        '```tool\n[{"name": "view", "arguments": {"path": "a.py"}}]\n```',
        '```tool\n{"function": {"name": "view", "arguments": {"path": "a.py"}}}\n```',
        '```tool\n{"name": "view", "arguments": {"path": "a.py"}}',
        '<tool_call>\n{"name": "view", "arguments": {"path": "a.py"}}\n</tool_call>',
        '<tool_call>{"name": "view", "arguments": {"path": "a.py"}}',
        "<function=view>\n<parameter=path>\na.py\n</parameter>\n</function>",
        "```tool\n<function=view><parameter=path>a.py</parameter></function>\n```",
        'Let me see: {"name": "view", "arguments": {"path": "a.py"}} Done.',
        '```tool\n{"name": "read_file", "arguments": {"file": "a.py"}}\n```',
        '```tool\n{"name": "veiw", "arguments": {"filename": "a.py"}}\n```',
        '```tool\n{"name": "functions.view", "arguments": {"file_path": "a.py"}}\n```',
        '```tool\n{"name": "VIEW", "arguments": {"path": "a.py"}}\n```',
    ],
)
def test_many_ways_to_say_the_same_are_understood(content: str) -> None:
    call = only_call(content)
    assert (call.name, call.arguments) == ("view", {"path": "a.py"})


def test_raw_newlines_in_strings_are_read() -> None:
    call = only_call('```tool\n{"name": "write", "arguments": {"path": "a", "content": "one\ntwo"}}\n```')
    assert call.arguments["content"] == "one\ntwo"


def test_python_snippet_is_no_call() -> None:
    assert text_turn("The code is\n```python\nx = {'name': 1}\n```\nand done.").calls == ()


def test_text_without_a_call_is_kept_as_it_is() -> None:
    turn = text_turn("I am not sure.")
    assert turn.calls == ()
    assert turn.message.content == "I am not sure."


def test_what_follows_the_call_is_not_kept() -> None:
    turn = text_turn(f"```tool\n{json.dumps(VIEW)}\n```\nResult: the file is empty. So I call\n```tool\n{{}}\n```")
    assert len(turn.calls) == 1
    assert turn.message.content.endswith("```")
    assert "Result" not in turn.message.content


def test_unknown_tool_is_told_with_the_names_of_all() -> None:
    (call,) = text_turn('```tool\n{"name": "deploy_rocket", "arguments": {}}\n```').calls
    assert isinstance(call, Broken)
    assert ", ".join(spec.name for spec in SPECS) in call.reason


def test_block_that_is_no_json_is_broken_not_ignored() -> None:
    (call,) = text_turn("```tool\nview a.py\n```").calls
    assert isinstance(call, Broken)


def test_arguments_that_are_no_object_are_broken() -> None:
    choice = Choice(tool_calls=(ToolCall(id="1", name="view", arguments='"Paris"'),), finish_reason="tool_calls")
    turn = read(choice, SPECS, NATIVE, number=1)
    assert isinstance(turn.calls[0], Broken)


def test_native_call_with_broken_json_stays_well_formed_in_the_history() -> None:
    choice = Choice(tool_calls=(ToolCall(id="1", name="view", arguments='{"path": "a.p'),), finish_reason="tool_calls")
    turn = read(choice, SPECS, NATIVE, number=1)
    assert isinstance(turn.calls[0], Broken)
    assert json.loads(turn.message.tool_calls[0].arguments) == {}


def test_nan_never_reaches_the_history() -> None:
    choice = Choice(tool_calls=(ToolCall(id="1", name="view", arguments='{"path": "a", "first": NaN}'),))
    turn = read(choice, SPECS, NATIVE, number=1)
    assert "NaN" not in turn.message.tool_calls[0].arguments


def test_ids_are_unique_even_where_a_server_repeats_its_own() -> None:
    calls = tuple(ToolCall(id="", name="view", arguments='{"path": "a"}') for _ in range(2))
    ids = [c.id for n in (1, 2) for c in read(Choice(tool_calls=calls), SPECS, NATIVE, number=n).calls]
    assert len(set(ids)) == 4


def test_call_left_in_the_text_by_a_servers_parser_is_recovered() -> None:
    turn = read(Choice(content=f"<tool_call>{json.dumps(VIEW)}</tool_call>"), SPECS, NATIVE, number=3)
    assert isinstance(turn.calls[0], Call)
    assert turn.message.tool_calls[0].id == turn.calls[0].id


def test_call_inside_the_reasoning_is_recovered_when_there_is_no_content() -> None:
    turn = text_turn("", reasoning=f"I should look.\n```tool\n{json.dumps(VIEW)}\n```")
    assert isinstance(turn.calls[0], Call)


def test_call_cut_off_by_the_length_limit_is_not_run() -> None:
    content = '```tool\n{"name": "write", "arguments": {"path": "a", "content": "half'
    (call,) = text_turn(content + '"}}', finish_reason="length").calls
    assert isinstance(call, Broken)
    calls = tuple(ToolCall(id="x", name="write", arguments='{"path": "a", "content": "b"}') for _ in range(2))
    turn = read(Choice(tool_calls=calls, finish_reason="length"), SPECS, NATIVE, number=1)
    assert [type(call) for call in turn.calls] == [Call, Broken]


def test_lone_surrogates_do_not_reach_the_history() -> None:
    turn = text_turn("\ud83d hello")
    turn.message.content.encode()


@given(st.text(alphabet="{}[]\"'`:,\\ \n<>=/abtolview_cfun", max_size=120), st.booleans())
def test_garbage_is_read_without_breaking(content: str, native: bool) -> None:
    turn = read(Choice(content=content), SPECS, NATIVE if native else TEXT, number=1)
    assert turn.message.role == "assistant"


@given(st.text(max_size=60), st.text(max_size=20))
def test_native_garbage_is_read_without_breaking(arguments: str, name: str) -> None:
    turn = read(Choice(tool_calls=(ToolCall(id="", name=name, arguments=arguments),)), SPECS, NATIVE, number=1)
    assert isinstance(json.loads(turn.message.tool_calls[0].arguments), dict)


def test_an_argument_that_a_small_model_is_not_told_of_is_taken_all_the_same() -> None:
    small = specs(testable=True, size="small")
    call = ToolCall(id="x", name="shell", arguments='{"command": "ls", "timeout": "5"}')
    (only,) = read(Choice(tool_calls=(call,)), small, NATIVE, number=1).calls
    assert isinstance(only, Call)
    assert only.arguments == {"command": "ls", "timeout": 5}
