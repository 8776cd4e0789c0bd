"""The only reader of a secret: a forge's credential, and the key that signs capabilities. Nothing here is logged."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretBytes, SecretStr

from broker.config.credential import Credential
from broker.config.loading import read_private
from broker.errors import ConfigError
from broker.scope import Scope
from broker.vault.redaction import Redactor
from broker.vault.sources import read

_KEY_BYTES = 32


class Vault:
    """Keeps where secrets lie; reads them when they are needed, and tells the redactor what to strike."""

    def __init__(self, state: Path, redactor: Redactor) -> None:
        self._key_file = state / "signing.key"
        self._redactor = redactor

    def signing_key(self) -> SecretBytes:
        """The key of the capabilities, made at first start with mode 0600. Raises ConfigError if others can read it."""
        try:
            handle = os.open(self._key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(handle)
        key = read_private(self._key_file)
        if len(key) != _KEY_BYTES:
            raise ConfigError(
                f"{self._key_file} is not a signing key", "remove it; all capabilities must be granted anew"
            )
        return SecretBytes(key)

    @contextmanager
    def lend(self, credential: Credential | None, _scope: Scope) -> Iterator[SecretStr | None]:
        """The credential for the length of one operation; None where the repository names none.

        Raises ConfigError if it cannot be had, or can be read by others.
        """
        if credential is None or credential.token is None:
            yield None
            return
        secret = read(credential.token)
        self._redactor.learn(secret)
        yield secret
