"""Where a shell keeps the copy of its folder: below the state folder, named so that `prune` sees whose it is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.owner import orphaned, owner_of
from swarm.errors import ConfigError

_FOLDER = "shells"


@contextmanager
def copy_folder(state: Path) -> Iterator[Path]:
    """An empty folder of this process alone, gone at the end. Raises ConfigError where none can be made."""
    place = state / _FOLDER / owner_of(state).new_name()
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        place.mkdir(mode=0o700)
    except OSError as error:
        what = f"{place.parent} cannot hold the copy of a folder: {error.strerror}"
        raise ConfigError(what, "make it writable, or name another state folder with XDG_STATE_HOME") from error
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def left_copies(state: Path) -> list[Path]:
    """Copies whose shell is gone."""
    try:
        return sorted(place for place in (state / _FOLDER).iterdir() if orphaned(place.name))
    except OSError:
        return []


def removed(place: Path) -> bool:
    """Remove a copy; whether it is gone."""
    shutil.rmtree(place, ignore_errors=True)
    return not place.exists()
