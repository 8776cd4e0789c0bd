"""The example that hands in a task from a program, against a real broker and the daemon's api."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[3] / "examples" / "submit_and_wait.py"


@pytest.mark.parametrize(("word", "code", "state"), [("deliver", 0, "delivered"), ("gave_up", 1, "gave_up")])
def test_a_program_hands_in_a_task_and_waits(installation, word: str, code: int, state: str) -> None:
    words = [sys.executable, str(SCRIPT), str(installation.config), "sample", f"{word} it"]
    done = subprocess.run(words, env=installation.env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert state in done.stdout.splitlines()[-1]


def test_a_program_shows_the_mend(installation) -> None:
    words = [sys.executable, str(SCRIPT), "/none.toml", "sample", "x"]
    done = subprocess.run(words, env=installation.env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "mend: write one with: swarm init" in done.stderr


def test_a_program_shows_how_a_daemon_stands_and_what_moves(installation) -> None:
    script = SCRIPT.with_name("client.py")
    words = [sys.executable, str(script), str(installation.folder / "daemon.sock")]
    done = subprocess.run(words, env=installation.env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "of 4 workers busy" in done.stdout
    gone = subprocess.run([*words[:2], "/none.sock"], env=installation.env, capture_output=True, text=True, check=False)
    assert gone.returncode == 1
    assert "mend: start it with: swarm daemon" in gone.stderr


def test_a_program_without_its_token_shows_the_mend() -> None:
    words = [sys.executable, str(SCRIPT.with_name("client.py")), "https://127.0.0.1:9", "/none.token"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "/none.token: No such file" in done.stderr
