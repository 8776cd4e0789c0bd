"""Watching on a real terminal: bars while it goes, a summary at its end, and Ctrl-C that leaves the task running."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from swarm.cli.clean import clean

pytestmark = pytest.mark.slow


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            words,
            env=env | {"TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def until(self, word: str | None, seconds: float = 30.0) -> str:
        """What was printed until a word came, or until the end."""
        end = time.monotonic() + seconds
        while word is None or word not in self.seen:
            if time.monotonic() > end:
                self.process.kill()
                self.close()
                pytest.fail(f"{word!r} did not come: {self.seen}")
            ready, _, _ = select.select([self._ours], [], [], 0.1)
            if ready and not self._read():
                break
        return self.seen

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux says EIO when the other end is closed
            return False
        self.seen += data.decode("utf-8", "replace")
        return bool(data)

    def close(self) -> int:
        code = self.process.wait(20)
        os.close(self._ours)
        return code


def test_a_terminal_shows_bars_and_then_the_summary(installation) -> None:
    ran = installation.run("submit", "hold the line", "--json")
    task = json.loads(ran.out)["task"]["id"]
    terminal = Terminal(installation.words("follow", task), installation.env)
    seen = terminal.until(" of 400k")
    assert "0 of 60" in seen
    assert "\x1b]0;evil" not in seen
    assert installation.run("cancel", task).code == 0
    seen = terminal.until(None)
    assert terminal.close() == 17
    assert f"task {task} cancelled" in seen
    assert "\x1b[?25h" in seen  # the cursor is there again


def test_ctrl_c_leaves_the_task_running_and_says_so(installation) -> None:
    terminal = Terminal(installation.words("submit", "hold it", "--wait"), installation.env)
    terminal.until("working")
    terminal.process.send_signal(signal.SIGINT)
    seen = clean(terminal.until(None))
    assert terminal.close() == 130
    task = next(line for line in seen.splitlines() if "swarm cancel" in line).split()[-1]
    assert f"task {task} goes on" in seen
    assert "Traceback" not in seen
    view = json.loads(installation.run("show", task, "--json").out)
    assert view["state"] == "running"
    assert installation.run("cancel", task).code == 0


def test_a_pipe_gets_plain_lines(installation) -> None:
    ran = installation.run("submit", "deliver it", "--wait")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "pull request sample#1" in ran.out


@pytest.mark.parametrize("name", ["NO_COLOR", "TERM"])
def test_a_plain_terminal_is_left_plain(installation, name: str) -> None:
    value = {"NO_COLOR": "1", "TERM": "dumb"}[name]
    ours, theirs = pty.openpty()
    words = installation.words("list", "--limit", "1")
    done = subprocess.run(words, env=installation.env | {name: value}, stdout=theirs, stderr=theirs, check=False)
    os.close(theirs)
    seen = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "\x1b[3" not in seen


DEAF = """
import asyncio, os, signal, sys
import typer
from swarm.cli.live import Json
from swarm.cli.watch import until_end
from swarm.types import TaskView

VIEW = TaskView.model_validate_json(sys.argv[1])


class Deaf:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def task(self, _task):
        return VIEW

    async def follow(self, _task):
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        await asyncio.sleep(60)
        yield


try:
    until_end(Deaf(), VIEW.task.id, Json())
except typer.Exit as left:
    sys.exit(left.exit_code)
"""


def test_a_ctrl_c_that_was_lost_on_the_way_is_heard_all_the_same(installation) -> None:
    ran = installation.run("submit", "hold the line", "--json")
    task = json.loads(ran.out)["task"]["id"]
    command = [sys.executable, "-c", DEAF, ran.out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    installation.run("cancel", task)
    assert f"task {task} goes on" in done.stderr
    assert done.returncode == 130, done.stderr
