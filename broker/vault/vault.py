"""The only reader of a secret: a forge's credential, and the key that signs capabilities. Nothing here is logged."""

from __future__ import annotations

import ctypes
import os
import resource
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretBytes, SecretStr

from broker.config.credential import Credential
from broker.config.loading import read_private
from broker.errors import ConfigError
from broker.scope import Scope

_PR_SET_DUMPABLE, _PR_GET_DUMPABLE = 4, 3
_KEY_BYTES = 32


def harden_process() -> None:
    """Makes this process leave no core and refuse ptrace and /proc/PID/{mem,environ} to its own user's other processes.

    Raises ConfigError where the kernel does not do it: better no broker than an open one.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 or libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise ConfigError("the kernel did not make this process undumpable", "run on Linux")


class Vault:
    """Keeps where secrets lie; reads them when they are needed."""

    def __init__(self, state: Path) -> None:
        self._key_file = state / "signing.key"

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
    def lend(self, credential: Credential | None, scope: Scope) -> Iterator[SecretStr | None]:  # noqa: ARG002
        """The credential for the length of one operation; None where the repository names none.

        Raises ConfigError if it cannot be had, or can be read by others.
        """
        if credential is None:
            yield None
            return
        if credential.token is None or credential.token.file is None:
            raise ConfigError("this credential's kind is not supported yet", "name a file")
        file = credential.token.file
        data = read_private(file, limit=16 * 1024).strip()
        if not data or not data.isascii() or not data.decode("ascii").isprintable():
            raise ConfigError(f"{file} does not hold one line of text", "write the forge's token into it, nothing else")
        yield SecretStr(data.decode("ascii"))
