"""`swarm strategies`: what there is, what each is made of, and how it did in a repository."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path

import pytest

from swarm.cli import app
from swarm.cli.exits import Code
from swarm.config_file import load
from swarm.config_strategies import StrategyConfig
from swarm.scheduling.facts import HostFacts
from swarm.store.rows import Plan, Settlement
from swarm.store.store import Store
from swarm.types import AttemptResult, Budget, CheckReport, Conclusion, Spent, TaskRequest, TaskState

OWN = """[daemon]
state = "state"
[[pool.endpoints]]
name = "a"
url = "http://127.0.0.1:1"
tier = "small"
[strategies.careful]
kind = "best-of"
of = "review"
n = 4
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "swarm.toml").write_text(OWN)
    (tmp_path / "state").mkdir()
    return str(tmp_path / "swarm.toml")


def test_ours_and_ones_own_are_listed(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["strategies", "--config", config, "--json"]) == 0
    told = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert (told["careful"]["what"], told["careful"]["ours"]) == ("best-of of review", False)
    assert told["cascade"]["ours"]
    assert app.main(["strategies", "--config", config]) == 0
    assert "cli:aider" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "kind"), [("careful", "best-of"), ("best-of-5", "best-of"), ("cascade", "cascade")])
def test_one_is_printed_as_it_would_stand_in_the_settings(
    config: str, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    assert app.main(["strategies", name, "--config", config]) == 0
    (made,) = tomllib.loads(capsys.readouterr().out)["strategies"].values()
    assert StrategyConfig.model_validate(made).kind == kind


def test_one_that_is_not_there_is_told(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["strategies", "carefull", "--config", config]) == Code.CONFIG
    assert 'did you mean "careful"?' in capsys.readouterr().err


def test_what_is_known_of_a_repository_is_shown(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_one_solved(Path(config).parent / "state"))
    assert app.main(["strategies", "--repo", "web", "--config", config, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["strategies"]
    assert (round(told["agent"]["tried"], 3), round(told["agent"]["solved"], 3)) == (1.0, 1.0)
    assert told["agent"]["tokens"] == 70
    assert app.main(["strategies", "--repo", "api", "--config", config]) == 0
    assert "nothing is recorded of api yet" in capsys.readouterr().err


async def _one_solved(state: Path) -> None:
    where = load(state.parent / "swarm.toml", {}).settings.daemon.where()
    async with Store(where) as store:
        plan = Plan(budget=Budget(), tier="small", strategy="agent")
        await store.add(TaskRequest(repository="web", instructions="fix it", task="t1"), plan)
        claim = await store.queue.claim(HostFacts("one", slots=10))
        assert claim is not None
        store.budgets.spend(claim.attempt.id, Spent(tokens=70))
        report = CheckReport(base=None, proposal=None, verdict="passed")
        result = AttemptResult(conclusion=Conclusion(ending="finished"), report=report)
        assert await store.settle(claim, Settlement(TaskState.GAVE_UP, "so", result))
