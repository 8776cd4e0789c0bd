"""`swarm config`: what is in force and where from, what may not work, and every setting explained; no key is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swarm.cli import app
from swarm.cli.advice import cautions
from swarm.config_file import load

TEXT = """
[daemon]
state = "state"
socket = "gone/daemon.sock"
[broker]
socket = "broker.sock"
[[pool.endpoints]]
name = "box"
url = "http://10.0.0.1:8000"
api_key = "geheim-789"
[[pool.endpoints]]
name = "other"
url = "https://10.0.0.2"
api_key_env = "NO_SUCH_KEY"
[repositories.web]
[repositories.db]
test_command = "echo 'open"
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "swarm.toml"
    path.write_text(TEXT)
    path.chmod(0o644)
    return str(path)


def test_check_shows_origins_and_no_key(capsys: Capture, config: str) -> None:
    assert app.main(["config", "check", "-c", config]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line.split()[-1] for line in out.splitlines() if "." in line.split()[0]}
    assert lines["daemon.workers"] == "default"
    assert lines["pool.endpoints[0].url"] == "file"
    assert "geheim" not in out
    assert f"{config} is usable, with 6 warnings" in out


def test_check_in_json_is_one_document(capsys: Capture, config: str) -> None:
    assert app.main(["config", "check", "-c", config, "--json"]) == 0
    out = capsys.readouterr().out
    assert "geheim" not in out
    told = json.loads(out)
    assert {"path", "settings", "warnings"} == set(told)
    assert {"key", "value", "origin"} == set(told["settings"][0])


def test_strict_takes_warnings_for_faults(capsys: Capture, config: str) -> None:
    assert app.main(["config", "check", "-c", config, "--strict"]) == 1
    capsys.readouterr()


def test_each_oddity_is_told_with_its_mend(config: str) -> None:
    odd = {caution.key: caution for caution in cautions(load(Path(config), {}))}
    assert "gone is not there" in odd["daemon.socket"].text
    assert "in the clear" in odd["pool.endpoints[0].url"].text
    assert "NO_SUCH_KEY" in odd["pool.endpoints[1].api_key_env"].text
    assert "everyone may read it" in odd["pool.endpoints"].text
    assert "is not set" in odd["repositories.web.test_command"].text
    assert "closing quotation" in odd["repositories.db.test_command"].text.lower()
    assert all(caution.mend for caution in odd.values())


def test_explain_all_one_and_some(capsys: Capture) -> None:
    assert app.main(["config", "explain"]) == 0
    assert "pool.endpoints[].max_in_flight" in capsys.readouterr().out
    assert app.main(["config", "explain", "daemon.workers"]) == 0
    out = capsys.readouterr().out
    assert "attempts at a time" in out
    assert "default  2" in out
    assert app.main(["config", "explain", "sandbox.limits", "--json"]) == 0
    assert {doc["key"].rpartition(".")[0] for doc in json.loads(capsys.readouterr().out)} == {"sandbox.limits"}
    assert app.main(["config", "explain", "test_command"]) == 0
    assert "repositories.NAME.test_command" in capsys.readouterr().out


def test_explaining_what_is_not_there_names_the_nearest(capsys: Capture) -> None:
    assert app.main(["config", "explain", "daemon.worker"]) == 3
    assert "did you mean daemon.workers?" in capsys.readouterr().err


ODD = """
[pool.embedded]
enabled = true
[sandbox]
backend = "bwrap"
image = "mine/base:2"
[repositories.web]
test_command = "true"
image = "{folder}/gone/Dockerfile"
[repositories.db]
test_command = "true"
image = "{folder}"
[agents.mine]
command = ["awk", "{{print}} {{task}} ${{HOME}}"]
"""


def test_images_that_are_not_there_and_braces_that_stay_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "swarm.toml"
    path.write_text(ODD.format(folder=tmp_path))
    found = {warning.key: warning.text for warning in cautions(load(path, {}))}
    assert set(found) == {"repositories.web.image", "sandbox.image", "agents.mine.command"}
    assert found["repositories.web.image"] == f"{tmp_path}/gone/Dockerfile is not there"
    assert found["agents.mine.command"].startswith("{print} stays as it is")
