"""The settings in force while the broker runs: a changed broker.toml is read again, the last good one is kept."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel

from broker.config import ground
from broker.config.loading import parse, read_private
from broker.config.settings import BrokerConfig
from broker.errors import ConfigError

Report = Callable[[str, dict[str, str]], None]
"""Told each change once: ``config-reloaded`` or ``config-kept``, and the fields of its line in the log."""

LIVE = frozenset({"enabled"})
LIVE_IN_A_REPOSITORY = frozenset({"default_base", "visibility", "enabled", "policy", "intake", "follow"})
"""What a running broker takes over. Everything else was built into sockets, forges and stores when it started."""

_LOOK_SECONDS = 1.0
_Mark = tuple[int, ...] | None


class Live:
    """One broker.toml as it is now, if it is good; else as it last was. Safe to use from several threads."""

    def __init__(self, path: Path | None, config: BrokerConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._reports: list[Report] = []
        self._looked = clock()
        self._mark: _Mark = ()  # so that a change between its first reading and now is seen
        self._told = ""

    @classmethod
    def fixed(cls, config: BrokerConfig) -> Live:
        """Settings that have no file and never change."""
        return cls(None, config)

    def listen(self, report: Report) -> None:
        """Has ``report`` told of every later change, in the thread that noticed it."""
        self._reports.append(report)

    def current(self) -> BrokerConfig:
        """The settings in force. The file is looked at once a second at most; a call takes them once, at its start."""
        news: tuple[str, dict[str, str]] | None = None
        with self._lock:
            now = self._clock()
            if self._path is not None and now - self._looked >= _LOOK_SECONDS:
                self._looked = now
                news = self._look(self._path)
            config = self._config
        if news is not None:
            for report in tuple(self._reports):
                report(*news)
        return config

    def _look(self, path: Path) -> tuple[str, dict[str, str]] | None:
        mark = _mark(path)
        if mark == self._mark:
            return None
        try:
            text = read_private(path)
            fresh = parse(path, text)
            _require_live(self._config, fresh)
            _require_safe_hooks(fresh)
        except ConfigError as error:  # looked at again: what is wrong may lie outside the file, as a hook's mode
            again, self._told = str(error) == self._told, str(error)
            return None if again else ("config-kept", {"reason": str(error)[:1000], "mend": error.mend})
        changed, mended = differences(self._config, fresh), bool(self._told)
        self._config, self._mark, self._told = fresh, mark, ""
        if not changed and not mended:
            return None
        said = _words(changed) or "nothing: what is in force stands in the file again"
        return "config-reloaded", {"changed": said, "sha256": hashlib.sha256(text).hexdigest()}


Place = tuple[str, ...]
"""A key: ("socket",), ("repositories", NAME) for one that came or went, or ("repositories", NAME, PART)."""


def differences(old: BrokerConfig, new: BrokerConfig) -> tuple[Place, ...]:
    """Which keys differ; a repository's parts by one name each. Their values are not told."""
    found: list[Place] = [(name,) for name in _differing(old, new) if name != "repositories"]
    for name in sorted(old.repositories.keys() | new.repositories.keys()):
        before, after = old.repositories.get(name), new.repositories.get(name)
        if before is None or after is None:
            found.append(("repositories", name))
        else:
            found += [("repositories", name, part) for part in _differing(before, after)]
    return tuple(found)


def _differing(old: BaseModel, new: BaseModel) -> list[str]:
    return [name for name in type(old).model_fields if getattr(old, name) != getattr(new, name)]


def _words(places: Sequence[Place]) -> str:
    return ", ".join(".".join(place) for place in places)[:500]


def _require_live(old: BrokerConfig, new: BrokerConfig) -> None:
    built_in = [place for place in differences(old, new) if not _is_live(place)]
    if built_in:
        mend = "restart the broker for it, or take it back out of the file"
        message = f"a running broker cannot change {_words(built_in)}; nothing of the file is in force"
        raise ConfigError(message, mend)


def _require_safe_hooks(new: BrokerConfig) -> None:
    for name, repository in new.repositories.items():
        hook = repository.policy.hook
        if hook and (problem := ground.program(Path(hook[0]), os.geteuid())):
            raise ConfigError(f"repositories.{name}.policy.hook = {hook[0]} {problem}")


def _is_live(place: Place) -> bool:
    return place[-1] in LIVE_IN_A_REPOSITORY if len(place) == 3 else place[0] in LIVE


def _mark(path: Path) -> _Mark:
    """Tells one content of the file from another without reading it; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
