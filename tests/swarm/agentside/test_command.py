"""An agent that others wrote works as one long command: how it is started, watched, stopped, charged and judged."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.router import Pool
from pool.testing import PretendServer, hang, pretend_vllm
from pool.tiers.front import Tiers
from sandbox.config import ModelExitConfig
from sandbox.egress.denied import DeniedLog
from sandbox.egress.model import ModelExit
from sandbox.errors import SandboxError
from sandbox.testing import ScriptedBackend, ScriptedSandbox
from sandbox.types import SandboxSpec
from swarm.agents import AgentConfig
from swarm.budgets.ledger import BudgetLedger
from swarm.errors import ConfigError
from swarm.models import Models
from swarm.strategies.choice import strategy_named
from swarm.strategies.command import LONGEST_WORD, CommandAgent, argv_of, short, told
from swarm.types import Budget, Conclusion, Spent, Step, Task, TaskRequest
from swarm.work import Work

ASKS = f"""
ask() {{ {sys.executable} - "$1" <<'END'
import json, os, sys, urllib.error, urllib.request
body = {{"model": os.environ["SWARM_MODEL"], "messages": [{{"role": "user", "content": sys.argv[1]}}]}}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
request = urllib.request.Request(url, json.dumps(body).encode(), {{"content-type": "application/json"}})
try:
    print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)["error"]["message"])
    sys.exit(5)
END
}}
"""


class Bench:
    """One attempt's work phase: a pretend sandbox with the way to a pretend server, a ledger, a journal."""

    def __init__(self, sandbox: ScriptedSandbox, models: Models, server: PretendServer, budget: Budget) -> None:
        self.sandbox = sandbox
        self.server = server
        self.steps: list[Step] = []
        self.saves: list[list[str]] = []
        self.save_error: Exception | None = None
        self.ledger = BudgetLedger(budget, Spent(), Spent(), lambda _: None)
        request = TaskRequest(repository="demo", instructions="mend it", title="Mend clamp", paths=("clamp.py",))
        self.work = Work(
            task=Task(id="t1", request=request, budget=budget, created=0.0),
            attempt="t1.1",
            tier="small",
            sandbox=sandbox,
            pool=Tiers(models._service.pool, models._service.pool.config),
            ledger=self.ledger,
            test_command="make test",
            record=self._record,
            save=self._save,
            models=models,
        )

    async def run(self, command: str | tuple[str, ...], **more: Any) -> Conclusion:
        options = {name: more.pop(name) for name in ("tick", "save_every") if name in more}
        agent = AgentConfig(command=command, **more)
        async with asyncio.timeout(30):
            return await CommandAgent("fake", agent, **({"tick": 0.05} | options)).work(self.work)

    async def _record(self, kind: str, data: dict[str, Any]) -> None:
        kept = json.loads(json.dumps(data))
        self.steps.append(Step(task="t1", attempt="t1.1", seq=len(self.steps) + 1, at=0.0, kind=kind, data=kept))

    async def _save(self) -> None:
        async for _ in self.sandbox.export():
            pass
        self.saves.append(sorted(path.name for path in self.sandbox.work.iterdir()))
        if self.save_error:
            raise self.save_error

    def kinds(self, kind: str) -> list[dict[str, Any]]:
        return [step.data for step in self.steps if step.kind == kind]

    @property
    def printed(self) -> str:
        return "\n".join(data["text"] for data in self.kinds("output"))

    def text(self, path: str) -> str:
        return (self.sandbox.work / path).read_text()


Open = Callable[..., Any]


@pytest.fixture
def bench() -> Open:
    @asynccontextmanager
    async def opened(script: Any = None, **budget: Any) -> AsyncIterator[Bench]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        async with pretend_vllm(script) as server:
            config = PoolConfig(endpoints=(EndpointConfig(name="a", url=server.url, tier="small"),))
            async with Pool(config) as pool:
                await pool.ready("small")
                models = Models(pool, Tiers(pool, config))
                way = ModelExit(ModelExitConfig(port=port), DeniedLog(), models.connect)
                labels = {"task": "t1", "attempt": "t1.1", "kind": "work"}
                backend = ScriptedBackend(exits={"model": way})
                async with backend.open(SandboxSpec(network="model", labels=labels)) as sandbox:
                    yield Bench(sandbox, models, server, Budget(**budget))

    return opened


async def test_changes_the_workspace_and_asks_models_through_the_way_out(bench: Open) -> None:
    async with bench(["the sign"]) as here:
        ended = await here.run(f"{ASKS} ask 'what is wrong?' > answer.txt && echo I mended the sign.")
        assert ended.ending == "finished"
        assert here.text("answer.txt") == "the sign\n"
        assert ended.model == here.server.model
        assert "I mended the sign." in ended.summary
        (call,) = here.kinds("model_call")
        assert (call["endpoint"], call["tier"]) == ("a", "small")
        assert call["prompt_tokens"] + call["completion_tokens"] == here.ledger.spent().tokens == call["tokens"]
        assert here.ledger.spent().steps == 1
        assert here.server.requests[-1].headers["x-session-id"] == "t1.1"


async def test_what_may_be_spent_is_told_at_the_start_and_whenever_it_is_asked_for(bench: Open) -> None:
    async with bench(["yes", "yes"], steps=2, tokens=100_000, wall=1000, money=2.5) as here:
        url = "import os; from urllib.request import urlopen as ask"
        url += "; print(ask(os.environ['OPENAI_BASE_URL'] + '/budget').read().decode())"
        left = f'{sys.executable} -c "{url}"'
        ended = await here.run(f'printf %s "$SWARM_TASK" > told; {ASKS} ask one; {left} > one; ask two; {left} > two')
        assert "This work may take: 2 turns, 100000 tokens, " in here.text("told")
        assert " seconds, 2.5 money. " in here.text("told")
        assert 'curl -s "$OPENAI_BASE_URL/budget"' in here.text("told")
        assert here.text("one").startswith("left: 1 turn, ")
        assert here.text("two").startswith("left: 0 turns, ")
        assert here.ledger.spent().steps == 2
        assert ended.ending == "finished"


async def test_task_is_told_in_variables_and_in_a_file_outside_the_workspace(bench: Open) -> None:
    async with bench() as here:
        await here.run('printf %s "$SWARM_TASK" > told; cat "$SWARM_TASK_FILE" > file; echo "$SWARM_MODEL" > model')
        assert here.text("told") == here.text("file")
        assert here.text("told").startswith(told(here.work.task, "make test").strip())
        assert here.text("model") == "small\n"
        for words in ("Mend clamp", "mend it", "clamp.py", "make test"):
            assert words in here.text("told")
        assert sorted(path.name for path in here.sandbox.work.iterdir()) == ["file", "model", "told"]


async def test_words_of_the_task_are_never_read_by_a_shell() -> None:
    agent = AgentConfig(command=("agent", "--task={task}", "{model}:{task_file}", "{other}"))
    values = {"task": "$(touch /x); {model} `id`", "task_file": "/f", "model": "small"}
    assert argv_of(agent, values) == ("agent", "--task=$(touch /x); {model} `id`", "small:/f", "{other}")


def test_task_longer_than_an_argument_may_be_is_cut_with_a_word() -> None:
    cut = short("ü" * 100_000)
    assert len(cut.encode()) < LONGEST_WORD + 200
    assert "SWARM_TASK_FILE" in cut


async def test_output_is_in_the_journal_while_it_runs(bench: Open) -> None:
    async with bench() as here:
        running = asyncio.create_task(here.run("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo over"))
        async with asyncio.timeout(10):
            while "begun" not in here.printed:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.02)
        assert not running.done()
        (here.sandbox.work / "go").touch()
        assert (await running).ending == "finished"
        assert here.printed == "begun\nover"


async def test_work_is_saved_while_it_runs(bench: Open) -> None:
    async with bench() as here:
        running = asyncio.create_task(
            here.run("echo 1 > early; while [ ! -e go ]; do sleep 0.05; done; echo 2 > late", save_every=0.1)
        )
        async with asyncio.timeout(10):
            while ["early"] not in here.saves:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.02)
        assert not running.done()
        (here.sandbox.work / "go").touch()
        await running


async def test_save_that_fails_in_passing_ends_nothing_and_is_told(bench: Open) -> None:
    async with bench() as here:
        here.save_error = SandboxError("it changed")
        ended = await here.run("sleep 0.7", save_every=0.1)
        assert ended.ending == "finished"
        assert any("it changed" in note["text"] for note in here.kinds("note"))


@pytest.mark.parametrize(("code", "ending"), [(0, "finished"), (3, "finished"), (1, "gave_up"), (127, "infra")])
async def test_exit_code_tells_how_it_ended(bench: Open, code: int, ending: str) -> None:
    async with bench() as here:
        run = here.run(f"echo not found; exit {code}", success_exit_codes=(0, 3))
        if ending == "infra":
            with pytest.raises(ConfigError, match=r"cannot be started inside: not found"):
                await run
            return
        ended = await run
        assert ended.ending == ending
        assert "not found" in ended.summary


async def test_prompt_finds_nobody_and_no_terminal(bench: Open) -> None:
    async with bench() as here:
        began = time.monotonic()
        ended = await here.run("if [ -t 0 ] || [ -t 1 ]; then exit 9; fi; read answer || { echo nobody; exit 4; }")
        assert time.monotonic() - began < 10
        assert ended.summary == "fake ended with exit code 4: nobody"


async def test_agent_that_neither_prints_nor_asks_is_stopped(bench: Open) -> None:
    async with bench() as here:
        ended = await here.run("echo half > done.txt; sleep 600", idle=0.5)
        assert ended.ending == "gave_up"
        assert "printed nothing and asked no model" in ended.summary
        assert here.text("done.txt") == "half\n"
        assert (await here.sandbox.run(here.sandbox.ran[0])).exit_code == 0  # still of use


async def test_waiting_for_a_model_is_not_idle(bench: Open) -> None:
    async with bench([hang()]) as here:
        waits = "ask hello & while [ ! -e asked ]; do echo .; sleep 0.05; done; wait"
        running = asyncio.create_task(here.run(f"{ASKS} {waits}", idle=0.3))
        async with asyncio.timeout(20):
            while not here.server.requests:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.02)
        (here.sandbox.work / "asked").touch()
        await asyncio.sleep(0.6)
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_spent_budget_is_told_inside_and_ends_as_a_limit(bench: Open) -> None:
    async with bench(tokens=1) as here:
        ended = await here.run(f"echo kept > kept.txt; {ASKS} ask one; ask two; echo went on")
        assert ended.ending == "limit_hit"
        assert "tokens are spent" in ended.summary
        assert "403 the budget of this task is spent" in here.printed
        assert len(here.server.requests) == 1
        assert here.text("kept.txt") == "kept\n"


async def test_time_that_is_over_ends_as_a_limit(bench: Open) -> None:
    async with bench(wall=1.0) as here:
        began = time.monotonic()
        ended = await here.run("while :; do echo x; sleep 0.1; done")
        assert (ended.ending, ended.limit) == ("limit_hit", "task.wall")
        assert ended.summary == "1 of 1 seconds of wall clock are spent, and fake had not ended"
        assert time.monotonic() - began < 10


async def test_cancelled_work_leaves_no_process_and_the_workspace_readable(bench: Open) -> None:
    async with bench() as here:
        running = asyncio.create_task(here.run("echo $$ > pid; while :; do sleep 0.1; done"))
        async with asyncio.timeout(10):
            while not (here.sandbox.work / "pid").exists() or not here.text("pid"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        with pytest.raises(ProcessLookupError):
            os.kill(int(here.text("pid")), 0)
        assert await here.sandbox.read("pid")


async def test_failed_calls_are_noted_and_cost_nothing(bench: Open) -> None:
    async with bench() as here:
        await here.run(f"SWARM_MODEL=other; export SWARM_MODEL; {ASKS} ask one; ask two; true")
        assert here.ledger.spent().tokens == 0
        assert "404 there is no model 'other'; there are: small" in here.printed
        failed = [note["text"] for note in here.kinds("note") if "failed" in note["text"]]
        assert sum(int(text.split(": ")[1].split()[0]) for text in failed) == 2
        assert all("with 404" in text for text in failed)


async def test_output_without_end_is_bounded(bench: Open) -> None:
    async with bench() as here:
        ended = await here.run("head -c 5000000 /dev/zero | tr '\\0' 'x\\n'; yes line | head -n 200000; echo the end")
        assert ended.ending == "finished"
        assert ended.summary.endswith("the end")
        assert len(ended.summary) < 5000
        assert sum(len(data["text"]) for data in here.kinds("output")) < 300_000


async def test_without_a_way_to_models_it_does_not_begin(bench: Open) -> None:
    async with bench() as here:
        here.work = Work(**{**vars(here.work), "models": None})
        with pytest.raises(ConfigError, match="no way to the models"):
            await here.run("true")


def test_strategy_is_found_by_the_agents_name() -> None:
    mine = {"mine": AgentConfig(command="true")}
    assert isinstance(strategy_named("cli:mine", agents=mine), CommandAgent)
    with pytest.raises(ConfigError, match="no strategy 'cli:other'") as caught:
        strategy_named("cli:other", agents=mine)
    assert "cli:mine" in caught.value.mend
