"""Reads a secret from where the settings say that it lies: a file, the keyring, or what a command prints."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path

import keyring
from keyring.errors import KeyringError
from pydantic import SecretStr

from broker.config.credential import Source
from broker.config.ground import handed_over
from broker.config.loading import read_private
from broker.errors import ConfigError

MAX_BYTES = 16 * 1024
COMMAND_SECONDS = 20.0


def read(source: Source, *, lines: bool = False, seconds: float = COMMAND_SECONDS) -> SecretStr:
    """The secret: one line of printable ASCII, or with ``lines`` a text of many, such as a key in PEM.

    A command may take ``seconds``. Raises ConfigError, which names the place and never what was found there.
    """
    place, data = _from(source, seconds)
    text = data.decode("ascii").strip() if data.isascii() else ""
    shown = text.replace("\n", "").replace("\r", "") if lines else text
    if not shown or not shown.isprintable():
        what = "plain text" if lines else "one line of plain text"
        raise ConfigError(f"{place} does not hold {what}", "put the secret there and nothing else")
    return SecretStr(text)


def _from(source: Source, seconds: float) -> tuple[str, bytes]:
    """Where it was read, in words, and what was there."""
    if source.file is not None:
        return str(source.file), _file(source.file)
    if source.keyring is not None:
        return f"the keyring's entry {source.keyring}", _keyring(source.keyring)
    command = source.command or ()
    return f"what {command[0]} prints", _command(command, seconds)


def _file(path: Path) -> bytes:
    return _handed_over(path) if handed_over(path) else read_private(path, limit=MAX_BYTES, absent=_put(path))


def _put(path: Path) -> str:
    return f"put the secret there: install -m 600 -o {os.geteuid()} /dev/stdin {path}"


def _handed_over(path: Path) -> bytes:
    """A file that systemd put there (`broker.config.ground.handed_over`). Raises ConfigError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        mend = f"the unit names it: LoadCredential={path.name}:/some/file"
        raise ConfigError(f"{path} cannot be read: {error.strerror}", mend) from None
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if info.st_uid not in {0, os.geteuid()} or info.st_mode & 0o007:
            raise ConfigError(f"{path} can be read by other users", "let systemd put it there: LoadCredential=")
        return _bounded(file.read(MAX_BYTES + 1), str(path))


def _keyring(entry: str) -> bytes:
    service, _, user = entry.partition("/")
    trouble, found = "", None
    try:
        found = keyring.get_password(service, user)
    except (KeyringError, OSError, RuntimeError) as error:
        trouble = type(error).__name__  # its words stay out: nobody knows what a keyring says in them
    if trouble:
        mend = "unlock it for the broker's user, or name a file"
        raise ConfigError(f"the keyring cannot be asked for {entry} ({trouble})", mend)
    if found is None:
        raise ConfigError(f"the keyring has no entry {entry}", f"as the broker's user: keyring set {service} {user}")
    return _bounded(found.encode(), f"the keyring's entry {entry}")


def _command(command: tuple[str, ...], seconds: float) -> bytes:
    # Its standard error is thrown away: what a password manager complains of may hold what it was asked for.
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigError(f"{command[0]} cannot be run: {error.strerror}", "correct credential.command") from None
    with process:
        alarm = threading.Timer(seconds, _end, [process])
        alarm.start()
        try:
            printed = process.stdout.read(MAX_BYTES + 1) if process.stdout else b""
            if len(printed) > MAX_BYTES:
                _end(process)
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        finally:
            late = not alarm.is_alive()
            alarm.cancel()
            _end(process)  # before it is collected, while nobody else can have its number
        code = process.wait()
    _bounded(printed, f"what {command[0]} prints")
    if late:
        raise ConfigError(f"{command[0]} took longer than {seconds:g} s", "it must not ask anybody for anything")
    if code != 0:
        mend = "run it by hand as the broker's user with an empty environment: env -i ..."
        raise ConfigError(f"{command[0]} ended with {code}", mend)
    return printed


def _end(process: subprocess.Popen[bytes]) -> None:
    """It, and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _bounded(data: bytes, place: str) -> bytes:
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{place} is longer than {MAX_BYTES} bytes", "put the secret there and nothing else")
    return data
