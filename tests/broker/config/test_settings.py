"""broker.toml: what is refused, and in which words."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.loading import load, parse, read_private
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
        ('[repositories.demo.credential]\ntokn = { file = "/t" }', "did you mean token?"),
        ('[repositories.demo.credential.app]\nidd = "1"', "did you mean id?"),
        ('[webhook]\nlissen = "x:1"', "did you mean listen?"),
        ("[repositories.demo.follow]\nmax_round = 1", "did you mean max_rounds?"),
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
        (('forge = "local"', 'forge = "github"'), "a repository on github needs url, and no path"),
        (("[repositories.demo]", "[repositories.Demo]"), "repositories.Demo"),
        (('path = "/srv/demo.git"', 'path = "/srv/demo.git"\nbranch_prefix = "x"'), "ended by a slash"),
        (('path = "/srv/demo.git"', 'path = "/srv/demo.git"\nbranch_prefix = "../"'), "ended by a slash"),
        (("coordinator = [4242]", "coordinator = []"), "roles.coordinator"),
        (("[roles]", "[roles"), "is not TOML"),
        ((GOOD, GOOD + '[repositories.demo.policy]\nhours = ["9-17"]'), "is no time span"),
        ((GOOD, GOOD + '[repositories.demo.policy]\ntimezone = "Mars/Base"'), "no time zone 'Mars/Base'"),
        ((GOOD, GOOD + '[repositories.demo.policy]\nhook = ["judge"]'), "absolute path of a program"),
        ((GOOD, GOOD + '[repositories.demo.policy]\nprotected = "maybe"'), "repositories.demo.policy.protected"),
        ((GOOD, GOOD + '[repositories.demo.policy]\nlink_hosts = ["HTTPS://x/"]'), "link_hosts"),
        ((GOOD, GOOD + '[repositories.demo.policy]\nallowed_paths = [""]'), "allowed_paths"),
        ((GOOD, GOOD + "[repositories.demo.credential]"), "exactly one of token, app"),
        ((GOOD, GOOD + '[repositories.demo.credential]\ntoken = { file = "t" }'), "must be an absolute path"),
        ((GOOD, GOOD + '[repositories.demo.credential]\ntoken = { command = ["gpg"] }'), "absolute path of a program"),
        ((GOOD, GOOD + '[repositories.demo.credential]\ntoken = { file = "/t", keyring = "a/b" }'), "exactly one of"),
        (
            (GOOD, GOOD + '[repositories.demo.credential]\napp = { id = "1", key = { file = "/k" } }'),
            "a GitHub App is for github",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_place(write, change, words):
    assert words in complaint(write(GOOD.replace(*change)))


def test_everything_wrong_is_said_at_once(write):
    said = complaint(write(GOOD.replace("/srv", "srv").replace('"root"', '"nobody-of-this-name"')))
    assert "path" in said
    assert "nobody-of-this-name" in said


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://git.example.org/a/b", "must be an https address"),
        ("ssh://git@example.org/a/b", "must be an https address"),
        ("https://token@example.org/a/b", "no user, password"),
        ("https://user:token@example.org/a/b", "no user, password"),
        ("https://example.org/a/b?x=1", "no user, password, query"),
        ("https://example.org/a/b#x", "no user, password, query or fragment"),
        ("file:///srv/git", "must be an https address"),
        ("http://127.0.0.1.evil.example/a/b", "must be an https address"),
    ],
)
def test_an_address_that_could_lead_elsewhere_or_hold_a_secret_is_refused_without_being_shown(write, url, words):
    text = GOOD.replace('forge = "local"\npath = "/srv/demo.git"', f'forge = "gitea"\nurl = "{url}"')
    said = complaint(write(text))
    assert words in said
    assert "token@" not in said


keys = st.sampled_from(
    ["socket", "state", "roles", "person", "repositories", "demo", "forge", "policy", "credential", "token", "app",
     "file", "hours", "hook", "webhook", "canary", "intake", "follow", "max_files", "protected_paths", "x", "0"]
)  # fmt: skip
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8),
    st.sampled_from(["local", "github", "/x", "https://h/a", "block"]), st.lists(st.text(max_size=4), max_size=2),
)  # fmt: skip
tables = st.recursive(leaves, lambda inner: st.dictionaries(keys, inner, max_size=5) | st.lists(inner, max_size=2))


@given(st.dictionaries(keys, tables, max_size=6))
def test_whatever_stands_in_the_file_ends_in_settings_or_in_words(raw):
    text = "".join(f"{key} = {inline(value)}\n" for key, value in raw.items() if value is not None)
    try:
        parse(Path("broker.toml"), text.encode())
    except ConfigError as error:
        told = str(error)
    else:
        told = "broker.toml is good"
    assert told.startswith("broker.toml is ")


def inline(value):
    """A value in one line of TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {inline(one)}" for key, one in value.items() if one is not None) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(one) for one in value if one is not None) + "]"
    return json.dumps(value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('state = "/var/b"', 'state = "/var/b"\nperson_socket = "/run/b/b.sock"', "must be two"),
        ("/run/b/b.sock", f"/run/{'b' * 110}", "107 bytes"),
        (
            'forge = "local"\npath = "/srv/demo.git"',
            'forge = "github"\nurl = "https://github.com/a/b/pulls"\ncredential = { token = { file = "/t" } }',
            "no address of a repository",
        ),
    ],
)
def test_what_serve_could_only_stumble_over_is_refused_at_load(write, old, new, said):
    assert said in complaint(write(GOOD.replace(old, new)))


def test_an_absent_or_odd_secret_is_mended_where_it_belongs(tmp_path):
    for place in (tmp_path / "token", tmp_path):
        with pytest.raises(ConfigError) as caught:
            read_private(place, absent="put it there")
        assert caught.value.mend == "put it there"


@pytest.mark.parametrize(
    ("value", "said"),
    [('"ghp_secret"', "say where it lies"), ('{ command = "/bin/echo x" }', "must be a list of words")],
)
def test_a_secret_that_was_put_into_the_settings_is_told_and_not_quoted(write, value, said):
    remote = f'forge = "gitea"\nurl = "https://git.example/a/b"\ncredential = {{ token = {value} }}'
    words = complaint(write(GOOD.replace('forge = "local"\npath = "/srv/demo.git"', remote)))
    assert said in words
    assert "ghp_secret" not in words
