"""broker.toml: what is refused, and in which words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.config.loading import load, read_private
from broker.config.settings import BrokerConfig
from broker.config.showing import fields, obstacles, warnings
from broker.config.template import render
from broker.errors import ConfigError

GOOD = """
socket = "/run/b/b.sock"
state = "/var/b"
[roles]
person = ["root"]
coordinator = [4242]
[repositories.demo]
forge = "local"
path = "/srv/demo.git"
"""


@pytest.fixture
def write(tmp_path):
    def _write(text, mode=0o600):
        path = tmp_path / "broker.toml"
        path.write_text(text)
        path.chmod(mode)
        return path

    return _write


def complaint(path):
    with pytest.raises(ConfigError) as caught:
        load(path)
    return f"{caught.value} | {caught.value.mend}"


def test_a_good_file_loads_with_safe_defaults(write):
    loaded = load(write(GOOD))
    policy = loaded.repositories["demo"].policy
    assert loaded.roles.person == (0,)
    assert loaded.repositories["demo"].branch_prefix == "swarm/"
    assert (policy.allow_symlinks, policy.allow_submodules, policy.allow_executables) == (False, False, False)
    assert policy.secrets == policy.hidden_text == "block"
    assert {".github", "CODEOWNERS", ".gitmodules", "AGENTS.md"} <= set(policy.protected_paths)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o602])
def test_a_file_that_others_can_reach_is_refused_with_the_mend(write, mode):
    path = write(GOOD, mode)
    assert f"chmod 600 {path}" in complaint(path)


def test_a_link_is_refused(write, tmp_path):
    write(GOOD)
    (tmp_path / "link.toml").symlink_to(tmp_path / "broker.toml")
    assert "plain file, not a link" in complaint(tmp_path / "link.toml")


def test_a_fifo_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(ConfigError, match="not a plain file"):
        read_private(tmp_path / "fifo")


def test_a_missing_file_says_how_to_write_one(tmp_path):
    assert "swarm-broker init" in complaint(tmp_path / "none.toml")


@pytest.mark.root
def test_a_file_of_another_user_is_refused(write):
    path = write(GOOD)
    os.chown(path, 12345, 12345)
    assert "belongs to uid 12345" in complaint(path)


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("sokcet = 1", "did you mean socket?"),
        ("[repositories.demo.polcy]\nmax_files = 1", "did you mean policy?"),
        ("[repositories.demo.policy]\nmax_fils = 1", "did you mean max_files?"),
        ("[identity]\nnmae = 'x'", "did you mean name?"),
        ("[repositories.demo.policy]\nzzz = 1", "repositories.demo.policy.zzz: unknown key"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_right_one(write, line, near):
    text = line + GOOD if "[" not in line else GOOD + line
    assert near in complaint(write(text))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("/srv/demo.git", "demo.git"), "repositories.demo.path: Value error, must be an absolute path"),
        (('"root"', '"nobody-of-this-name"'), "there is no user 'nobody-of-this-name'"),
        (('forge = "local"', 'forge = "github"'), "repositories.demo.forge"),
        (("[repositories.demo]", "[repositories.Demo]"), "repositories.Demo"),
        (('path = "/srv/demo.git"', 'path = "/srv/demo.git"\nbranch_prefix = "x"'), "ended by a slash"),
        (('path = "/srv/demo.git"', 'path = "/srv/demo.git"\nbranch_prefix = "../"'), "ended by a slash"),
        (("coordinator = [4242]", "coordinator = []"), "roles.coordinator"),
        (("[roles]", "[roles"), "is not TOML"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(write, change, words):
    assert words in complaint(write(GOOD.replace(*change)))


def test_everything_wrong_is_said_at_once(write):
    said = complaint(write(GOOD.replace("/srv", "srv").replace('"root"', '"nobody-of-this-name"')))
    assert "path" in said
    assert "nobody-of-this-name" in said


def test_one_uid_in_both_roles_is_warned_of(write):
    loaded = load(write(GOOD.replace("4242", "0")))
    assert any("both person and coordinator" in line for line in warnings(loaded, uid=77))
    assert any("broker's own uid" in line for line in warnings(loaded, uid=0))
    assert warnings(load(write(GOOD)), uid=77) == ()


def test_every_key_is_explained():
    rows = fields()
    assert len(rows) > 25
    assert all(meaning for _name, _default, meaning in rows)
    assert ("repositories.NAME.policy.max_files", "100") in {(name, default) for name, default, _ in rows}


def test_the_template_loads_and_shows_every_key(write):
    values = {"person": [0], "coordinator": [4242]}
    text = render(values, "demo")
    loaded = load(write(text))
    assert loaded == BrokerConfig.model_validate(loaded.model_dump())
    for name, _default, _meaning in fields():
        assert f"{name.rsplit('.', 1)[-1]} = " in text


def test_the_templates_commented_defaults_are_the_defaults(write):
    values = {"person": [0], "coordinator": [4242]}
    text = render(values, "demo")
    live = "\n".join(
        line[2:] if line.startswith("# ") and (" = " in line or line.startswith(("#   ", "# ]"))) else line
        for line in text.splitlines()[3:]
        if " = ..." not in line
    )
    assert load(write(live)) == load(write(text))


def test_the_example_is_the_template_and_loads(write):
    example = (Path(__file__).parents[2] / "examples" / "broker.toml").read_text()
    assert example == render()
    assert load(write(example.replace('["swarm"]', "[4242]"))).repositories["demo"].path == Path("/srv/git/demo.git")


def test_a_repository_that_serve_would_refuse_is_named_with_its_mend(write, tmp_path):
    there = tmp_path / "there.git"
    text = GOOD.replace("/srv/demo.git", str(there))
    assert "git init --bare" in obstacles(load(write(text)), os.geteuid())[0]
    there.mkdir()
    (there / "HEAD").write_text("ref: refs/heads/main")
    assert obstacles(load(write(text)), os.geteuid()) == ()
    assert "chown -R 77" in obstacles(load(write(text)), 77)[0]
