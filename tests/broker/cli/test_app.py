"""The swarm-broker command: what it prints, and with which exit code it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from broker.audit import Audit
from broker.wire import decode_proposal, encode_proposal

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def test_a_grant_prints_the_capability_alone_on_standard_output(swarm_broker):
    code, out, err = swarm_broker("grant", "demo", "alone")
    assert code == 0
    assert out.startswith("swc2.")
    assert len(out.splitlines()) == 1
    assert "branch swarm/alone" in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("grant", "other", "t"), 8, "there is no repository 'other'"),
        (("grant", "demo", "t", "--base", "nowhere"), 8, "may not go to 'nowhere'"),
        (("grant", "demo", "NOT A NAME"), 2, "task"),
        (("grant", "demo", "t", "--uses", "0"), 2, "uses"),
        (("pr", "show", "demo", "99"), 8, "no pull request 99"),
        (("pr", "merge", "demo", "99"), 8, "no pull request 99"),
        (("proposals", "show", "none"), 8, "there is no proposal 'none'"),
        (("proposals", "discard", "none"), 8, "there is no proposal 'none'"),
        (("proposals", "discard", "a\nb"), 8, "there is no proposal"),
        (("proposals", "show", "../repositories"), 2, "knows no such verb"),
        (("grant", "demo", "t", "--days", "0"), 2, "--days"),
        (("proposals", "approve", "none", "--digest", "abc"), 2, "proposals show prints"),
        (("verify", "web"), 2, "REPOSITORY#NUMBER"),
        (("verify",), 2, "REPOSITORY#NUMBER"),
        (("verify", "https://forge.example/o/r/pull/1"), 8, "opened no pull request"),
        (("explain", "/etc/passwd"), 2, "not a proposal"),
        (("proposals", "show", ".."), 8, "there is no proposal"),
        (("pr", "list", "de?mo#"), 8, "there is no repository 'de?mo#'"),
        (("grant", "demo"), 2, "TASK"),
    ],
)
def test_a_mistake_is_one_screen_with_its_own_exit_code(swarm_broker, words, code, said):
    ended, _out, err = swarm_broker(*words)
    assert ended == code
    assert said.lower() in err.lower()
    assert len(err.splitlines()) < 15


@pytest.mark.parametrize(
    ("words", "socket"), [(("stops",), "broker.sock"), (("explain", "/etc/passwd"), "person.sock")]
)
def test_the_wrong_socket_is_told_with_the_right_one(swarm_broker, folder, words, socket):
    code, _out, err = swarm_broker(*words, "--socket", f"{folder}/run/{socket}", offline=True)
    assert code == 2
    assert "person.sock" in err
    assert "broker.sock" in err
    assert ".py" not in err


@pytest.mark.parametrize("word", ["-h", "--version"])
def test_help_and_version_have_their_usual_names(swarm_broker, word):
    code, out, _err = swarm_broker(word, offline=True)
    assert code == 0
    assert out


def test_a_pull_request_is_listed_shown_and_merged(propose, swarm_broker, offered):
    propose(offered("whole", {"new.txt": b"hello\n"}))
    _code, listed, _err = swarm_broker("pr", "list", "demo")
    assert "swarm/whole" in listed
    number = json.loads(swarm_broker("pr", "list", "demo", "--json")[1])["pulls"][0]["number"]
    _code, shown, _err = swarm_broker("pr", "show", "demo", str(number))
    assert "+hello" in shown
    assert "\x1b" not in shown
    code, merged, _err = swarm_broker("pr", "merge", "demo", str(number))
    assert code == 0
    assert "merged as" in merged
    assert swarm_broker("pr", "merge", "demo", str(number))[0] == 8


def test_a_refused_proposal_is_listed_shown_and_discarded(propose, swarm_broker, offered):
    propose(offered("bad", {"package.json": b"{}\n"}))
    assert "bad-p" in swarm_broker("proposals", "list")[1]
    _code, shown, _err = swarm_broker("proposals", "show", "bad-p")
    assert "protected-path: package.json is protected" in shown
    assert "\x1b" not in shown
    assert swarm_broker("proposals", "discard", "bad-p")[0] == 0
    assert "bad-p" not in swarm_broker("proposals", "list")[1]


def test_explain_judges_without_carrying_out(swarm_broker, offered, tmp_path):
    for task, changes, ended in (("why", {"package.json": b"{}\n"}, 1), ("why2", {"fine.txt": b"x\n"}, 0)):
        (tmp_path / task).write_bytes(offered(task, changes))
        code, out, _err = swarm_broker("explain", str(tmp_path / task))
        assert code == ended
        assert f"added {next(iter(changes))}" in out
    body = decode_proposal((tmp_path / "why2").read_bytes())[0].model_copy(update={"capability": "x"})
    (tmp_path / "forged").write_bytes(encode_proposal(body, b""))
    assert swarm_broker("explain", str(tmp_path / "forged"))[0] == 5


def test_the_log_is_shown_and_verified(folder, swarm_broker):
    assert " start " in swarm_broker("log", "show")[1]
    entry = json.loads(swarm_broker("log", "show", "--json")[1].splitlines()[0])
    assert entry["number"] == 1
    code, out, _err = swarm_broker("log", "verify", "-c", f"{folder}/broker.toml", offline=True)
    assert code == 0
    assert "unbroken" in out


def test_a_broken_log_is_told_with_its_line(swarm_broker, tmp_path, settings_for):
    (tmp_path / "state").mkdir()
    audit = Audit(tmp_path / "state" / "audit.log")
    audit.append("one")
    audit.append("two")
    audit.close()
    (tmp_path / "state" / "audit.log").write_bytes(
        (tmp_path / "state" / "audit.log").read_bytes().replace(b"one", b"won")
    )
    config = tmp_path / "broker.toml"
    config.write_text(
        f'socket = "{tmp_path}/s"\nstate = "{tmp_path}/state"\n[roles]\nperson = [0]\ncoordinator = [0]\n'
        f'[repositories.demo]\nforge = "local"\npath = "{tmp_path}/demo.git"\n'
    )
    config.chmod(0o600)
    code, _out, err = swarm_broker("log", "verify", "-c", str(config), offline=True)
    assert code == 6
    assert "line 1 " in err


def test_no_broker_is_told_with_what_to_do(tmp_path):
    command = [sys.executable, "-m", "broker", "grant", "demo", "t", "--socket", str(tmp_path / "none.sock")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "swarm-broker serve" in done.stderr
    assert "Traceback" not in done.stderr


def test_config_check_shows_what_is_in_effect(folder, swarm_broker):
    code, out, _err = swarm_broker("config", "check", "-c", f"{folder}/broker.toml", offline=True)
    assert code == 0
    assert "branches swarm/*" in out
    assert "both person and coordinator" in out
    whole = json.loads(swarm_broker("config", "check", "--json", "-c", f"{folder}/broker.toml", offline=True)[1])
    assert whole["repositories"]["demo"]["policy"]["max_files"] == 100


def test_config_fields_explains_every_key(swarm_broker):
    _code, out, _err = swarm_broker("config", "fields", offline=True)
    assert "repositories.NAME.policy.max_files = 100\n    files that one proposal may change" in out


def test_init_writes_a_private_file_once(tmp_path, swarm_broker):
    target = tmp_path / "broker.toml"
    assert swarm_broker("init", "-c", str(target), "--coordinator", "root", offline=True)[0] == 0
    assert target.stat().st_mode & 0o777 == 0o600
    code, _out, err = swarm_broker("init", "-c", str(target), "--coordinator", "root", offline=True)
    assert code == 3
    assert "there already" in err


@pytest.mark.parametrize("mode", [0o644, None])
def test_serve_without_a_private_config_says_what_to_do(tmp_path, swarm_broker, mode):
    target = tmp_path / "broker.toml"
    if mode is not None:
        target.write_text("x = 1\n")
        target.chmod(mode)
    code, _out, err = swarm_broker("serve", "-c", str(target), offline=True)
    assert code == 3
    assert ("chmod 600" in err) if mode else ("swarm-broker init" in err)
