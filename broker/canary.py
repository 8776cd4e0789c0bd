"""The canary: a fake credential that is planted where an intruder would look, and an alarm when it is seen again.

Nothing that works honestly ever reads it, so that whoever brings it along was where nobody has any business to be.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import string
import subprocess
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from broker.config.canary import Canary as Settings
from broker.config.loading import read_private
from broker.config.repository import ForgeKind
from broker.disguises import disguises
from broker.errors import ConfigError

_LETTERS = string.ascii_letters + string.digits
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RECORDED = 200
_COMMAND_SECONDS = 30.0
_QUIET_SECONDS = 60.0
_SPACE = b" \t\r\n\0"
_KEPT = "canary"


@dataclass(frozen=True)
class Planted:
    """Where a canary lies and how the log names it."""

    file: Path
    hash: str


class Canary:
    """Looks for the planted credential in whatever comes in, in plain sight or encoded. Used from several threads."""

    def __init__(
        self,
        value: str,
        settings: Settings,
        record: Callable[..., object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hash = _hash(value)
        self._needles = tuple({form.lower().encode() for form in disguises(value)})
        self._settings = settings
        self._record = record
        self._clock = clock
        self._stop: Callable[[str], object] | None = None
        self._lock = threading.Lock()
        self._seen = 0
        self._quiet_until = 0.0

    def stop_by(self, stop: Callable[[str], object]) -> None:
        """What stops everything, given the reason; used where the settings want it."""
        self._stop = stop if self._settings.stop else None

    def __call__(self, where: str, text: bytes) -> bool:
        """Whether it is in there; if so, after the alarm."""
        if not self.is_in(text):
            return False
        self._alarm(where)
        return True

    def is_in(self, text: bytes) -> bool:
        """Whether it is in there: as it is, encoded, in other case, spaced out or in UTF-16."""
        lowered = text.lower()
        views = {lowered, lowered.translate(None, _SPACE)}
        if b"%" in lowered:
            views.add(unquote_to_bytes(lowered))
        return any(needle in view for view in views for needle in self._needles)

    def _alarm(self, where: str) -> None:
        with self._lock:
            self._seen += 1
            number, loud = self._seen, self._clock() >= self._quiet_until
            if loud:
                self._quiet_until = self._clock() + _QUIET_SECONDS
        if number <= _RECORDED:  # whoever holds it could fill the disk with it
            self._record("canary-seen", where=where, hash=self._hash, number=number)
        if self._stop is not None:
            self._stop(f"the planted credential was seen in {where}")
        if loud and self._settings.command:
            threading.Thread(target=self._call, args=(where,), daemon=True).start()

    def _call(self, where: str) -> None:
        program = self._settings.command[0]
        try:
            done = subprocess.run(
                [*self._settings.command, where],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
                cwd="/",
                timeout=_COMMAND_SECONDS,
                check=False,
                start_new_session=True,
            )
            outcome = str(done.returncode)
        except (OSError, subprocess.TimeoutExpired) as error:
            outcome = type(error).__name__
        self._record("canary-command", program=program, outcome=outcome)


def watch(settings: Settings, state: Path, record: Callable[..., object]) -> Canary:
    """The watch for the canary that was planted. Raises ConfigError if none was."""
    kept = state / _KEPT
    if not kept.exists():
        raise ConfigError("[canary] names a file, but nothing was planted", "swarm-broker canary plant")
    return Canary(read_private(kept).decode("ascii", "replace").strip(), settings, record)


def plant(settings: Settings, state: Path, shape: ForgeKind) -> Planted:
    """Makes a fake credential, puts it where the settings say and lets the broker know it.

    The file belongs to the owner of its folder, with mode 0600. Raises ConfigError if something else lies there.
    """
    value = token(shape)
    kept, known = state / _KEPT, None
    if kept.exists():
        known = kept.read_bytes().strip()
    if settings.file.is_symlink() or (settings.file.exists() and not (known and known in settings.file.read_bytes())):
        raise ConfigError(f"{settings.file} is there already and is no canary", "name another under [canary] file")
    for path, text in ((kept, value), (settings.file, _dressed(settings.file.name, value, shape))):
        _write(path, text + "\n")
    return Planted(settings.file, _hash(value))


def token(shape: ForgeKind) -> str:
    """A credential that nobody ever issued, of the shape that a forge's have.

    GitHub's end in a checksum: CRC-32 of the random part in base 62 (github.blog/2021-04-05-behind-githubs-new-
    authentication-token-formats); whoever checks it finds it right.
    """
    if shape == "gitea":
        return secrets.token_hex(20)
    if shape == "gitlab":
        return "glpat-" + "".join(secrets.choice(_LETTERS) for _ in range(20))
    random = "".join(secrets.choice(_LETTERS) for _ in range(30))
    number, digits = zlib.crc32(random.encode()), ""
    while number:
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return f"ghp_{random}{digits.rjust(6, '0')}"


def _dressed(name: str, value: str, shape: ForgeKind) -> str:
    """As the programs that usually keep it there would write it."""
    host = {"gitlab": "gitlab.com", "gitea": "codeberg.org"}.get(shape, "github.com")
    if name == ".git-credentials":
        return f"https://x-access-token:{value}@{host}"
    if name == ".netrc":
        return f"machine {host} login x-access-token password {value}"
    return value


def _write(path: Path, text: str) -> None:
    """Replaces a file; it belongs to whoever its folder belongs to. Raises ConfigError."""
    draft = f".{path.name}.{secrets.token_hex(4)}"
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(draft, flags, 0o600, dir_fd=folder), "w") as file:
                owner = os.fstat(folder)
                if owner.st_uid != os.geteuid():
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
                file.write(text)
            os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)
    except OSError as error:
        mend = "make its folder first, and run this as root or as the folder's owner"
        raise ConfigError(f"{path} cannot be written: {error.strerror}", mend) from None


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:12]
