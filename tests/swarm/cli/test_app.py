"""The door itself: what it loads and when, and that its lists of commands and of modules agree."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from typer.main import get_group

from swarm.cli import app
from swarm.cli.app import COMMANDS


def modules_after(words: list[str]) -> set[str]:
    code = f"import sys\nfrom swarm.cli import app\napp.main({words!r})\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_loads_next_to_nothing() -> None:
    loaded = modules_after(["--help"])
    assert not loaded & {"dbos", "docker", "openai", "sqlalchemy", "httpx", "starlette"}


def test_listing_loads_neither_engine_nor_docker() -> None:
    loaded = modules_after(["list", "--config", "/nonexistent/swarm.toml"])
    assert not loaded & {"dbos", "docker", "openai", "sqlalchemy", "git"}
    assert "swarm.cli.tasks" in loaded


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_listed_command_is_where_the_list_says(name: str) -> None:
    group = get_group(importlib.import_module(f"swarm.cli.{COMMANDS[name].module}").app)
    command = group.commands.get(name, group)
    assert command is not group or group.commands
    assert command.help
    assert (
        command.help.splitlines()[0].rstrip(".").startswith(COMMANDS[name].help.rstrip(".").split(":")[0].split(";")[0])
    )


def test_help_names_every_command_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert "checks_failed" in out


def test_version_and_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("swarm 0.")
    assert app.main([]) == 2
    assert "Usage" in capsys.readouterr().out


def test_exit_codes_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["help", "exit-codes"]) == 0
    assert "  15  task: the broker's policy refused the proposal" in capsys.readouterr().out
    assert app.main(["help", "task-files"]) == 0
    assert "budget.steps" in capsys.readouterr().out
