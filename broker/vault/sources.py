"""Reads a secret from where the settings say that it lies: a file, the keyring, or what a command prints."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import keyring
from keyring.errors import KeyringError
from pydantic import SecretStr

from broker.config.credential import Source
from broker.config.loading import read_private
from broker.errors import ConfigError

_MAX_BYTES = 16 * 1024
_COMMAND_SECONDS = 20.0


def read(source: Source, *, lines: bool = False) -> SecretStr:
    """The secret: one line of printable ASCII, or with ``lines`` a text of many, such as a key in PEM.

    Raises ConfigError, which names the place and never what was found there.
    """
    place, data = _from(source)
    text = data.decode("ascii").strip() if data.isascii() else ""
    shown = text.replace("\n", "").replace("\r", "") if lines else text
    if not shown or not shown.isprintable():
        what = "plain text" if lines else "one line of plain text"
        raise ConfigError(f"{place} does not hold {what}", "put the secret there and nothing else")
    return SecretStr(text)


def _from(source: Source) -> tuple[str, bytes]:
    """Where it was read, in words, and what was there."""
    if source.file is not None:
        return str(source.file), _file(source.file)
    if source.keyring is not None:
        return f"the keyring's entry {source.keyring}", _keyring(source.keyring)
    command = source.command or ()
    return f"what {command[0]} prints", _command(command)


def _file(path: Path) -> bytes:
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if folder and path.parent == Path(folder):
        return _handed_over(path)
    return read_private(path, limit=_MAX_BYTES)


def _handed_over(path: Path) -> bytes:
    """A file that systemd's LoadCredential= put there: root's own, made readable for this one service by an ACL.

    Its mode therefore may show a group's right to read. Source: systemd.exec(5), Credentials.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        mend = f"the unit names it: LoadCredential={path.name}:/some/file"
        raise ConfigError(f"{path} cannot be read: {error.strerror}", mend) from None
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if info.st_uid not in {0, os.geteuid()} or info.st_mode & 0o007:
            raise ConfigError(f"{path} can be read by other users", "let systemd put it there: LoadCredential=")
        return _bounded(file.read(_MAX_BYTES + 1), str(path))


def _keyring(entry: str) -> bytes:
    service, _, user = entry.partition("/")
    try:
        found = keyring.get_password(service, user)
    except (KeyringError, OSError, RuntimeError) as error:
        mend = "unlock it for the broker's user, or name a file"
        raise ConfigError(f"the keyring cannot be asked for {entry} ({type(error).__name__})", mend) from None
    if found is None:
        raise ConfigError(f"the keyring has no entry {entry}", f"as the broker's user: keyring set {service} {user}")
    return _bounded(found.encode(), f"the keyring's entry {entry}")


def _command(command: tuple[str, ...]) -> bytes:
    # Its standard error is thrown away: what a password manager complains of may hold what it was asked for.
    with tempfile.TemporaryFile() as printed:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                timeout=_COMMAND_SECONDS,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            mend = "it must not ask anybody for anything"
            raise ConfigError(f"{command[0]} took longer than {_COMMAND_SECONDS:g} s", mend) from None
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be run: {error.strerror}", "correct credential.command") from None
        if done.returncode != 0:
            mend = "run it by hand as the broker's user with an empty environment: env -i ..."
            raise ConfigError(f"{command[0]} ended with {done.returncode}", mend)
        printed.seek(0)
        return _bounded(printed.read(_MAX_BYTES + 1), f"what {command[0]} prints")


def _bounded(data: bytes, place: str) -> bytes:
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{place} is longer than {_MAX_BYTES} bytes", "put the secret there and nothing else")
    return data
