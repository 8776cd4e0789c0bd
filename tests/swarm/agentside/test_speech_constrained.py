"""Calls held to a schema by real servers: their grammar engines take our tools' schema, and small models keep to it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pool.config import EmbeddedConfig, EndpointConfig, PoolConfig
from pool.embedded import serve_embedded
from pool.router import Pool
from pool.types import ChatRequest, Message
from swarm.speech.calls import Call
from swarm.speech.form import choose
from swarm.speech.told import protocol
from swarm.speech.turn import read
from swarm.tools.specs import specs

SPECS = tuple(spec for spec in specs(testable=True) if spec.name in ("view", "shell", "run_tests", "finish"))


@pytest.fixture(
    params=[pytest.param("llamacpp", marks=pytest.mark.model), pytest.param("vllm", marks=pytest.mark.vllm)]
)
async def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EndpointConfig]:
    """A real server with a model of 135 million parameters."""
    if request.param == "vllm":
        yield EndpointConfig(name="vllm", url=request.getfixturevalue("vllm_url"), tools="text")
        return
    async with serve_embedded(EmbeddedConfig(parallel=1), log=tmp_path / "log", environ=os.environ) as config:
        yield config


async def test_a_small_model_held_to_the_schema_of_the_tools_makes_a_call_that_can_be_run(
    endpoint: EndpointConfig,
) -> None:
    async with Pool(PoolConfig(endpoints=(endpoint,), canaries=False)) as pool:
        await pool.ready(endpoint.tier, 60)
        form = choose(await pool.traits(endpoint.tier))
        assert form.way == "constrained"
        messages = (
            Message(role="system", content=protocol(form, SPECS)),
            Message(role="user", content="Show the file README.md."),
        )
        asked = ChatRequest(tier=endpoint.tier, session="s", messages=messages, max_tokens=300, **form.fields(SPECS))
        choice = (await pool.chat(asked)).choices[0]
        turn = read(choice, SPECS, form, number=1)
    assert not turn.garbled
    assert choice.finish_reason == "length" or isinstance(turn.calls[0], Call), choice.content
