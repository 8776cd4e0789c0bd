"""Whatever goes wrong is one screen: what, why and the mend, no traceback, and the documented exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarm.cli import app
from swarm.config_file import SYSTEM

SCREEN = 24  # lines of the smallest terminal that anyone uses


def shown_well(ran: Any, code: int, *words: str) -> None:
    """One screen on standard error that says these words and how to mend it, with this exit code."""
    assert ran.code == code, ran.err + ran.out
    assert "Traceback" not in ran.err + ran.out
    assert len(ran.err.splitlines()) <= SCREEN
    assert "mend: " in ran.err
    for word in words:
        assert word in ran.err, ran.err


def settings(folder: Path, change: Callable[[str], str]) -> Path:
    text = """
[daemon]
state = "state"
socket = "daemon.sock"
[broker]
socket = "broker.sock"
[[pool.endpoints]]
name = "box"
url = "http://127.0.0.1:9"
[repositories.sample]
test_command = "true"
"""
    path = folder / "swarm.toml"
    path.write_text(change(text))
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("message", "t1", ""),
        ("message", "t1", "x" * 20_001),
        ("fork", "t1", "", "--capability", "c", "--task-id", "t2"),
        ("fork", "t1", "x" * 100_001, "--capability", "c", "--task-id", "t2"),
        ("fork", "t1", "--title", "x" * 201, "--capability", "c", "--task-id", "t2"),
        ("fork", "t1", "--capability", "c", "--task-id", "T 2"),
        ("status", "--batch", "x" * 101),
        ("schedule", "add", "Bad Name", "do it", "--cron", "0 3 * * *"),
        ("schedule", "add", "x" * 60, "do it", "--cron", "0 3 * * *"),
        ("submit", "do it", "--max-money", "inf"),
        ("submit", "do it", "--expires", "inf"),
        ("submit", "do it", "--idempotency-key", "x" * 201),
        ("submit", "x" * 100_001),
        ("submit", "do it", "--requires", ""),
        ("submit", "do it", "--needs", "No Task"),
        ("submit", "do it", "--mutex", ""),
        ("submit", "do it", "--file", "tasks.jsonl"),
        ("submit", "do it", "--file", "-", "--batch", "nightly"),
    ],
)
def test_words_that_cannot_be_meant_are_refused_before_anything_is_asked(
    swarm, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """No daemon and no broker answer there."""
    ran = swarm("-c", str(settings(tmp_path, str)), *words)
    shown_well(ran, 7)
    assert len(ran.err) < 2000


def test_lines_of_a_batch_without_its_name_are_not_taken_for_one_tasks_words(installation, tmp_path: Path) -> None:
    told = json.dumps({"instructions": "do it"})
    ran = installation.run("-c", str(settings(tmp_path, str)), "submit", "--file", "-", stdin=f"{told}\n{told}\n")
    shown_well(ran, 3, "a batch's lines", "--batch NAME")


@pytest.mark.skipif(SYSTEM.exists(), reason=f"this machine has a {SYSTEM}")
def test_no_settings_at_all(installation, tmp_path: Path) -> None:
    ran = installation.run("list", cwd=tmp_path)
    shown_well(ran, 3, "there is no swarm.toml", "/etc/agent-swarm/swarm.toml", "swarm init")


def test_settings_that_may_not_be_read(installation, tmp_path: Path, bound: list[str]) -> None:
    path = settings(tmp_path, str)
    path.chmod(0)
    command = [*bound, sys.executable, "-m", "swarm", "--config", str(path), "list"]
    done = subprocess.run(command, env=installation.env, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert f"{path}: you may not read it" in done.stderr
    assert "mend: let your user read it" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_that_are_wrong(swarm, tmp_path: Path) -> None:
    path = settings(tmp_path, lambda text: text.replace("state =", "stat ="))
    ran = swarm("-c", str(path), "list")
    shown_well(ran, 3, "line 3: daemon.stat: is no setting; did you mean state?", "swarm config explain")


def test_no_endpoint(swarm, tmp_path: Path) -> None:
    path = settings(
        tmp_path, lambda text: text.replace('[[pool.endpoints]]\nname = "box"\nurl = "http://127.0.0.1:9"', "")
    )
    ran = swarm("config", "check", "-c", str(path))
    shown_well(ran, 3, "there is no endpoint", "swarm init")


def test_no_daemon(installation, tmp_path: Path) -> None:
    ran = installation.run("list", "--config", str(settings(tmp_path, str)))
    shown_well(ran, 4, f"does not answer at {tmp_path}/daemon.sock", "swarm daemon")


def test_no_daemon_in_json(swarm, tmp_path: Path) -> None:
    ran = swarm("list", "--json", "--config", str(settings(tmp_path, str)))
    assert ran.code == 4
    assert not ran.out
    assert json.loads(ran.err)["error"]["exit_code"] == 4


@pytest.mark.slow
def test_no_broker(installation, swarm, tmp_path: Path) -> None:
    daemon = f'socket = "{installation.folder}/daemon.sock"'
    path = settings(tmp_path, lambda text: text.replace('socket = "daemon.sock"', daemon))
    ran = swarm("submit", "deliver it", "-c", str(path))
    shown_well(ran, 5, f"the broker does not answer at {tmp_path}/person.sock", "swarm-broker serve")


def test_an_unknown_repository(installation) -> None:
    ran = installation.run("submit", "--repo", "sampel", "deliver it")
    shown_well(ran, 6, 'the broker knows no repository "sampel"', "did you mean sample?")


def test_a_wrong_base(swarm) -> None:
    ran = swarm("submit", "--base", "no-such-branch", "deliver it")
    shown_well(ran, 5, "no-such-branch")


@pytest.mark.parametrize("base", ["../../etc", "-x", "a b", "a\x1b[31m", "x" * 300])
def test_a_base_that_is_no_branch(installation, capsys: pytest.CaptureFixture[str], base: str) -> None:
    assert app.main(["-c", str(installation.config), "submit", f"--base={base}", "deliver it"]) in {5, 7}
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "\x1b" not in err
    assert "mend: " in err


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a\x07b", "a\nb"])
def test_a_dirty_path(installation, capsys: pytest.CaptureFixture[str], path: str) -> None:
    assert app.main(["-c", str(installation.config), "submit", "--path", path, "deliver it"]) == 7
    err = capsys.readouterr().err
    assert f"--path {path!r}" in err
    assert "mend: " in err
    assert "\x07" not in err


def test_a_dirty_path_from_outside(swarm) -> None:
    shown_well(swarm("submit", "--path", "../x", "deliver it"), 7, "leads out of the repository")


def test_an_unknown_task(swarm) -> None:
    shown_well(swarm("show", "nosuchtask"), 6, "nosuchtask")


@pytest.mark.parametrize("name", ["nosuchtask", "../health", "a/steps", "?x=1", "%2e%2e", " ", ""])
def test_only_ids_reach_the_daemon(installation, capsys: pytest.CaptureFixture[str], name: str) -> None:
    for word in ("show", "follow", "logs", "diff", "cancel", "retry"):
        assert app.main(["-c", str(installation.config), word, name]) == 6
        assert "mend: " in capsys.readouterr().err


def test_a_task_file_that_is_not_there(swarm) -> None:
    shown_well(swarm("submit", "--file", "none.md"), 3, "none.md: No such file or directory")


def test_no_words(swarm) -> None:
    shown_well(swarm("submit"), 7, "the task has no instructions", "--file PATH")


def test_wrong_usage_shows_the_right_one(swarm) -> None:
    ran = swarm("lst")
    assert ran.code == 2
    assert "Did you mean 'list'?" in ran.err
    ran = swarm("list", "--state", "done")
    assert ran.code == 2
    assert "delivered" in ran.err
    assert swarm("pool", "up").code == 2


ODD = (
    "import socket,sys\ns=socket.socket(socket.AF_UNIX);s.bind(sys.argv[1]);s.listen();print(1,flush=True)\n"
    "c,_=s.accept();c.recv(9999);c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}');c.close()"
)


def test_a_daemon_that_answers_nonsense_is_named(swarm, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ODD, str(tmp_path / "daemon.sock")], stdout=subprocess.PIPE) as odd:
        assert odd.stdout is not None
        odd.stdout.readline()
        ran = swarm("list", "-c", str(settings(tmp_path, str)))
    shown_well(ran, 4, "the daemon's answer is not understood", "the same version on both sides")


@pytest.mark.slow
def test_a_daemon_that_cannot_start_says_so_as_it_says_all_else(installation, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    toml = f"""
[daemon]
state = "{tmp_path}/file/state"
[[pool.endpoints]]
name = "box"
url = "http://127.0.0.1:9"
[telemetry]
log_format = "json"
"""
    (tmp_path / "swarm.toml").write_text(toml)
    ran = installation.run("daemon", "-c", str(tmp_path / "swarm.toml"))
    lines = [json.loads(line) for line in ran.err.splitlines()]
    assert ran.code in {3, 4}
    assert [line["level"] for line in lines] == ["critical"]
    assert "; mend: " in lines[0]["message"]


def test_a_fault_of_our_own_goes_to_a_log(installation) -> None:
    script = (
        "import sys\nfrom swarm.cli import app\n"
        "@app.app.command()\ndef odd():\n    raise ZeroDivisionError('nobody thought of it')\n"
        "sys.exit(app.main(['odd']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=installation.env, capture_output=True, text=True, check=False
    )
    ran = SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)
    shown_well(ran, 70, "this is a fault in swarm itself", "the details are in")
    (log,) = {Path(word.rstrip(";")) for word in done.stderr.split() if word.rstrip(";").endswith(".log")}
    assert "nobody thought of it" in log.read_text()
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_reader_that_goes_away_is_no_error(installation) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = installation.words("config", "explain")
    with os.fdopen(writer, "wb") as out:
        done = subprocess.run(words, env=installation.env, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 141
    assert done.stderr == ""
