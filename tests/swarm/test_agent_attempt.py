"""An attempt whose worker is a command: its network, its set-up, what a restart leaves of it, and its end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.router import Pool
from pool.testing import PretendServer, pretend_vllm
from pool.tiers.front import Tiers
from sandbox.config import ModelExitConfig
from sandbox.egress.denied import DeniedLog
from sandbox.egress.model import ModelExit
from sandbox.testing import ScriptedBackend
from swarm.agents import AgentConfig
from swarm.models import Models
from swarm.strategies.command import CommandAgent
from swarm.types import Budget, TaskState

MEND = "sed -i 's/min(x, low)/min(x, high)/' clamp.py"
ASK = """python3 -c "
import json, os, urllib.request
body = json.dumps({'model': os.environ['SWARM_MODEL'], 'messages': [{'role': 'user', 'content': 'hi'}]}).encode()
urllib.request.urlopen(urllib.request.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', body))
" """

Open = Callable[..., Any]


@pytest.fixture
def inside(bench: Any) -> Open:
    """The bench with a way to the models of a pretend server, and an agent of the given command."""

    @asynccontextmanager
    async def opened(
        command: str, tools: Literal["auto", "text"] = "auto", **more: Any
    ) -> AsyncIterator[PretendServer]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        async with pretend_vllm() as server:
            config = PoolConfig(endpoints=(EndpointConfig(name="a", url=server.url, tier="small", tools=tools),))
            async with Pool(config) as pool:
                await pool.ready("small")
                bench.models = Models(pool, Tiers(pool, config))
                way = ModelExit(ModelExitConfig(port=port), DeniedLog(), bench.models.connect)
                bench.backend = ScriptedBackend(exits={"model": way})
                agent = AgentConfig(command=command, **more)
                bench.strategies["cli:fake"] = CommandAgent("fake", agent, tick=0.05, save_every=0.1)
                yield server

    return opened


@pytest.mark.slow
async def test_change_of_an_agent_is_checked_and_delivered(bench: Any, inside: Open, name: str) -> None:
    async with inside(f"{ASK} && {MEND} && echo mended") as server, bench.open():
        await bench.submit(name, strategy="cli:fake")
        view = await bench.until(name)
        assert view.state is TaskState.DELIVERED, view.reason
        assert (view.spent.steps, view.attempts[0].strategy) == (1, "cli:fake")
        assert server.requests[-1].headers["x-session-id"] == view.attempts[0].id
        assert [sandbox.spec.network for sandbox in bench.backend.opened] == ["model", "none", "none"]


@pytest.mark.slow
async def test_agent_that_needs_tool_calls_of_endpoints_that_make_none_is_stopped_early_and_told_why(
    bench: Any, inside: Open, name: str
) -> None:
    """A newcomer's mini-swe-agent got the same 400 for each call and tried it again until the time was over."""
    bench.ladder = ("small",)
    wants = ASK.replace("'messages'", "'tools': [{'type': 'function', 'function': {'name': 'bash'}}], 'messages'")
    async with inside(f"while :; do {wants} || sleep 0.05; done", tools="text") as server, bench.open():
        await bench.submit(name, strategy="cli:fake")
        view = await bench.until(name)
        assert "no endpoint there makes native tool calls" in view.reason
        assert view.spent.steps == 0
        assert [request for request in server.requests if request.path.endswith("/chat/completions")] == []


@pytest.mark.slow
async def test_agent_without_a_change_ends_as_no_change(bench: Any, inside: Open, name: str) -> None:
    async with inside("echo nothing to do"), bench.open():
        await bench.submit(name, strategy="cli:fake")
        assert (await bench.until(name)).state is TaskState.NO_CHANGE


@pytest.mark.slow
async def test_agent_that_is_not_there_is_a_fault_with_its_mend(bench: Any, inside: Open, name: str) -> None:
    async with inside("/nowhere/agent"), bench.open():
        await bench.submit(name, strategy="cli:fake")
        view = await bench.until(name)
        assert view.state is TaskState.INFRA_FAILED
        assert "cannot be started inside" in view.reason
        assert "agents.fake.setup" in view.reason


@pytest.mark.slow
async def test_command_may_run_as_long_as_the_task(bench: Any, inside: Open, name: str) -> None:
    async with inside("true"), bench.open():
        await bench.submit(name, strategy="cli:fake", budget=Budget(wall=7200.0))
        await bench.until(name)
        assert bench.backend.opened[0].spec.limits.wall == 7200.0
        run = next(command for command in bench.backend.opened[0].ran if "SWARM_TASK" in command.env)
        assert 7000 < run.timeout <= 7200


@pytest.mark.slow
async def test_next_daemon_goes_on_with_what_was_saved(bench: Any, inside: Open, name: str) -> None:
    first = "[ -e half ] || { echo 1 > half; while :; do sleep 0.1; done; }"
    async with inside(f"{first}; {MEND}; rm half"):
        async with bench.open():
            await bench.submit(name, strategy="cli:fake")
            await bench.until_step(name, "salvage")
            async with asyncio.timeout(10):  # the save that holds the half
                while not any((one.work / "half").exists() for one in bench.backend.opened):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        async with bench.open():
            view = await bench.until(name)
            assert view.state is TaskState.DELIVERED, view.reason
            notes = [step.data.get("text", "") for step in await bench.store.steps(name) if step.kind == "note"]
            assert "fake begins anew on what it had changed" in notes


@pytest.mark.slow
async def test_cancelled_task_keeps_the_agents_work(bench: Any, inside: Open, name: str) -> None:
    async with inside(f"{MEND}; while :; do sleep 0.1; done"), bench.open() as coordinator:
        await bench.submit(name, strategy="cli:fake")
        await bench.until_step(name, "salvage")
        view = await coordinator.cancel(name)
        assert view.state is TaskState.CANCELLED
        sealed = await bench.workspace.sealed_at(view.attempts[0].salvage)
        assert sealed is not None
        assert sealed.files == ("clamp.py",)


@pytest.mark.slow
async def test_set_up_of_an_agent_has_the_registries_and_the_work_the_models(
    bench: Any, inside: Open, name: str
) -> None:
    async with inside(f'"$HOME/fake" && {MEND}'):
        bench.agent_setup = lambda _: ('printf "#!/bin/sh\\ntrue\\n" > "$HOME/fake" && chmod +x "$HOME/fake"',)
        bench.backend._exits = {**bench.backend._exits, "packages": bench.backend._exits["model"]}
        async with bench.open():
            await bench.submit(name, strategy="cli:fake")
            view = await bench.until(name)
            assert view.state is TaskState.DELIVERED, view.reason
            seen = {(one.spec.labels["kind"], one.spec.network) for one in bench.backend.opened}
            assert {("setup", "packages"), ("work", "model"), ("check", "none")} <= seen
            steps = await bench.store.steps(name)
            notes = [step.data["text"] for step in steps if step.kind == "note" and "set-up" in step.data["text"]]
            assert notes[0].startswith('set-up: printf "#!/bin/sh')
            assert notes[1:] == ["set-up done and kept"], "what takes long is followed from its beginning"
