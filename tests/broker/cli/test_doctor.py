"""The doctor names what would keep a proposal from being delivered, each with its mend."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from broker.cli import doctor
from broker.config.repository import Repository
from broker.errors import ForgeError
from broker.forge.base import Checked
from broker.forge.making import forge_of
from broker.forge.rest.pace import Paces
from broker.judge.selftest import Claim

ROOT = Path(__file__).parents[3]


def embedded(name, config):
    """The forge without hardening this process, which would stay so for all other tests."""
    return forge_of(name, config, (nothing, nothing), Paces(), str)[0]


def good_git(_scratch):
    """The whole self-test takes a second; `swarm-broker selftest` and the slow test here run it."""
    return (Claim(name="one", ok=True),)


@contextlib.contextmanager
def nothing(_scope):
    yield None


@pytest.fixture
def seen(folder):
    def see(config=None, git=good_git):
        found = list(doctor.examined(config or folder / "broker.toml", embedded, git))
        return any(one.state == "fail" for _place, one in found), {(place, one.name): one for place, one in found}

    return see


@pytest.mark.slow
def test_a_working_broker_is_told_so(seen, folder):
    failed, lines = seen()
    assert not failed
    for line in (("settings", "loaded"), ("state", "folder"), ("state", "log"), ("git", "self-test"),
                 ("socket", "answers"), ("demo", "default-branch"), ("demo", "visibility")):  # fmt: skip
        assert lines[line].state == "ok", lines[line]
    assert lines["settings", "weak"].state == "warn"  # one user for both roles


@pytest.mark.slow
def test_the_command_reads_the_credential_and_ends_with_what_it_found(folder):
    command = [sys.executable, "-m", "broker", "doctor", "--json", "-c", f"{folder}/broker.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"place": "demo", "name": "default-branch", "state": "ok", "message": "main can be read", "mend": ""} in [
        json.loads(line) for line in done.stdout.splitlines()
    ]


def other(folder, tmp_path, **replaced):
    text = (folder / "broker.toml").read_text()
    for old, new in replaced.values():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "broker.toml").write_text(text)
    (tmp_path / "broker.toml").chmod(0o600)
    return tmp_path / "broker.toml"


def test_an_open_state_folder_a_silent_socket_and_a_missing_branch_are_told(seen, folder, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    config = other(folder, tmp_path, state=(f"{folder}/state", f"{tmp_path}/state"),
                   run=(f"{folder}/run", f"{tmp_path}/run"),
                   base=('# default_base = "main"', 'default_base = "trunk"'))  # fmt: skip
    failed, lines = seen(config)
    assert failed
    assert (lines["state", "folder"].state, lines["socket", "answers"].state) == ("fail", "warn")
    assert "chmod 700" in lines["state", "folder"].mend
    assert "no branch trunk" in lines["demo", "default-branch"].message


def test_settings_that_cannot_be_loaded_are_told_with_the_mend(seen, tmp_path):
    failed, lines = seen(tmp_path / "none.toml")
    assert failed
    assert "swarm-broker init" in lines["settings", "loaded"].mend


def test_a_branch_that_stands_in_the_way_of_all_others_is_told(seen, folder, tmp_path):
    bare = tmp_path / "demo.git"
    subprocess.run(["git", "clone", "-q", "--bare", f"{folder}/demo.git", str(bare)], check=True)
    for branch in subprocess.run(
        ["git", "-C", str(bare), "for-each-ref", "--format=%(refname)", "refs/heads/swarm/"],
        capture_output=True, text=True, check=True,
    ).stdout.split():  # fmt: skip
        subprocess.run(["git", "-C", str(bare), "update-ref", "-d", branch], check=True)
    subprocess.run(["git", "-C", str(bare), "branch", "swarm", "main"], check=True)
    config = other(folder, tmp_path, path=(f"{folder}/demo.git", str(bare)))
    failed, lines = seen(config)
    assert failed
    assert "a branch is called swarm" in lines["demo", "branches"].message


def test_a_broken_log_is_told_with_its_line(seen, folder, tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "audit.log").write_text("{}\n")
    (state / "audit.head").write_text("1 " + "a" * 64)
    failed, lines = seen(other(folder, tmp_path, state=(f"{folder}/state", str(state))))
    assert failed
    assert "line 1 " in lines["state", "log"].message


def test_a_git_that_cannot_be_relied_on_is_told(seen):
    failed, lines = seen(git=lambda _scratch: (Claim(name="strict", ok=False, message="took it", mend="another git"),))
    assert failed
    assert (lines["git", "strict"].state, lines["git", "strict"].mend) == ("fail", "another git")


class Silent:
    """A forge that answers two questions and fails at the third."""

    def head(self, branch):
        return "a" * 40 if branch == "main" else None

    def visibility(self):
        return "unknown"

    def examine(self, base, prefix):
        yield Checked("scopes", "warn", "it may do more than it needs", "a narrower token")
        raise ForgeError("rate limited", "wait")


def test_what_a_forge_knows_of_itself_is_told_too(tmp_path):
    settings = Repository(forge="local", path=tmp_path)
    told = doctor._forge(Silent(), settings)
    assert [next(told).name for _ in range(3)] == ["default-branch", "visibility", "scopes"]
    with pytest.raises(ForgeError, match="rate limited"):
        next(told)


def test_the_doctor_changes_nothing(seen, folder):
    def listing():
        found = (path for path in (folder / "state").rglob("*") if path.is_file())
        return {path: path.stat().st_mtime_ns for path in found if "sqlite" not in path.name}

    before = listing()
    seen()
    assert listing() == before
