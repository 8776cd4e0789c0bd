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

from broker.config import read_private
from broker.errors import ConfigError

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
    def lend(self, file: Path | None) -> Iterator[SecretStr | None]:
        """The credential for the length of one push; None where the repository names no file.

        Raises ConfigError if the file is absent, empty or readable by others.
        """
        if file is None:
            yield None
            return
        data = read_private(file, limit=16 * 1024).strip()
        if not data or not data.isascii() or not data.decode("ascii").isprintable():
            raise ConfigError(f"{file} does not hold one line of text", "write the forge's token into it, nothing else")
        yield SecretStr(data.decode("ascii"))
