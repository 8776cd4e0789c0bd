"""The agent's loop speaks as the form says: what is sent for settings, thoughts, schemas and calls as text."""

from __future__ import annotations

import json
from typing import Any

from pool.errors import PermanentError
from pool.testing import ScriptedPool
from pool.types import ChatRequest, Choice, ToolCall, Traits
from swarm.agent import Agent
from swarm.manners import Manners

DONE = {"title": "Mend it"}


def call(name: str, **arguments: Any) -> Choice:
    return Choice(tool_calls=(ToolCall(id="x", name=name, arguments=json.dumps(arguments)),), reasoning="I think.")


def held(name: str, **arguments: Any) -> str:
    return json.dumps({"thought": "so", "name": name, "arguments": arguments})


def asked(pool: ScriptedPool) -> list[ChatRequest]:
    return [request for request in pool.requests if isinstance(request, ChatRequest)]


async def test_what_is_set_for_a_model_is_sent(desk: Any) -> None:
    at = await desk(
        {},
        [call("finish", **DONE)],
        traits=Traits(model="Some/Model-7B", native=True),
        manners={"model-*": Manners(top_k=7, temperature=0.9, stop=("END",))},
    )
    await Agent().work(at.work)
    (request,) = asked(at.pool)
    assert (request.sampling.top_k, request.temperature, request.stop) == (7, 0.9, ("END",))


async def test_thoughts_are_sent_back_only_where_the_family_wants_them(desk: Any) -> None:
    for model, wanted in (("MiniMax-M2.1", "I think."), ("Qwen3-32B", "I think."), ("DeepSeek-R1", ""), ("other", "")):
        script = [call("view", path="a.py"), call("finish", **DONE)]
        at = await desk({"a.py": "x = 1\n"}, script, traits=Traits(model=model, native=True))
        await Agent().work(at.work)
        assistant = next(one for one in asked(at.pool)[1].messages if one.role == "assistant")
        assert assistant.reasoning == wanted


async def test_a_tier_that_keeps_to_schemas_is_held_to_one_until_an_answer_does_not(desk: Any) -> None:
    script = [held("view", path="a.py"), "I view a.py now.", held("finish", **DONE)]
    at = await desk({"a.py": "x = 1\n"}, script, traits=Traits(model="m", structured=True))
    conclusion = await Agent().work(at.work)
    assert conclusion.ending == "no_change"
    assert [request.json_schema is not None for request in asked(at.pool)] == [True, True, False]
    assert all(request.tools == () for request in asked(at.pool))
    first, *_, last = asked(at.pool)
    assert last.messages[0] == first.messages[0]


async def test_a_schema_that_the_server_refuses_is_asked_for_once(desk: Any) -> None:
    script = [PermanentError("Grammar error: too complex", 400), held("finish", **DONE)]
    at = await desk({}, script, traits=Traits(model="m", structured=True))
    assert (await Agent().work(at.work)).ending == "no_change"
    assert [request.json_schema is not None for request in asked(at.pool)] == [True, False]


async def test_results_of_calls_in_one_text_answer_come_back_as_one_turn(desk: Any) -> None:
    block = "```tool\n{}\n```"
    calls = [{"name": "view", "arguments": {"path": name}} for name in ("a.py", "b.py")]
    script = ["\n".join(block.format(json.dumps(one)) for one in calls), block.format(
        json.dumps({"name": "finish", "arguments": DONE}))]  # fmt: skip
    at = await desk({"a.py": "x = 1\n", "b.py": "y = 2\n"}, script, traits=Traits(model="m"))
    await Agent().work(at.work)
    roles = [message.role for message in asked(at.pool)[1].messages]
    assert roles == ["system", "user", "assistant", "user"]
    told = asked(at.pool)[1].messages[-1].content
    assert "x = 1" in told
    assert "y = 2" in told


async def test_a_history_that_a_server_refuses_is_cured_and_the_work_goes_on(desk: Any) -> None:
    poison = "<|reserved_special_token_7|>"

    def server(request: Any) -> Any:
        said = [message.content for message in request.messages if message.role == "assistant"]
        if any(poison in text for text in said):
            return PermanentError("Expecting ',' delimiter", 400)
        if not said:
            return call("view", path="a.py").model_copy(update={"content": poison})
        return call("finish", **DONE)

    at = await desk({"a.py": "x = 1\n"}, server, traits=Traits(model="m", native=True))
    assert (await Agent().work(at.work)).ending == "no_change"
