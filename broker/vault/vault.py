"""The only reader of a secret: a forge's credential, and the key that signs capabilities. Nothing here is logged."""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import SecretBytes, SecretStr

from broker.config.credential import Credential, Source
from broker.config.loading import read_private
from broker.errors import ConfigError
from broker.scope import Lend, Scope
from broker.vault.app import Minter, Target
from broker.vault.redaction import Redactor
from broker.vault.sources import read

_KEY_BYTES = 32


def _unrecorded(_event: str, **_fields: str) -> None:
    """A vault without a log."""


class Vault:
    """Keeps where secrets lie; reads them when they are needed, and tells the redactor what to strike.

    ``record`` writes a line of the log: an event and its fields. Of a token it is told the hash alone.
    """

    def __init__(self, state: Path, redactor: Redactor, record: Callable[..., object] = _unrecorded) -> None:
        self._key_file = state / "signing.key"
        self._provenance_file = state / "provenance.key"
        self._redactor = redactor
        self._record = record
        self._seen: set[tuple[str, Scope, str]] = set()

    def signing_key(self) -> SecretBytes:
        """The key of the capabilities, made at first start with mode 0600. Raises ConfigError if others can read it."""
        key = _kept(self._key_file, functools.partial(secrets.token_bytes, _KEY_BYTES))
        if len(key) != _KEY_BYTES:
            raise ConfigError(
                f"{self._key_file} is not a signing key", "remove it; all capabilities must be granted anew"
            )
        return SecretBytes(key)

    def provenance_key(self) -> SecretBytes:
        """The Ed25519 key (PEM, PKCS 8) that statements are signed with, made and kept like the other one."""
        return SecretBytes(_kept(self._provenance_file, _new_pem))

    def lender(self, repository: str, credential: Credential | None, target: Target | None = None) -> Lend:
        """Lends one repository's credential; ``target`` is what an App's tokens are for.

        The operation gets the token for as long as it lasts, and one that an App minted is revoked at its end. Raises
        ConfigError if the credential cannot be had or can be read by others, ForgeError if the forge cannot be asked.
        """
        if credential is None:
            return _nothing
        if credential.token is not None:
            return functools.partial(self._plain, repository, credential.token)
        if credential.app is None or target is None:
            raise ConfigError(f"repositories.{repository}: an App is for GitHub alone", "name a token")
        return functools.partial(self._minted, repository, Minter(credential.app, target))

    @contextmanager
    def _plain(self, repository: str, source: Source, scope: Scope) -> Iterator[SecretStr]:
        secret = read(source)
        self._redactor.learn(secret)
        known = repository, scope, fingerprint(secret)
        if known not in self._seen:  # it is the same token every time: once per start, scope and token is enough
            self._seen.add(known)
            self._record("token-lent", repository=repository, scope=scope.value, hash=known[2], minted="no")
        yield secret

    @contextmanager
    def _minted(self, repository: str, minter: Minter, scope: Scope) -> Iterator[SecretStr]:
        minted = minter.mint(scope)
        self._redactor.learn(minted.token)
        told = {"repository": repository, "scope": scope.value, "hash": fingerprint(minted.token)}
        self._record("token-lent", **told, minted="yes")
        try:
            yield minted.token
        finally:
            revoked = minter.revoke(minted)
            self._record("token-revoked" if revoked else "token-not-revoked", **told)

    def secret(self, source: Source) -> SecretStr:
        """Another secret that the settings name, such as the webhook's. Raises ConfigError."""
        secret = read(source)
        self._redactor.learn(secret)
        return secret


def fingerprint(secret: SecretStr) -> str:
    """What a log may tell of a secret: twelve hexadecimal digits of its SHA-256."""
    return hashlib.sha256(secret.get_secret_value().encode()).hexdigest()[:12]


def _kept(path: Path, make: Callable[[], bytes]) -> bytes:
    """A key of the broker's own: made once, whole or not at all, and never replaced."""
    if not path.exists():
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(make())
            file.flush()
            os.fsync(handle)
        with suppress(FileExistsError):
            os.link(draft, path)  # refuses to replace what another has made meanwhile
        draft.unlink()
    return read_private(path)


def _new_pem() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@contextmanager
def _nothing(_scope: Scope) -> Iterator[None]:
    yield None
