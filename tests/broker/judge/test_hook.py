"""The operator's command has the last word against a proposal, and none for it once it fails in any way."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from broker.config.policy import Policy
from broker.judge.facts import Change
from broker.judge.hook import HookFacts, ask, files_of
from broker.wire import Finding

CHANGES = (Change("src/a.py", "modified", "100644", "100755", "a" * 40, "b" * 40),)


def facts(**more) -> HookFacts:
    found = (Finding(rule="executable", message="m", path="src/a.py"),)
    values = {
        "repository": "demo", "base": "main", "base_commit": "c" * 40, "tree": "d" * 40, "task": "t1",
        "title": "Fix", "body": "", "files": files_of(CHANGES, {"b" * 40: 12}), "findings": found,
    }  # fmt: skip
    return HookFacts.model_validate({**values, **more})


@pytest.fixture
def verdict(tmp_path):
    """What a shell script as the hook leads to."""

    def _verdict(script: str, seconds: float = 5.0, given: HookFacts | None = None) -> Finding | None:
        tool = tmp_path / "hook"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        return ask(Policy(hook=(str(tool), "--strict"), hook_seconds=seconds), given or facts())

    return _verdict


def test_without_a_hook_nobody_is_asked():
    assert ask(Policy(), facts()) is None


def test_zero_approves(verdict):
    assert verdict("exit 0") is None


@pytest.mark.parametrize(("code", "severity"), [(1, "block"), (2, "ask")])
def test_one_refuses_and_two_asks_a_person_with_the_reason(verdict, code, severity):
    found = verdict(f"echo; echo 'no change on a Friday'; echo more; exit {code}")
    assert found is not None
    assert (found.rule, found.severity) == ("hook", severity)
    assert found.message == "the operator's hook: no change on a Friday"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", "exit code 3"),
        ("exit 126", "exit code 126"),
        ("kill -SEGV $$", "signal 11"),
        ("yes", "wrote more than"),
        ("head -c 200000 /dev/zero; exit 0", "wrote more than"),
    ],
)
def test_anything_else_refuses(verdict, script, words):
    found = verdict(script)
    assert found is not None
    assert (found.rule, found.severity) == ("hook-failed", "block")
    assert words in found.message


@pytest.mark.parametrize(
    ("command", "words"),
    [("/nonexistent/hook", "cannot be found"), ("/etc/passwd", "is not executable"), ("/etc", "is no file")],
)
def test_what_cannot_be_started_refuses(command, words):
    found = ask(Policy(hook=(command,)), facts())
    assert found is not None
    assert (found.rule, found.severity) == ("hook-failed", "block")
    assert words in found.message


def test_a_script_without_an_interpreter_refuses(tmp_path):
    (tmp_path / "hook").write_text("#!/nonexistent/shell\n")
    (tmp_path / "hook").chmod(0o755)
    found = ask(Policy(hook=(str(tmp_path / "hook"),)), facts())
    assert found is not None
    assert "cannot be started" in found.message


def test_one_that_others_could_change_is_not_run(tmp_path):
    (tmp_path / "hook").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "hook").chmod(0o757)
    found = ask(Policy(hook=(str(tmp_path / "hook"),)), facts())
    assert found is not None
    assert "chmod go-w" in found.message
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "script", ["sleep 30", "exec >&- 2>&-; sleep 30", "trap '' TERM; sleep 30", "cat - >/dev/null; sleep 30"]
)
def test_one_that_takes_too_long_is_ended_and_refuses(verdict, script):
    started = time.monotonic()
    found = verdict(script, 0.2)
    assert found is not None
    assert "took longer than 0.2 s" in found.message
    assert time.monotonic() - started < 20


def test_nothing_that_it_started_outlives_it(verdict, tmp_path):
    assert verdict(f"sleep 300 & echo $! > {tmp_path}/pid; exit 0") is None
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().split(")")[1].split()[0] in {"Z", "X"}:
            return
        time.sleep(0.02)
    pytest.fail("the hook's child is still there")


def test_a_child_that_keeps_the_output_open_does_not_hold_the_verdict_up(verdict):
    started = time.monotonic()
    assert verdict("sleep 30 & exit 0") is None
    assert time.monotonic() - started < 20


def test_it_gets_the_facts_and_nothing_of_the_brokers_environment(verdict, tmp_path):
    os.environ["HOOK_CANARY"] = "canary-in-the-environment"
    try:
        found = verdict(f"cat > {tmp_path}/facts; /usr/bin/env > {tmp_path}/env; pwd > {tmp_path}/cwd; exit 1")
    finally:
        del os.environ["HOOK_CANARY"]
    assert found is not None
    told = json.loads((tmp_path / "facts").read_text())
    assert told["repository"] == "demo"
    assert told["files"][0] == {
        "path": "src/a.py", "kind": "modified", "old_mode": "100644", "new_mode": "100755",
        "old_id": "a" * 40, "new_id": "b" * 40, "size": 12,
    }  # fmt: skip
    assert told["findings"][0]["rule"] == "executable"
    assert set((tmp_path / "env").read_text().split()) <= {"PWD=/", "SHLVL=0", "_=/usr/bin/env"}
    assert (tmp_path / "cwd").read_text() == "/\n"


def test_it_inherits_no_open_file_of_the_broker(verdict, tmp_path):
    with (tmp_path / "key").open("w") as kept:
        os.set_inheritable(kept.fileno(), True)
        verdict(f"ls -l /proc/self/fd > {tmp_path}/fds; exit 0")
    assert str(tmp_path / "key") not in (tmp_path / "fds").read_text()


def test_one_that_reads_nothing_of_much_is_no_trouble(verdict):
    assert verdict("exit 0", given=facts(body="x" * 5_000_000)) is None


def test_the_reason_is_one_line_that_moves_no_terminal(verdict):
    found = verdict(r"printf 'bad \033[31mred\033[0m \342\200\256 \377 '; head -c 5000 /dev/zero | tr '\0' x; exit 1")
    assert found is not None
    assert found.message.isprintable()
    assert len(found.message) < 400


def test_what_it_prints_as_json_is_only_words(verdict):
    found = verdict("""echo '{"severity": "warn", "approve": true}'; exit 1""")
    assert found is not None
    assert found.severity == "block"
