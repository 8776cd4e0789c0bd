"""The scripted solver says with edits exactly what the known solution is, and is known to evaluations alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.types import ChatRequest, Message
from swarm.config import Settings
from swarm.errors import ConfigError, EvaluationError
from swarm.evaluation.reference import SCRIPTED, ScriptedModel, changed, scripted
from swarm.strategies.choice import strategy_named
from tests.swarm.evaluation.conftest import case

LINES = st.lists(st.sampled_from(["a\n", "b\n", "    a\n", "\n", "c"]), max_size=8).map("".join)


@given(LINES, LINES)
def test_an_edit_finds_one_place_and_makes_the_whole_file(old: str, new: str) -> None:
    found = changed(old, new)
    if found is not None:
        search, replace = found
        assert search.strip()
        assert old.find(search) == old.rfind(search)
        assert old.replace(search, replace) == new


def test_an_edit_is_as_small_as_it_can_be() -> None:
    old = "def f():\n    x = 1\n    return x\n\ndef g():\n    x = 1\n    return x\n"
    new = old[::-1].replace("1", "2", 1)[::-1]
    search, replace = changed(old, new) or ("", "")
    assert old.replace(search, replace) == new
    assert search.count("\n") < old.count("\n") / 2


async def test_the_script_says_that_it_is_done_again_and_again_when_it_is_over() -> None:
    model = ScriptedModel(iter([("view", {"path": "a"})]))
    request = ChatRequest(tier="-", messages=(Message(role="user", content="x"),), session="s")
    calls = [(await model.chat(request)).choices[0].tool_calls[0] for _ in range(3)]
    assert [call.name for call in calls] == ["view", "finish", "finish"]
    assert len({call.id for call in calls}) == 3
    assert json.loads(calls[0].arguments) == {"path": "a"}


def test_a_case_without_a_solution_has_no_reference() -> None:
    with pytest.raises(EvaluationError, match="has no reference solution"):
        scripted("reference", case(solution=None), {})


@pytest.mark.parametrize("name", SCRIPTED)
def test_the_daemon_knows_neither(name: str) -> None:
    assert not Settings().knows(name)
    with pytest.raises(ConfigError):
        strategy_named(name)
