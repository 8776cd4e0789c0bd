"""`swarm agents`: what is shipped and what is one's own, and a recipe that can be taken over as it is printed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from swarm.agents import NOTES, RECIPES, AgentConfig
from swarm.cli import app
from swarm.cli.exits import Code

OWN = '[[pool.endpoints]]\nname = "a"\nurl = "http://127.0.0.1:1"\ntier = "small"\n[agents.aider]\ncommand = ["mine"]\n'


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "swarm.toml").write_text(OWN)
    return str(tmp_path / "swarm.toml")


def test_all_are_listed_with_where_they_come_from(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["agents", "--config", config, "--json"]) == 0
    told = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert set(told) == set(RECIPES)
    assert (told["aider"]["shipped"], told["codex"]["shipped"]) == (False, True)
    assert app.main(["agents", "--config", config]) == 0
    out = capsys.readouterr().out
    assert "protocol acp" in out
    assert "swarm.toml" in out


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_recipe_is_printed_as_it_would_stand_in_the_settings(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.main(["agents", name]) == 0
    told = tomllib.loads(capsys.readouterr().out)
    assert AgentConfig.model_validate(told["agents"][name]) == RECIPES[name]


def test_agent_that_is_not_there_is_told(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["agents", "nobody", "--config", config]) == Code.CONFIG
    assert "there is no agent 'nobody'" in capsys.readouterr().err


def test_every_shipped_agent_says_how_it_was_tried() -> None:
    assert set(NOTES) == set(RECIPES)
