"""Every place a secret may lie in, attacked: too open, too long, not text, slow, talkative."""

from __future__ import annotations

import os
import time
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringError

from broker.config.credential import Source
from broker.errors import ConfigError
from broker.vault import sources
from broker.vault.sources import read


class Drawer(KeyringBackend):
    """A keyring in memory."""

    priority = 1

    def __init__(self):
        super().__init__()
        self.kept = {}

    def get_password(self, service, username):
        if service == "locked":
            raise KeyringError("canary-in-the-words-of-the-error")
        return self.kept.get((service, username))

    def set_password(self, service, username, password):
        self.kept[service, username] = password


@pytest.fixture
def drawer():
    before = keyring.get_keyring()
    keyring.set_keyring(made := Drawer())
    yield made
    keyring.set_keyring(before)


def command(*words):
    return Source(command=words)


def refused(source, **more):
    """The words of the refusal, which must not hold what was found."""
    with pytest.raises(ConfigError) as caught:
        read(source, **more)
    seen, error = f"{caught.value} {caught.value.mend}", caught.value
    while error is not None:
        seen += repr(error)
        error = error.__cause__ or error.__context__
    assert "canary" not in seen
    return seen


def test_a_command_runs_without_shell_argument_or_environment(tmp_path):
    os.environ["SWARM_TEST_CANARY"] = "canary-of-the-environment"
    try:
        assert read(command("/usr/bin/printf", "%s", "$(id)")).get_secret_value() == "$(id)"
        refused(command("/usr/bin/env"))  # an empty environment prints nothing
        assert read(command("/bin/pwd")).get_secret_value() == "/"
    finally:
        del os.environ["SWARM_TEST_CANARY"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("printf canary; exit 3", "ended with 3"),
        ("echo canary >&2; exit 1", "ended with 1"),
        ("printf ''", "one line of plain text"),
        ("printf 'canary\\nmore'", "one line of plain text"),
        ("printf 'canary\\377'", "one line of plain text"),
        ("head -c 20000 /dev/zero | tr '\\0' c", "longer than"),
    ],
)
def test_a_command_that_does_not_print_one_secret_is_refused_without_being_quoted(script, said):
    assert said in refused(command("/bin/sh", "-c", script))


def test_a_command_that_prints_without_end_fills_neither_memory_nor_disk():
    begun = time.monotonic()
    assert "longer than" in refused(command("/usr/bin/yes", "canary"))
    assert time.monotonic() - begun < 5


def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path):
    script = f"sleep 300 & echo $! > {tmp_path}/child; wait"
    assert "took longer" in refused(command("/bin/sh", "-c", script), seconds=0.5)
    status = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/status")
    until = time.monotonic() + 5
    while status.exists() and "State:\tZ" not in status.read_text():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_program_that_is_not_there_is_named():
    assert "/nowhere/pass cannot be run" in refused(command("/nowhere/pass", "show", "token"))


def test_the_keyring_is_asked_and_its_troubles_are_told(drawer):
    drawer.set_password("forge", "bot", "canary-5")
    assert read(Source(keyring="forge/bot")).get_secret_value() == "canary-5"
    assert "no entry forge/other" in refused(Source(keyring="forge/other"))
    assert "KeyringError" in refused(Source(keyring="locked/bot"))


def test_a_machine_without_a_keyring_is_told_so():
    before = keyring.get_keyring()
    keyring.set_keyring(keyring.backends.fail.Keyring())
    try:
        assert "cannot be asked" in refused(Source(keyring="forge/bot"))
    finally:
        keyring.set_keyring(before)


def test_a_key_of_many_lines_is_read_as_it_is_and_a_token_of_many_is_not(tmp_path):
    file = tmp_path / "key.pem"
    file.write_text("-----BEGIN\nabc\n-----END\n")
    file.chmod(0o600)
    assert read(Source(file=file), lines=True).get_secret_value() == "-----BEGIN\nabc\n-----END"
    assert "one line" in refused(Source(file=file))


@pytest.fixture
def handed(tmp_path):
    """A folder like the one that systemd's LoadCredential= makes."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "token").write_text("canary-6\n")
    before = os.environ.get("CREDENTIALS_DIRECTORY")
    os.environ["CREDENTIALS_DIRECTORY"] = str(folder)
    yield folder / "token"
    os.environ.pop("CREDENTIALS_DIRECTORY")
    if before is not None:
        os.environ["CREDENTIALS_DIRECTORY"] = before


def test_what_systemd_handed_over_is_read_with_the_mode_that_its_acl_shows(handed):
    handed.chmod(0o440)
    assert read(Source(file=handed)).get_secret_value() == "canary-6"
    handed.chmod(0o444)
    assert "can be read by other users" in refused(Source(file=handed))


@pytest.mark.root
def test_what_another_user_put_there_is_refused(handed):
    handed.chmod(0o440)
    os.chown(handed, 4242, -1)
    os.seteuid(54321)
    try:
        refused(Source(file=handed))
    finally:
        os.seteuid(0)


def test_only_that_folder_is_read_so(handed, tmp_path):
    other = tmp_path / "token"
    other.write_text("canary-7")
    other.chmod(0o440)
    assert "can be read by other users" in refused(Source(file=other))
    link = handed.with_name("link")
    link.symlink_to(other)
    refused(Source(file=link))


def test_limits_are_what_the_documentation_says():
    assert (sources.MAX_BYTES, sources.COMMAND_SECONDS) == (16 * 1024, 20.0)
