"""What `swarm repository examine` says, and that its lines are settings that load."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swarm.cli.app import app, main
from swarm.cli.repository.examine import Report, lines, told
from swarm.config import RepositoryConfig
from swarm.knowledge.examining import Examination
from swarm.knowledge.proving import Proved, Tried
from swarm.known import Guide, Known

VENV = '"$HOME/venv/bin/python" -m pytest -q'
PROVED = Proved(command=VENV, why="pyproject.toml", passed=3, failed=1, seconds=2.0)
GOOD = Examination(
    proved=PROVED, setup=('python3 -m venv "$HOME/venv"',), tried=(Tried(command="a", why="b", went="c"),)
)


@pytest.mark.parametrize("name", ["shop", "my shop", 'a"]\n[daemon', "a.b"])
def test_lines_are_settings_of_that_repository_alone(name: str) -> None:
    read = tomllib.loads("\n".join(lines(name, GOOD)))
    assert list(read) == ["repositories"]
    settings = RepositoryConfig.model_validate(read["repositories"][name])
    assert (settings.test_command, settings.setup) == (VENV, GOOD.setup)


def test_report_tells_what_was_tried_and_hides_nothing_that_agents_are_told() -> None:
    known = Known(
        guides=(Guide(path="AGENTS.md\x1b[2J", text="x", left_out=5),), notes=("Its files suggest \x1b[31mx",)
    )
    said = "\n".join(told(Report("shop", known, GOOD, ("told",)), network=False))
    assert "tried a  (b): c" in said
    assert "3 passed, 1 failed on the base in 2.0 s" in said
    assert "5 characters of it are left out" in said
    assert "\x1b" not in said


def test_report_without_a_command_says_what_to_do_next() -> None:
    said = "\n".join(told(Report("shop", Known(), Examination(), ()), network=False))
    assert "--network" in said
    assert "test_command" not in said


def test_folder_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["repository", "examine", str(tmp_path / "nowhere")])
    assert result.exit_code != 0


def test_folder_without_git_is_said_to_be_copied_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "swarm.toml").write_text("[sandbox.limits]\ndisk = 1048576\n")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "large").write_bytes(bytes(2_000_000))  # ends it before a sandbox is made
    folder = str(tmp_path / "plain")
    assert main(["repository", "examine", folder, "--config", str(tmp_path / "swarm.toml")]) != 0
    assert "is no git checkout: every file in it is copied" in " ".join(capsys.readouterr().err.split())
