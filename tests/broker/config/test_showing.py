"""Every key is explained, every weakness named, and what serve would refuse is found before it starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.config.loading import load
from broker.config.showing import fields, obstacles, warnings

REMOTE = 'forge = "gitea"\nurl = "https://git.example.org/a/b"\ncredential = { token = { file = "/t" } }\n'
LOCAL = 'forge = "local"\npath = "/srv/demo.git"\n'
POLICY = "[repositories.demo.policy]\n"


def test_groups_and_folders_that_serve_would_refuse_are_named(write, good, tmp_path):
    open_to_all, state = tmp_path / "open", tmp_path / "state"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    state.mkdir(mode=0o755)
    text = good.replace("/run/b/b.sock", f"{open_to_all}/b.sock").replace("/var/b", str(state))
    found = "\n".join(obstacles(load(write('person_group = "no-such-group"\n' + text)), os.geteuid()))
    assert "groupadd --system no-such-group" in found
    assert f"chmod go-w {open_to_all}" in found
    assert f"chmod 700 {state}" in found


@pytest.fixture
def weak(write, good):
    """The warnings of the good settings with something added at the end."""
    return lambda more, text=good: warnings(load(write(text + more)), uid=77)


def test_one_uid_in_both_roles_is_warned_of(write, good):
    loaded = load(write(good.replace("4242", "0")))
    assert any("both person and coordinator" in line for line in warnings(loaded, uid=77))
    assert any("broker's own uid" in line for line in warnings(loaded, uid=0))
    assert warnings(load(write(good)), uid=77) == ()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (POLICY + "allow_workflows = true", "the whole world may be reading"),
        (POLICY + "workflow_paths = []", "no file counts as one that the forge's CI runs"),
        (POLICY + "protected_paths = []", "may change without a person's word"),
        (POLICY + 'protected = "warn"', "may change without a person's word"),
        (POLICY + 'secrets = "allow"', "secrets = allow: what the scan finds is published"),
        (POLICY + 'hidden_text = "warn"', "hidden_text = warn"),
        (POLICY + "allow_symlinks = true", "write or fetch elsewhere"),
        ('[repositories.demo.intake]\nlabel = "swarm"\npermission = "triage"', "people who may not push start tasks"),
        ('[webhook]\nlisten = "0.0.0.0:9"\nsecret = { file = "/s" }', "from other machines without TLS"),
        ('[repositories.again]\nforge = "local"\npath = "/SRV/demo.git"', "a caller chooses between their policies"),
    ],
)
def test_what_weakens_a_wall_is_named(weak, more, words):
    assert any(words in line for line in weak(more))


def test_of_a_private_repository_less_is_said(weak, good):
    said = weak("visibility = 'private'\n" + POLICY + "allow_workflows = true")
    assert not any("whole world" in line for line in said)


def test_a_remote_repository_whose_readers_are_declared_is_warned_of(weak, good):
    said = weak("visibility = 'private'\n", good.replace(LOCAL, REMOTE))
    assert any("visibility = private is taken at its word" in line for line in said)


def test_plain_http_is_warned_of(weak, good):
    said = weak("", good.replace(LOCAL, REMOTE.replace("https://git.example.org", "http://127.0.0.1:3000")))
    assert any("plain http" in line for line in said)


def test_every_key_is_explained():
    rows = fields()
    assert len(rows) > 70
    assert all(meaning for _name, _default, meaning in rows)
    shown = {(name, default) for name, default, _ in rows}
    assert ("repositories.NAME.policy.max_files", "100") in shown
    assert ("repositories.NAME.credential.app.key.file", "None") in shown


def test_a_repository_that_serve_would_refuse_is_named_with_its_mend(write, good, tmp_path):
    there = tmp_path / "there.git"
    text = good.replace("/srv/demo.git", str(there))
    assert "git init --bare" in obstacles(load(write(text)), os.geteuid())[0]
    there.mkdir()
    (there / "HEAD").write_text("ref: refs/heads/main")
    assert obstacles(load(write(text)), os.geteuid()) == ()
    assert "chown -R 77" in obstacles(load(write(text)), 77)[0]


@pytest.fixture
def found(write, good, tmp_path):
    """The obstacles of settings that name files beside a repository that is good."""
    there = tmp_path / "there.git"
    there.mkdir()
    (there / "HEAD").write_text("ref: refs/heads/main")

    def _found(more: str) -> tuple[str, ...]:
        return obstacles(load(write(good.replace("/srv/demo.git", str(there)) + more)), os.geteuid())

    return _found


def program(path: Path, mode: int = 0o755) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "key",
    [
        POLICY + 'hook = ["{}"]',
        '[repositories.demo.credential]\ntoken = {{ command = ["{}"] }}',
        '[canary]\nfile = "/c"\ncommand = ["{}"]',
        '[webhook]\nsecret = {{ command = ["{}", "show"] }}',
    ],
)
def test_a_command_that_others_could_change_is_refused(found, tmp_path, key):
    tool = program(tmp_path / "tool")
    assert found(key.format(tool)) == ()
    program(tool, 0o775)
    assert "chmod go-w" in found(key.format(tool))[0]
    program(tool, 0o644)
    assert "is not executable" in found(key.format(tool))[0]
    assert "cannot be found" in found(key.format(tmp_path / "none"))[0]


def test_a_folder_that_others_can_write_to_is_found_above_the_command(found, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    tool = program(tmp_path / "open" / "tool")
    assert f"who may write to {tmp_path / 'open'}" in found(POLICY + f'hook = ["{tool}"]')[0]


def test_a_link_is_judged_by_where_it_leads(found, tmp_path):
    program(tmp_path / "real", 0o757)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert "chmod go-w" in found(POLICY + f'hook = ["{tmp_path / "link"}"]')[0]


def test_a_secret_that_others_can_read_is_refused_and_its_content_never_shown(found, tmp_path):
    token = tmp_path / "token"
    token.write_text("canary-in-a-file")
    token.chmod(0o640)
    said = found(f'[repositories.demo.credential]\ntoken = {{ file = "{token}" }}')
    assert "chmod 600" in said[0]
    assert "canary-in-a-file" not in said[0]
    token.chmod(0o600)
    assert found(f'[repositories.demo.credential]\ntoken = {{ file = "{token}" }}') == ()


def test_certificates_that_others_could_change_are_refused(found, tmp_path):
    bundle = tmp_path / "ca.pem"
    bundle.write_text("x")
    bundle.chmod(0o666)
    assert "chmod go-w" in found(f'ca_file = "{bundle}"\n')[0]
    assert "no file that can be read" in found(f'ca_file = "{tmp_path}"\n')[0]


@pytest.mark.root
def test_a_command_of_another_user_is_refused(found, tmp_path):
    tool = program(tmp_path / "tool")
    os.chown(tool, 12345, 12345)
    assert "can be changed by uid 12345" in found(POLICY + f'hook = ["{tool}"]')[0]


@pytest.mark.root
def test_a_folder_of_another_user_above_a_secret_is_let_be_and_above_a_command_is_not(found, tmp_path):
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", 12345, 12345)
    tool, token = program(tmp_path / "home" / "tool"), tmp_path / "home" / "token"
    token.write_text("x")
    token.chmod(0o600)
    assert found(f'[repositories.demo.credential]\ntoken = {{ file = "{token}" }}') == ()
    assert "uid 12345" in found(POLICY + f'hook = ["{tool}"]')[0]


def test_a_secret_in_a_folder_that_others_can_write_to_is_refused(found, tmp_path):
    (tmp_path / "open").mkdir()
    token = tmp_path / "open" / "token"
    token.write_text("x")
    token.chmod(0o600)
    (tmp_path / "open").chmod(0o777)
    assert "chmod go-w" in found(f'[repositories.demo.credential]\ntoken = {{ file = "{token}" }}')[0]
    (tmp_path / "open").chmod(0o1777)
    assert found(f'[repositories.demo.credential]\ntoken = {{ file = "{token}" }}') == ()
