"""What a person can prove with the command line: a pull request, the log, a part of the log."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.cli import checking
from broker.cli.exported import read
from broker.cli.screen import WrongUseError
from broker.client import Client, TurnedDownError
from broker.errors import AbsentError
from broker.provenance.chain import object_id
from broker.wire import Grant

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def _names():
    return iter(range(1000))


@pytest.fixture
def fresh(propose, offered, _names):
    """A pull request of this test's own: its receipt."""
    name = f"proved{next(_names)}"
    return propose(offered(name, {f"{name}.txt": b"hello\n"}))


@pytest.fixture(scope="session")
def _shared():
    return []


@pytest.fixture
def delivered(request, _shared):
    """A pull request that is only looked at: its receipt, the same for all such tests."""
    if not _shared:
        _shared.append(request.getfixturevalue("fresh"))
    return _shared[0]


def verified(out):
    return {line.split()[1].rstrip(":"): line.split()[0] for line in out.splitlines() if line.strip()}


def test_a_pull_request_is_verified_from_the_forge_to_the_sealed_tree(swarm_broker, delivered):
    code, out, _err = swarm_broker("verify", delivered["pull_request"])
    assert code == 0
    assert verified(out) == dict.fromkeys(("signature", "statement", "commit", "tree", "parent", "head"), "ok")


def test_a_commit_that_somebody_added_afterwards_is_told(folder, swarm_broker, fresh):
    git = ["git", f"--git-dir={folder}/demo.git", "-c", "user.name=x", "-c", "user.email=x@x"]
    tree = subprocess.run(
        [*git, "rev-parse", f"{fresh['commit']}^{{tree}}"], capture_output=True, text=True, check=True
    )
    made = subprocess.run(
        [*git, "commit-tree", tree.stdout.strip(), "-p", fresh["commit"], "-m", "more"],
        capture_output=True,
        text=True,
        check=True,
    )
    subprocess.run([*git, "update-ref", f"refs/heads/{fresh['branch']}", made.stdout.strip()], check=True)
    code, out, _err = swarm_broker("verify", fresh["pull_request"])
    assert code == 1
    seen = verified(out)
    assert (seen["signature"], seen["commit"], seen["parent"], seen["head"]) == ("ok", "NOT", "NOT", "NOT")
    assert "Traceback" not in out


@pytest.fixture
def files(folder, swarm_broker, delivered, tmp_path):
    """What a stranger has: a copy of the repository, the statement and the key."""
    repository, number = delivered["pull_request"].split("#")
    (tmp_path / "statement").write_text(swarm_broker("statement", repository, number)[1])
    (tmp_path / "key").write_text(swarm_broker("key", "show")[1])
    shutil.copytree(folder / "demo.git", tmp_path / "copy.git")
    return tmp_path


def offline(swarm_broker, files, commit, *more):
    paths = ("--statement", str(files / "statement"), "--key", str(files / "key"), "--git", str(files / "copy.git"))
    return swarm_broker("verify", *paths, "--commit", commit, *more, offline=True)


def test_a_stranger_verifies_it_without_the_broker(swarm_broker, files, delivered):
    code, out, _err = offline(swarm_broker, files, delivered["commit"])
    assert code == 0
    assert set(verified(out).values()) == {"ok"}


def test_a_statement_about_something_else_is_told(swarm_broker, files, delivered, propose, offered):
    other = propose(offered("proved-other", {"other.txt": b"x\n"}))
    repository, number = other["pull_request"].split("#")
    (files / "statement").write_text(swarm_broker("statement", repository, number)[1])
    code, out, _err = offline(swarm_broker, files, delivered["commit"])
    assert code == 1
    assert verified(out)["commit"] == "NOT"
    assert verified(out)["signature"] == "ok"


def test_a_changed_statement_is_told_at_its_signature(swarm_broker, files, delivered):
    envelope = json.loads((files / "statement").read_text())
    envelope["payload"] = envelope["payload"][:-8] + "AAAAAAA="
    (files / "statement").write_text(json.dumps(envelope))
    code, out, _err = offline(swarm_broker, files, delivered["commit"])
    assert code == 1
    assert verified(out) == {"signature": "NOT"}


def test_an_unknown_commit_is_a_clear_error(swarm_broker, files):
    code, _out, err = offline(swarm_broker, files, "0" * 40)
    assert code == 8
    assert "fetch the pull request's branch first" in err
    assert offline(swarm_broker, files, "--help")[0] in {0, 2}
    assert offline(swarm_broker, files, "HEAD")[0] == 2


@pytest.fixture
def updated(swarm_broker, propose, offered, _names):
    """A pull request with an update: its two receipts."""
    name = f"updated{next(_names)}"
    grant = Grant.model_validate_json(swarm_broker("grant", "demo", name, "--uses", "2", "--json")[1])
    first = propose(offered(name, {f"{name}.txt": b"1\n"}, grant))
    return first, propose(offered(name, {f"{name}.txt": b"2\n"}, grant, first["commit"]))


def test_an_updated_pull_request_is_verified_down_to_the_base_people_granted(swarm_broker, updated, folder):
    first, second = updated
    assert first["number"] == second["number"]
    code, out, _err = swarm_broker("verify", second["pull_request"])
    assert code == 0, out
    assert out.count("ok  head") == 2
    assert f"the commit below, {first['commit']}:" in out
    kept = folder / "state" / "provenance" / "demo" / str(first["number"]) / f"{first['commit']}.json"
    kept.rename(kept.with_suffix(".away"))
    code, out, _err = swarm_broker("verify", second["pull_request"])
    assert code == 1
    assert f"NOT statement: there is none about the commit {first['commit']}" in out


def test_an_updated_one_needs_all_its_statements_elsewhere_too(swarm_broker, updated, folder, tmp_path):
    first, second = updated
    (tmp_path / "key").write_text(swarm_broker("key", "show")[1])
    for name, receipt in (("old", first), ("new", second)):
        number = str(receipt["number"])
        (tmp_path / name).write_text(swarm_broker("statement", "demo", number, "--commit", receipt["commit"])[1])
    common = ("--key", str(tmp_path / "key"), "--git", f"{folder}/demo.git", "--commit", second["commit"])
    old, new = ("--statement", str(tmp_path / "old")), ("--statement", str(tmp_path / "new"))
    for given, ends in (((*new, *old), 0), ((*old, *new), 0), (new, 1), (old, 1)):
        code, out, _err = swarm_broker("verify", *given, *common, offline=True)
        assert code == ends, out
    assert swarm_broker("verify", *old, *common[:-1], first["commit"], offline=True)[0] == 0


def test_a_commit_that_it_does_not_stand_on_is_not_given_out(folder, delivered):
    with Client(folder / "run" / "person.sock") as client:
        for commit in ("main", "0" * 40, f"{delivered['commit']}^", "--help", delivered["commit"][:12]):
            with pytest.raises(TurnedDownError, match="does not stand on"):
                client.commit("demo", delivered["number"], commit)
        assert client.commit("demo", delivered["number"], delivered["commit"]) == client.commit(
            "demo", delivered["number"]
        )


def test_a_hostile_clone_has_no_say_and_a_work_tree_of_one_is_read(swarm_broker, files, delivered):
    """Incident shape of fletch #564 and others: settings of a repository that run something on the host."""
    clone, copy = files / "clone", files / "copy.git"
    subprocess.run(["git", "clone", "-q", "--no-checkout", str(copy), str(clone)], check=True)
    subprocess.run(["git", "-C", str(clone), "fetch", "-q", "origin", delivered["commit"]], check=True)
    subprocess.run(["git", "-C", str(clone), "worktree", "add", "-q", "--no-checkout", str(files / "tree")], check=True)
    trap = files / "trap"
    for key in ("core.fsmonitor", "core.sshCommand", "core.hooksPath", "core.pager"):
        subprocess.run(["git", "-C", str(clone), "config", key, f"touch {trap}"], check=True)
    (clone / ".git" / "config").write_text((clone / ".git" / "config").read_text() + "[core\n")
    for folder in ("clone", "tree"):
        paths = ("--statement", str(files / "statement"), "--key", str(files / "key"), "--git", str(files / folder))
        code, out, err = swarm_broker("verify", *paths, "--commit", delivered["commit"], offline=True)
        assert code == 0, out + err
    assert not trap.exists()


def test_a_pull_request_whose_branch_is_gone_is_still_verified(folder, swarm_broker, fresh):
    assert swarm_broker("verify", fresh["pull_request"])[0] == 0
    git = ["git", f"--git-dir={folder}/demo.git"]
    subprocess.run([*git, "update-ref", "-d", f"refs/heads/{fresh['branch']}"], check=True)
    assert swarm_broker("verify", fresh["pull_request"])[0] == 0


def test_a_pull_request_is_found_by_its_address():
    pull = SimpleNamespace(url="https://Forge.example/o/web/pull/7/", number=7)
    client = SimpleNamespace(
        repositories=lambda: SimpleNamespace(repositories=(SimpleNamespace(name="web"),)),
        pulls=lambda _name: SimpleNamespace(pulls=(SimpleNamespace(url="", number=6), pull)),
    )
    assert checking._named(client, "https://forge.example/o/web/pull/7") == ("web", 7)
    assert checking._named(client, "web#8") == ("web", 8)
    for wrong in ("https://forge.example/o/web/pull/8", "https://evil.example/o/web/pull/7"):
        with pytest.raises(AbsentError):
            checking._named(client, wrong)
    for wrong in ("web", "", "https://[x"):
        with pytest.raises(WrongUseError):
            checking._named(client, wrong)


def test_an_export_of_the_log_proves_itself(swarm_broker, delivered, tmp_path):
    (tmp_path / "key").write_text(swarm_broker("key", "show")[1])
    (tmp_path / "log").write_text(swarm_broker("log", "export", "--after", "1")[1])
    paths = ("--file", str(tmp_path / "log"), "--key", str(tmp_path / "key"))
    code, out, _err = swarm_broker("log", "verify", *paths, offline=True)
    assert code == 0
    assert out.startswith("lines 2 to ")
    lines = (tmp_path / "log").read_text().splitlines(keepends=True)
    for broken in (lines[:-2] + lines[-1:], lines[1:-1][::-1], lines[:-1], [*lines[:3], *lines[4:]]):
        (tmp_path / "log").write_text("".join(broken))
        code, _out, err = swarm_broker("log", "verify", *paths, offline=True)
        assert code == 6
        assert "state folder" not in err  # that is the mend of the broker's own log


def test_what_is_no_plain_file_is_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, "/dev/zero"):
        with pytest.raises(WrongUseError, match="plain file"):
            read(Path(path))


def test_an_export_keeps_to_its_times(swarm_broker, delivered):
    assert swarm_broker("log", "export", "--since", "2999-01-01")[0] == 8
    code, out, _err = swarm_broker("log", "export", "--until", "2999-01-01")
    assert code == 0
    assert json.loads(out.splitlines()[0])["number"] == 1


def test_another_brokers_key_proves_nothing(swarm_broker, files, delivered, stranger_key):
    (files / "key").write_text(stranger_key)
    code, out, _err = offline(swarm_broker, files, delivered["commit"])
    assert code == 1
    assert verified(out) == {"signature": "NOT"}
    (files / "key").write_text("not a key")
    assert offline(swarm_broker, files, delivered["commit"])[0] == 1


def test_an_object_id_is_gits_own():
    assert object_id(b"", "blob", "0" * 40) == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert object_id(b"", "blob", "0" * 64) == "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"
