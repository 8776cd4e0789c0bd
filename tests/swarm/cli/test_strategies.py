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
from swarm.config_strategies import ROUNDS, USES, Kind, StrategyConfig, strategy_misfits
from swarm.scheduling.facts import HostFacts
from swarm.store.rows import Plan, Settlement
from swarm.store.store import Store
from swarm.strategies.choice import strategy_named
from swarm.types import AttemptResult, Budget, CheckReport, Conclusion, Spent, TaskRequest, TaskState

ROOT = Path(__file__).parents[3]
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
    assert (told["careful"]["what"], told["careful"]["ours"]) == ("best-of of review; n = 4", False)
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


@pytest.mark.parametrize("name", ["careful", "best-of-5", "plan", "review", "draft-verify", "cascade"])
def test_all_that_may_be_changed_is_shown_with_its_default(
    config: str, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert app.main(["strategies", name, "--config", config]) == 0
    block = capsys.readouterr().out
    (made,) = tomllib.loads(block.replace("\n# ", "\n"))["strategies"].values()
    whole = StrategyConfig.model_validate(made)
    assert made.keys() == USES[whole.kind] | {"kind"}
    assert not list(strategy_misfits({"mine": whole}, (), ()))
    (plain,) = tomllib.loads(block)["strategies"].values()
    for key, value in StrategyConfig.model_validate(plain).model_dump(exclude={"opener"}).items():
        assert value in {None, getattr(whole, key)}, "what is commented is the default"


@pytest.mark.parametrize("kind", list(ROUNDS))
def test_the_rounds_that_are_shown_are_those_that_are_made(kind: Kind) -> None:
    made = {
        "unset": StrategyConfig(kind=kind),
        "set": StrategyConfig(kind=kind, rounds=ROUNDS[kind]),
        "other": StrategyConfig(kind=kind, rounds=ROUNDS[kind] + 1),
    }
    unset, same, other = (_numbers(strategy_named(name, made=made)) for name in made)
    assert unset == same != other


def _numbers(strategy: object) -> dict[str, int]:
    return {name: value for name, value in vars(strategy).items() if isinstance(value, int)}


def test_bounds_of_best_of_are_told(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("best-of-0", "best-of-17", "best-of-100"):
        assert app.main(["strategies", name, "--config", config]) == Code.CONFIG
        assert "N of best-of-N is 1 to 16" in capsys.readouterr().err


def test_before_any_daemon_ran_it_says_so(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(config).parent / "state").rmdir()
    assert app.main(["strategies", "--repo", "web", "--config", config]) == Code.DAEMON
    said = " ".join(capsys.readouterr().err.split())
    assert "does not exist: no daemon ran here yet" in said
    assert "mend: start it with: swarm daemon" in said


def test_the_documents_example_fits_the_readmes_settings(tmp_path: Path) -> None:
    readme, page = ((ROOT / name).read_text() for name in ("README.md", "docs/strategies.md"))
    (pool,) = (block for block in readme.split("```toml\n")[1:] if "pool.endpoints" in block)
    (ours,) = page.split("```toml\n")[1:]
    path = tmp_path / "swarm.toml"
    path.write_text("\n".join(text.partition("```")[0] for text in (pool, ours)))
    assert app.main(["config", "check", "--config", str(path)]) == 0


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
    said = " ".join(capsys.readouterr().err.split())
    assert "nothing is recorded of api yet, and swarm.toml names no such repository (it names none)" in said


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
