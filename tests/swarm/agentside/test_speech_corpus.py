"""A corpus of raw answers, one for each family's form and for each slip that is known: what they are read as."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pool.types import Choice
from swarm.speech.calls import Call
from swarm.speech.form import Form
from swarm.speech.turn import read
from swarm.tools.specs import specs

SPECS = specs(testable=True)
CORPUS: dict[str, dict[str, Any]] = {
    one.pop("name"): one for one in tomllib.loads(Path(__file__).with_name("spoken.toml").read_text())["said"]
}
FORMS = {way: Form(way=way) for way in ("native", "text", "constrained")}


def told(call: Any) -> list[Any]:
    return [call.name, call.arguments] if isinstance(call, Call) else [f"!{call.name}", {}]


@pytest.mark.parametrize("way", FORMS)
@pytest.mark.parametrize("said", CORPUS.values(), ids=CORPUS.keys())
def test_what_a_family_writes_is_read_as_what_it_means(said: dict[str, Any], way: str) -> None:
    choice = Choice(content=said.get("content", ""), reasoning=said.get("reasoning", ""))
    turn = read(choice, SPECS, FORMS[way], number=1)
    assert [told(call) for call in turn.calls] == said["calls"]


@pytest.mark.parametrize("said", CORPUS.values(), ids=CORPUS.keys())
def test_what_is_kept_in_the_text_form_is_read_as_the_same_again(said: dict[str, Any]) -> None:
    for form in (FORMS["text"], FORMS["constrained"]):
        turn = read(Choice(content=said.get("content", ""), reasoning=said.get("reasoning", "")), SPECS, form, number=1)
        again = read(Choice(content=turn.message.content), SPECS, form, number=1)
        if all(isinstance(call, Call) for call in turn.calls):
            assert [told(call) for call in again.calls] == said["calls"]
            assert not again.mended


@pytest.mark.parametrize("said", CORPUS.values(), ids=CORPUS.keys())
def test_no_special_token_of_a_call_stays_in_the_history_of_a_native_conversation(said: dict[str, Any]) -> None:
    choice = Choice(content=said.get("content", ""), reasoning=said.get("reasoning", ""))
    message = read(choice, SPECS, FORMS["native"], number=1).message
    assert "<|" not in message.content
    assert "<tool_call>" not in message.content
    assert message.content or message.tool_calls
    for call in message.tool_calls:
        assert isinstance(json.loads(call.arguments), dict)
