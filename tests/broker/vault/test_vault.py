"""The secret's only reader."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from broker.config.credential import Credential
from broker.errors import ConfigError
from broker.scope import Scope
from broker.vault.redaction import Redactor
from broker.vault.vault import Vault


def lent_from(file, state):
    credential = Credential.model_validate({"token": {"file": str(file)}})
    return Vault(state, Redactor()).lender("demo", credential)(Scope.READ)


def test_the_key_is_made_once_for_the_owner_alone(tmp_path):
    key = Vault(tmp_path, Redactor()).signing_key()
    assert (tmp_path / "signing.key").stat().st_mode & 0o777 == 0o600
    assert Vault(tmp_path, Redactor()).signing_key() == key
    assert len(key.get_secret_value()) == 32


def test_a_key_that_others_can_read_is_refused(tmp_path):
    Vault(tmp_path, Redactor()).signing_key()
    (tmp_path / "signing.key").chmod(0o640)
    with pytest.raises(ConfigError, match="can be read by other users"):
        Vault(tmp_path, Redactor()).signing_key()


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_damaged_key_is_refused(tmp_path, content):
    (tmp_path / "signing.key").write_bytes(content)
    (tmp_path / "signing.key").chmod(0o600)
    with pytest.raises(ConfigError, match="not a signing key"):
        Vault(tmp_path, Redactor()).signing_key()


def test_a_planted_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"k" * 32)
    (tmp_path / "signing.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        Vault(tmp_path, Redactor()).signing_key()


def test_the_credential_is_lent_and_never_shown(tmp_path):
    file = tmp_path / "token"
    file.write_text("canary-9\n")
    file.chmod(0o600)
    with lent_from(file, tmp_path) as lent:
        assert lent.get_secret_value() == "canary-9"
        assert "canary-9" not in f"{lent} {lent!r} {vars(Vault(tmp_path, Redactor()))}"


def test_no_file_lends_nothing(tmp_path):
    with Vault(tmp_path, Redactor()).lender("demo", None)(Scope.READ) as lent:
        assert lent is None


@pytest.mark.parametrize(("content", "mode"), [("", 0o600), (" \n", 0o600), ("canary-8", 0o644), ("x" * 20_000, 0o600)])
def test_a_doubtful_credential_is_refused_without_being_quoted(tmp_path, content, mode):
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(ConfigError) as caught, lent_from(file, tmp_path):
        pass
    assert "canary-8" not in f"{caught.value} {caught.value.mend}"


def test_a_credential_that_is_not_text_is_refused_without_being_quoted(tmp_path):
    file = tmp_path / "token"
    file.write_bytes(b"canary\xff\xfe")
    file.chmod(0o600)
    with pytest.raises(ConfigError) as caught, lent_from(file, tmp_path):
        pass
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None  # a decoding error would carry the bytes along


_CHILD = """
import resource
from broker.vault.hardening import harden_process
harden_process()
print(open("/proc/self/status").read().count("x") >= 0, resource.getrlimit(resource.RLIMIT_CORE), flush=True)
input()
"""


def test_a_hardened_process_leaves_no_core():
    done = subprocess.run([sys.executable, "-c", _CHILD], input="\n", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True (0, 0)"


@pytest.mark.root
def test_the_own_users_other_processes_cannot_read_a_hardened_process(python_of_all):
    drop = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "--no-new-privs"]
    child = subprocess.Popen(
        [*drop, python_of_all, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, "CANARY": "canary-env-1"},
    )
    with child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            for secret in ("environ", "mem", "maps"):
                peek = subprocess.run([*drop, "cat", f"/proc/{child.pid}/{secret}"], capture_output=True, check=False)
                assert peek.returncode != 0
                assert b"canary-env-1" not in peek.stdout
        finally:
            child.kill()


def test_a_plain_token_is_named_by_its_hash_once_for_each_use_and_anew_when_it_changes(tmp_path):
    file = tmp_path / "token"
    told = []
    vault = Vault(tmp_path, Redactor(), lambda event, **fields: told.append((event, fields)))
    lend = vault.lender("demo", Credential.model_validate({"token": {"file": str(file)}}))
    for value, scope in (
        ("canary-1", Scope.READ),
        ("canary-1", Scope.READ),
        ("canary-1", Scope.PUSH),
        ("canary-2", Scope.READ),
    ):
        file.write_text(value)
        file.chmod(0o600)
        with lend(scope):
            pass
    assert [(event, fields["scope"], len(fields["hash"])) for event, fields in told] == [
        ("token-lent", "read", 12),
        ("token-lent", "push", 12),
        ("token-lent", "read", 12),
    ]
    assert told[0][1]["hash"] != told[2][1]["hash"]
    assert "canary" not in str(told)


def test_a_secret_is_read_for_each_use_so_that_a_new_one_needs_no_restart(tmp_path):
    file = tmp_path / "token"
    lend = Vault(tmp_path, Redactor()).lender("demo", Credential.model_validate({"token": {"file": str(file)}}))
    for value in ("canary-old", "canary-new"):
        file.write_text(value)
        file.chmod(0o600)
        with lend(Scope.READ) as lent:
            assert lent.get_secret_value() == value


def test_an_app_where_no_apps_are_is_refused_at_start(tmp_path):
    app = Credential.model_validate({"app": {"id": "1", "key": {"file": "/nowhere"}}})
    with pytest.raises(ConfigError, match="an App is for GitHub alone"):
        Vault(tmp_path, Redactor()).lender("demo", app)
