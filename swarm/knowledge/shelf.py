"""Keeps what was proved of a repository's test command: one small file each in the daemon's state folder, under a
digest of all that decided it; an entry for anything else is stale, and dropped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from swarm.knowledge.proving import Proved
from swarm.types import Frozen

log = logging.getLogger(__name__)

_LIMIT = 64 * 1024
_FORM = 1  # raised when other commands are suggested for the same files


class _Entry(Frozen):
    repository: str
    digest: str
    proved: Proved


class Shelf:
    """Blocking, and small: call it where a millisecond matters to nobody."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, repository: str, digest: str) -> Proved | None:
        """What was proved under this digest. A stale or broken entry is removed, and told in the log."""
        place = self._place(repository)
        try:
            data = place.read_bytes()[:_LIMIT]
        except OSError:
            return None
        try:
            entry = _Entry.model_validate_json(data)
        except ValidationError:
            entry = None
        if entry is not None and (entry.repository, entry.digest) == (repository, digest):
            return entry.proved
        why = "it cannot be read" if entry is None else "what decides it has changed"
        log.info("the test command found for %s is looked for again: %s", repository, why)
        self.drop(repository)
        return None

    def keep(self, repository: str, digest: str, proved: Proved) -> None:
        """Write it, whole or not at all; a folder that cannot be written costs the next one a proof, no more."""
        entry = _Entry(repository=repository, digest=digest, proved=proved)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._folder, encoding="utf-8", delete=False) as whole:
                whole.write(entry.model_dump_json())
            Path(whole.name).replace(self._place(repository))
        except OSError as error:
            log.warning("the test command found for %s is not kept: %s", repository, error.strerror)

    def drop(self, repository: str) -> None:
        """Forget it, where there is one."""
        with contextlib.suppress(OSError):
            self._place(repository).unlink(missing_ok=True)

    def _place(self, repository: str) -> Path:
        return self._folder / f"{hashlib.sha256(repository.encode()).hexdigest()[:32]}.json"


def digest(files: Mapping[str, str], settings: object) -> str:
    """Names exactly what decides a test command: the deciding files' contents by their ids, and how the sandbox is set
    up (``settings``, as JSON takes it)."""
    said = json.dumps([_FORM, sorted(files.items()), settings], sort_keys=True, default=str)
    return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()
