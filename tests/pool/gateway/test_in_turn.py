"""Calls that a chat's chunks tell side by side reach block by block APIs one after the other, each whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.gateway.in_turn import VAIN, Block, InTurn
from pool.gateway.messages_out import Message
from pool.gateway.responses_out import Answer

JSON = dict[str, Any]


def call(index: int, arguments: str = "", name: str = "", number: str = "") -> JSON:
    return {
        "index": index,
        **({"id": number} if number else {}),
        "function": {"arguments": arguments, **({"name": name} if name else {})},
    }


F, G = call(0, name="f", number="c0"), call(1, name="g", number="c1")
SIDE_BY_SIDE: list[JSON] = [
    {"tool_calls": [F]},
    {"tool_calls": [G]},
    {"tool_calls": [call(0, '{"a":'), call(1, "{}")]},
    {"tool_calls": [call(0, '"b"}')]},
]
BETWEEN: list[JSON] = [{"tool_calls": [F]}, {"content": "\n"}, {"tool_calls": [call(0, '{"a":"b"}')]}]
MADE = [("f", "c0", '{"a":"b"}'), ("g", "c1", "{}")]


def blocks(deltas: list[JSON]) -> list[tuple[Block, str]]:
    """What is told, each block once and in one piece."""
    turns, told = InTurn(), list[tuple[Block, str]]()
    for block, more in (*(step for delta in deltas for step in turns.take(delta)), *turns.rest()):
        if told and told[-1][0] is block:
            told[-1] = block, told[-1][1] + more
        else:
            assert all(block is not before for before, _ in told), "a block was opened twice"
            told.append((block, more))
    return told


def message(deltas: list[JSON]) -> JSON:
    told = Message("1", "m")
    for delta in deltas:
        list(told.take({"choices": [{"delta": delta}]}))
    list(told.end())
    return told.whole()


def answer(deltas: list[JSON]) -> JSON:
    told = Answer("1", 0, {})
    for delta in deltas:
        list(told.take({"choices": [{"delta": delta}]}))
    list(told.end())
    return told.whole()


@pytest.mark.parametrize(("deltas", "made"), [(SIDE_BY_SIDE, MADE), (BETWEEN, MADE[:1])])
def test_calls_told_side_by_side_are_whole_in_both_apis(deltas: list[JSON], made: list[Any]) -> None:
    used = [block for block in message(deltas)["content"] if block["type"] == "tool_use"]
    assert [(block["name"], block["id"], json.dumps(block["input"], separators=(",", ":"))) for block in used] == made
    items = [item for item in answer(deltas)["output"] if item["type"] == "function_call"]
    assert [(item["name"], item["call_id"], item["arguments"]) for item in items] == made


def test_the_open_call_is_told_as_it_comes_and_the_next_as_soon_as_nothing_is_missing() -> None:
    turns = InTurn()
    first = [more for _, more in turns.take({"tool_calls": [F]})]
    assert (first, [more for _, more in turns.take({"tool_calls": [call(0, '{"a": 1}')]})]) == ([""], ['{"a": 1}'])
    assert [block.name for block, _ in turns.take({"tool_calls": [G]})] == ["g"]
    assert [more for _, more in turns.take({"tool_calls": [call(1, '{"b"')]})] == ['{"b"']
    assert not list(turns.take({"content": "held"}))
    assert [more for _, more in turns.rest()] == ["held"]


def test_blanks_after_whole_arguments_open_nothing() -> None:
    told = blocks([{"tool_calls": [F]}, {"tool_calls": [call(0, "{}")]}, {"tool_calls": [G, call(0, "\n")]}])
    assert [(block.name, said) for block, said in told] == [("f", "{}"), ("g", "")]


def test_a_call_waits_for_its_name() -> None:
    late = [{"tool_calls": [call(0, number="c0")]}, {"tool_calls": [call(0, "{}", name="f")]}]
    assert [(block.name, said) for block, said in blocks(late)] == [("f", "{}")]
    assert message(late)["content"] == [{"type": "tool_use", "id": "c0", "name": "f", "input": {}}]


def test_many_calls_that_look_whole_and_are_not_cost_a_bounded_number_of_readings() -> None:
    deltas: list[JSON] = [{"tool_calls": [F, G]}]
    deltas += [{"tool_calls": [call(0, '{"}'), call(1, "x")]} for _ in range(VAIN * 4)]
    assert [said.count("x") for _, said in blocks(deltas)] == [0, VAIN * 4]


@given(st.data())
def test_nothing_is_lost_however_the_pieces_are_mixed(data: st.DataObject) -> None:
    whole = {0: '{"a": {"b": "}"}}', 1: "{}", 2: '{"c": [1, 2]}'}
    left = {index: list(text) for index, text in whole.items()}
    deltas: list[JSON] = [{"tool_calls": [call(index, name=f"t{index}") for index in whole]}]
    while any(left.values()):
        index = data.draw(st.sampled_from([index for index, rest in left.items() if rest]))
        size = data.draw(st.integers(1, 6))
        deltas.append({"tool_calls": [call(index, "".join(left[index][:size]))]})
        del left[index][:size]
        if data.draw(st.booleans()):
            deltas.append({"content": "."})
    told = blocks(deltas)
    assert {block.index: said for block, said in told if block.kind == "call"} == whole
    dots = sum(delta.get("content") == "." for delta in deltas)
    assert sum(len(said) for block, said in told if block.kind == "text") == dots
