"""Tokens of a GitHub App, minted and revoked over real HTTP, judged by the App's public key."""

from __future__ import annotations

import base64
import threading
import time

import pytest

from broker.config.credential import Credential
from broker.errors import ConfigError, ForgeError
from broker.scope import Scope
from broker.vault.app import PERMISSIONS, Target
from broker.vault.redaction import Redactor
from broker.vault.vault import Vault, fingerprint
from tests.broker.vault.app_stand_in import AppForge, key_pair, serving


@pytest.fixture(scope="module")
def keys():
    return key_pair()


@pytest.fixture(scope="module")
def served(keys):
    with serving(AppForge(keys[1])) as running:
        yield running


@pytest.fixture
def forge(served):
    served.reset()
    return served


@pytest.fixture
def lender(tmp_path, keys, forge):
    """Makes a Lend for the App; what the log is told goes to its ``told``."""

    def make(redactor=None, *, installation=None, name="web", private=keys[0], api=None):
        file = tmp_path / "app.pem"
        file.write_bytes(private)
        file.chmod(0o600)
        app = {"id": "12345", "key": {"file": str(file)}, "installation": installation}
        vault = Vault(tmp_path, redactor or Redactor(), lambda event, **fields: make.told.append((event, fields)))
        credential = Credential.model_validate({"app": app})
        return vault.lender("demo", credential, Target(api or forge.url, "team", name))

    make.told = []
    return make


@pytest.mark.parametrize("scope", list(Scope))
def test_a_token_is_for_this_repository_with_exactly_the_scope_and_revoked_at_the_end(lender, forge, scope):
    lend = lender()
    with lend(scope) as token:
        asked = forge.tokens[token.get_secret_value()]
        assert asked == {"repositories": ["web"], "permissions": dict(PERMISSIONS[scope])}
    assert forge.tokens == {}
    told = {"repository": "demo", "scope": scope.value, "hash": fingerprint(token)}
    assert lender.told == [("token-lent", {**told, "minted": "yes"}), ("token-revoked", told)]
    assert token.get_secret_value() not in f"{lender.told} {token!r}"


def test_no_scope_can_change_workflows_or_administer():
    writes = {name for rights in PERMISSIONS.values() for name, level in rights.items() if level == "write"}
    assert writes == {"contents", "pull_requests", "issues", "statuses"}
    assert not {level for rights in PERMISSIONS.values() for level in rights.values()} - {"read", "write"}


def test_a_token_is_minted_anew_for_each_operation_so_none_can_expire_on_the_way(lender, forge):
    """superset #6576: a token of one hour had expired before the push."""
    lend = lender()
    with lend(Scope.READ) as first, lend(Scope.PUSH) as second:
        assert first != second
    assert forge.calls.count("access_tokens") == 2
    assert forge.calls.count("installation") == 1


def test_an_operation_that_fails_gives_its_token_back_too(lender, forge):
    with pytest.raises(RuntimeError), lender()(Scope.PUSH):
        raise RuntimeError("the push failed")
    assert forge.tokens == {}


def test_a_failed_revocation_is_logged_and_not_fatal(lender, forge):
    forge.revoking = 500
    with lender()(Scope.READ):
        pass
    assert [event for event, _ in lender.told] == ["token-lent", "token-not-revoked"]


@pytest.mark.parametrize("ahead", [-4000, -90, 90, 4000])
def test_a_clock_that_is_wrong_is_made_up_for_by_the_forge_s_own(lender, forge, ahead):
    forge.ahead = ahead
    lend = lender()
    with lend(Scope.READ):
        pass
    calls = len(forge.calls)
    with lend(Scope.READ):
        pass
    assert len(forge.calls) - calls == 2  # learnt once: no second try


def test_a_token_that_is_expired_already_is_refused_and_revoked(lender, forge):
    forge.life = 5
    with pytest.raises(ForgeError, match="expired already"), lender()(Scope.READ):
        pass
    assert forge.tokens == {}


@pytest.mark.parametrize(
    "more",
    [
        {"permissions": {"contents": "write", "workflows": "write"}},
        {"permissions": {"contents": "write", "administration": "admin"}},
        {"repositories": [{"name": "web"}, {"name": "secrets"}]},
        {"repository_selection": "all"},
    ],
)
def test_a_token_that_may_do_more_than_was_asked_for_is_revoked_and_not_lent(lender, forge, more):
    forge.more = more
    with pytest.raises(ConfigError, match="more than was asked"), lender()(Scope.PUSH):
        pass
    assert forge.tokens == {}
    assert lender.told == []


@pytest.mark.parametrize(
    "more", [{"token": None}, {"token": 5}, {"token": "a\nb" * 9}, {"token": "x" * 5000}, {"expires_at": "never"}]
)
def test_an_answer_that_holds_no_token_is_none(lender, forge, more):
    forge.more = more
    with pytest.raises(ForgeError), lender()(Scope.READ):
        pass


def test_a_permission_that_the_app_lacks_is_named_with_the_mend(lender, forge):
    del forge.granted["checks"]
    with pytest.raises(ConfigError) as caught, lender()(Scope.READ):
        pass
    assert "422" in str(caught.value)
    assert "checks: read" in caught.value.mend


def test_an_app_that_is_not_installed_there_is_told(lender):
    with pytest.raises(ConfigError, match="404") as caught, lender(name="other")(Scope.READ):
        pass
    assert "install the App on team/other" in caught.value.mend


def test_an_app_that_was_installed_anew_is_found_again(lender, forge):
    lend = lender()
    with lend(Scope.READ):
        pass
    forge.installation = 78
    with lend(Scope.READ):
        pass
    assert forge.calls.count("installation") == 2


def test_a_given_installation_is_not_looked_up(lender, forge):
    with lender(installation=77)(Scope.READ):
        pass
    assert "installation" not in forge.calls


def test_the_key_of_another_app_is_refused_with_words_and_without_the_key(lender, keys):
    other = key_pair()[0]
    with pytest.raises(ConfigError, match="401") as caught, lender(private=other)(Scope.READ):
        pass
    assert other.decode()[40:80] not in f"{caught.value} {caught.value.mend}"


@pytest.mark.parametrize(
    "private", [b"-----BEGIN RSA PRIVATE KEY-----\ncanary-77\n-----END RSA PRIVATE KEY-----\n", b"canary-77"]
)
def test_a_key_that_is_none_is_refused_without_being_quoted(lender, private):
    with pytest.raises(ConfigError) as caught, lender(private=private)(Scope.READ):
        pass
    seen, error = "", caught.value
    while error is not None:
        seen += f"{error!r} {vars(error)}"
        error = error.__cause__ or error.__context__
    assert "canary-77" not in seen


def test_a_redirect_is_not_followed(lender, forge):
    """The JWT is worth every repository of the App: it goes to the host that the settings name and to no other."""
    with serving(AppForge(forge.public)) as other:
        forge.redirect = f"{other.url}/repos/team/web/installation"
        with pytest.raises(ForgeError, match="302"), lender()(Scope.READ):
            pass
        assert other.calls == []


def test_a_forge_that_is_not_there_is_told_by_its_name_alone(lender):
    with pytest.raises(ForgeError, match="cannot be asked for a token"), lender(api="http://127.0.0.1:9")(Scope.READ):
        pass


def test_tokens_for_many_threads_are_apart(lender, forge):
    lend, seen = lender(), []
    forge.delay = 0.05

    def one():
        with lend(Scope.READ) as token:
            seen.append(token.get_secret_value())
            time.sleep(0.02)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 6
    assert forge.tokens == {}


def test_a_minted_token_is_struck_from_any_text_even_after_its_revocation(lender):
    redactor = Redactor()
    with lender(redactor)(Scope.PUSH) as token:
        pass
    value = token.get_secret_value()
    header = base64.b64encode(f"x-access-token:{value}".encode()).decode()
    said = redactor(f"fatal: unable to access https://x:{value}@github.com with Authorization: Basic {header}")
    assert value not in said
    assert header[24:40] not in said
