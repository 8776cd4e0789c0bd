"""What the settings say of agents that others wrote: wrong ones are told with their line, shipped ones are sound."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from swarm.agents import RECIPES, AgentConfig, agent_of, known_agents, strategy_of
from swarm.config_file import load
from swarm.errors import ConfigError

BEGIN = """[daemon]
state = "state"
socket = "d.sock"
[broker]
socket = "b.sock"
[pool.embedded]
enabled = true
"""


def loaded(folder: Path, text: str):
    (folder / "swarm.toml").write_text(BEGIN + text)
    return load(folder / "swarm.toml", {}).settings


def test_agent_is_text_for_a_shell_or_words(tmp_path: Path) -> None:
    made = loaded(tmp_path, '[agents.a]\ncommand = "run it"\n[agents.b]\ncommand = ["run", "{task}"]\n')
    assert (made.agents["a"].command, made.agents["b"].command) == ("run it", ("run", "{task}"))
    agents = tuple(name for name in made.strategy_names if name.startswith("cli:"))
    assert (agents[0], agents[-2:]) == ("cli:mini-swe-agent", ("cli:a", "cli:b"))


def test_own_agent_goes_before_a_shipped_one_of_its_name(tmp_path: Path) -> None:
    made = loaded(tmp_path, '[agents.aider]\ncommand = "mine"\n')
    assert known_agents(made.agents)["aider"].command == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[agents.a]\n", "line 8: agents.a.command: is missing"),
        ('[agents.a]\ncommand = " "\n', "is no command"),
        ("[agents.a]\ncommand = []\n", "is no command"),
        ('[agents.a]\ncommand = "x"\nenv = { "A-B" = "1" }\n', "cannot be an environment variable"),
        ('[agents.a]\ncommand = "x"\nenv = { SWARM_MODEL = "1" }\n', "is set for each task"),
        ('[agents.a]\ncommand = "x"\nidle = 0\n', "must be more than 0"),
        ('[agents.a]\ncommand = "x"\nsuccess_exit_codes = []\n', "success_exit_codes"),
        ('[agents.a]\ncommand = "x"\nauthenticate = "key"\n', 'is of protocol = "acp" alone'),
        ('[agents.a]\ncommand = "x"\nprotocol = "mcp"\n', "agents.a.protocol"),
        ('[agents.a]\ncomand = "x"\n', "did you mean command?"),
        ('[agents."a b"]\ncommand = "x"\n', "must be 1 to 64 of a-z"),
        ('[repositories.web]\nstrategy = "cli:aidre"\n', 'there is no agent "aidre"; did you mean "aider"?'),
        (
            '[repositories.web]\nstrategy = "guess"\n',
            'line 9: repositories.web.strategy: there is no strategy "guess"; known are: agent, single, sampled_repair',
        ),
    ],
)
def test_wrong_settings_are_told(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert words in str(caught.value)


def test_repository_may_be_worked_on_by_an_agent(tmp_path: Path) -> None:
    made = loaded(tmp_path, '[repositories.web]\nstrategy = "cli:mini-swe-agent"\n')
    assert made.repositories["web"].strategy == "cli:mini-swe-agent"


def test_names_of_strategies_and_agents_are_told_apart() -> None:
    assert agent_of(strategy_of("x")) == "x"
    assert agent_of("agent") is None


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_shipped_recipe_is_sound(name: str) -> None:
    recipe = RECIPES[name]
    assert AgentConfig.model_validate(recipe.model_dump()) == recipe
    pinned = re.compile(r"[a-z](==|@)[0-9]")
    assert all(pinned.search(line) or "install" not in line or "pyyaml" in line for line in recipe.setup)
    assert "SWARM_MODEL" in f"{recipe.command} {recipe.env}"
    for line in (*recipe.setup, recipe.command):
        subprocess.run(["/bin/sh", "-n", "-c", str(line)], check=True)
