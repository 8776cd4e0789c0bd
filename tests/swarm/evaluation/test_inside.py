"""An agent of others runs inside the sandbox of a try, asks models through the gateway, and pays from its budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.config import EndpointConfig, PoolConfig
from pool.testing import pretend_vllm
from sandbox.config import SandboxConfig
from swarm.agents import AgentConfig
from swarm.config import Settings
from swarm.evaluation.keeping import JOURNAL, lines_of
from swarm.evaluation.results import TRIES, Folder
from swarm.evaluation.runner import Runner
from swarm.types import Budget
from swarm.wiring import evaluating
from tests.swarm.evaluation.conftest import case, plan_of, tried

ASKS = """
python3 - <<'E'
import json, os, urllib.request
body = {"model": os.environ["SWARM_MODEL"], "messages": [{"role": "user", "content": os.environ["SWARM_TASK"]}]}
ask = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
                             {"Content-Type": "application/json", "Authorization": "Bearer x"})
for _ in range(int(os.environ["TIMES"])):
    print(json.load(urllib.request.urlopen(ask))["choices"][0]["message"]["content"])
E
sed -i 's/min(x, low)/min(x, high)/' clamp.py
"""


@pytest.mark.slow
async def test_an_agent_inside_is_charged_and_judged_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    agents = {
        "asks": AgentConfig(command=ASKS, env={"TIMES": "2"}),
        "greedy": AgentConfig(command=ASKS, env={"TIMES": "50"}),
    }
    one, told = case(hidden={"command": "python3 -m unittest -v test_hidden"}), []
    async with pretend_vllm() as server:
        pool = PoolConfig(endpoints=(EndpointConfig(name="one", url=server.url, tier="small"),), canaries=False)
        settings = Settings(sandbox=SandboxConfig(backend="bwrap"), pool=pool, agents=agents)
        async with evaluating(settings, tmp_path / "state", models=True) as means:
            budget = Budget(steps=5, attempts=1)
            plan = plan_of([one], "cli:asks", "cli:greedy", budget=budget)
            await Runner(plan, {one.id: one}, means, Folder(tmp_path / "run"), told=told.append).run()
    rows = {row.strategy: row for row in tried(told)}
    assert (rows["cli:asks"].outcome, rows["cli:asks"].ending, rows["cli:asks"].steps) == ("solved", "finished", 2)
    assert rows["cli:asks"].tokens > 0
    assert rows["cli:asks"].prompt + rows["cli:asks"].completion == rows["cli:asks"].tokens
    assert (rows["cli:greedy"].ending, rows["cli:greedy"].limit) == ("limit_hit", "task.steps")
    lines = lines_of(tmp_path / "run" / TRIES / rows["cli:asks"].folder / JOURNAL)
    assert sum(line.kind == "model_call" for line in lines) == 2
