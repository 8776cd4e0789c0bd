"""Which strategy is taken, and when the next one follows."""

from __future__ import annotations

import json

import pytest

from pool.config import EmbeddedConfig, EndpointConfig, PoolConfig, VirtualConfig
from pool.testing import call
from pool.types import CompletionRequest, Traits
from swarm.agent import Agent
from swarm.errors import ConfigError
from swarm.strategies.auto import choose
from swarm.strategies.choice import small_tiers, strategy_named
from swarm.strategies.repair import SampledRepair
from swarm.strategies.sizes import is_small

TESTS = "/usr/bin/python3 -m unittest -v"
ONE = (
    "import unittest\nimport m\n\n\nclass T(unittest.TestCase):\n    def test_one(self):\n"
    "        self.assertEqual(m.one(), 1)\n"
)
FILES = {"m.py": "def one():\n    return 2\n", "test_m.py": ONE}


def test_strategies_have_their_names() -> None:
    assert isinstance(strategy_named("agent"), Agent)
    assert isinstance(strategy_named("sampled_repair"), SampledRepair)


def test_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as error:
        strategy_named("magic")
    assert "agent, single, sampled_repair, mutation_repair, best-of-3" in error.value.mend


@pytest.mark.parametrize(
    ("small", "native", "testable", "names"),
    [
        (True, False, True, ("sampled_repair",)),
        (True, True, True, ("sampled_repair",)),
        (False, True, True, ("agent",)),
        (False, False, True, ("sampled_repair", "agent")),
        (True, False, False, ("agent",)),
        (False, True, False, ("agent",)),
    ],
)
def test_choice_follows_from_what_is_known(small, native, testable, names) -> None:
    assert choose(small=small, native_tools=native, testable=testable) == names


@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct", "qwen2.5-coder-0.5b", "gemma-3-270m-it", "x-360M.gguf"])
def test_small_models_say_so(name: str) -> None:
    assert is_small(name)


@pytest.mark.parametrize(
    "name", ["Qwen3-Coder-30B-A3B", "gpt-oss-120b", "devstral", "", "Llama-3.2-1B", "v2-beta-4bit"]
)
def test_other_models_do_not(name: str) -> None:
    assert not is_small(name)


def test_tier_is_small_where_all_its_models_are() -> None:
    def at(name: str, tier: str, model: str) -> EndpointConfig:
        return EndpointConfig(name=name, url="http://h:1", tier=tier, model=model)

    endpoints = (
        at("a", "mixed", "q-0.5b"),
        at("b", "mixed", "q-32b"),
        at("c", "tiny", "q-0.5b"),
        at("d", "big", "q-32b"),
    )
    config = PoolConfig(endpoints=endpoints, embedded=EmbeddedConfig(enabled=True, tier="own"))
    assert small_tiers(config) == {"tiny", "own"}


async def test_auto_samples_on_a_small_tier(desk) -> None:
    at = await desk(
        FILES,
        lambda _: "return 1",
        native=False,
        test_command=TESTS,
        tier="embedded",
        traits=Traits(model="SmolLM2-135M"),
    )
    done = await strategy_named("auto").work(at.work)
    assert (done.ending, done.strategy) == ("finished", "sampled_repair")
    assert all(isinstance(request, CompletionRequest) for request in at.pool.requests)


async def test_auto_lets_the_agent_follow_where_sampling_gave_up(desk) -> None:
    edit = {"name": "edit", "arguments": {"path": "m.py", "search": "return 'two'", "replace": "return 1"}}
    finish = {"name": "finish", "arguments": {"title": "t"}}
    acts = iter([edit, finish])

    def script(request):
        if isinstance(request, CompletionRequest) or request.n > 1:
            return "return 3"
        return f"```tool\n{json.dumps(next(acts))}\n```"

    files = {**FILES, "m.py": "def one():\n    return 'two'\n"}
    at = await desk(files, script, native=False, test_command=TESTS)
    done = await strategy_named("auto").work(at.work)
    assert (done.ending, done.title, done.strategy) == ("finished", "t", "agent")
    assert list(done.tried) == ["sampled_repair", "agent"]
    assert sum(done.tried.values()) == at.work.ledger.spent().tokens
    assert at.text("m.py") == "def one():\n    return 1\n"
    assert any("sampled_repair gave up" in item["text"] for item in at.kinds("note"))


async def test_auto_lets_a_weak_model_write_a_function_before_it_steers(desk) -> None:
    def script(request):
        assert request.n > 1
        return "```python\ndef one():\n    return 1\n```"

    files = {**FILES, "m.py": "def one():\n    return 'two'\n"}
    at = await desk(files, script, test_command=TESTS, traits=Traits(model="Qwen2.5-Coder-1.5B-Instruct", native=True))
    done = await strategy_named("auto").work(at.work)
    assert (done.ending, done.strategy) == ("finished", "sampled_repair")
    assert at.text("m.py") == "def one():\n    return 1\n"
    assert len(at.pool.requests) == 1


async def test_auto_lets_a_capable_model_steer(desk) -> None:
    at = await desk(FILES, [call("finish", title="t"), call("finish", title="t")], test_command=TESTS)
    assert (await strategy_named("auto").work(at.work)).ending == "no_change"


def test_auto_and_virtual_models_are_small_only_where_nothing_larger_is_behind_them() -> None:
    endpoints = (
        EndpointConfig(name="a", url="http://h:1", tier="tiny", model="q-0.5b"),
        EndpointConfig(name="b", url="http://h:1", tier="big", model="q-32b"),
    )
    virtual = {
        "many": VirtualConfig(kind="vote", tiers=("tiny",)),
        "checked": VirtualConfig(kind="vote", tiers=("tiny",), judge="big"),
    }
    assert small_tiers(PoolConfig(endpoints=endpoints, virtual=virtual)) == {"tiny", "many"}
    assert small_tiers(PoolConfig(endpoints=endpoints[:1])) == {"tiny", "auto"}
