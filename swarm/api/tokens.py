"""Who calls with a token, and how often: pure but for the file that is looked at again when it changed."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swarm.config_door import TokenConfig
from swarm.errors import ConfigError
from swarm.tokens import hashed, read

LONGEST = 256  # characters of a token that are looked at

log = logging.getLogger(__name__)


@dataclass
class Pace:
    """A bucket of requests that fills again evenly."""

    per_minute: int
    left: float
    at: float

    def take(self, now: float) -> float:
        """Take one; 0 when it was there, else seconds until it is."""
        rate = self.per_minute / 60.0
        self.left = min(float(self.per_minute), self.left + max(0.0, now - self.at) * rate)
        self.at = now
        if self.left < 1.0:
            return (1.0 - self.left) / rate
        self.left -= 1.0
        return 0.0


class Tokens:
    """The tokens of the settings, and those of a file, which is read again whenever it changed."""

    def __init__(
        self, fixed: tuple[TokenConfig, ...], path: Path | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fixed = fixed
        self._path = path
        self._clock = clock
        self._seen: tuple[int, ...] | None = None
        self._filed: tuple[TokenConfig, ...] = ()
        self._paces: dict[str, Pace] = {}

    def find(self, token: str) -> TokenConfig | None:
        """Whose token it is. It takes as long whether and wherever it is found."""
        given = hashed(token[:LONGEST])
        found = None
        for each in (*self._fixed, *self._from_file()):
            if hmac.compare_digest(each.sha256, given):
                found = each
        return found

    def has(self, token: TokenConfig) -> bool:
        """Whether it still lets anybody in."""
        return any(each.sha256 == token.sha256 for each in (*self._fixed, *self._from_file()))

    def wait(self, token: TokenConfig) -> float:
        """Count a request; seconds that its caller has to wait first, 0 when it may go on."""
        now = self._clock()
        pace = self._paces.get(token.name)
        if pace is None or pace.per_minute != token.per_minute:
            pace = self._paces[token.name] = Pace(token.per_minute, float(token.per_minute), now)
        return pace.take(now)

    def _from_file(self) -> tuple[TokenConfig, ...]:
        if self._path is None:
            return ()
        try:
            found = self._path.stat()
        except OSError:
            mark: tuple[int, ...] = ()
        else:
            mark = (found.st_ino, found.st_size, found.st_mtime_ns)
        if mark != self._seen:
            self._seen, self._filed = mark, self._read(self._path)
            names = {token.name for token in (*self._fixed, *self._filed)}
            self._paces = {name: pace for name, pace in self._paces.items() if name in names}
        return self._filed

    def _read(self, path: Path) -> tuple[TokenConfig, ...]:
        try:
            return read(path)
        except ConfigError as error:
            log.error("nobody of it is let in: %s", error)  # noqa: TRY400  the words are the whole of it
            return ()
