"""Whose a sandbox is, on the host's disk: one small file for each that got its labels after it was made.

A container's labels cannot change, and one that was started before it was asked for is nobody's. A later daemon must
still find out whose work lies in it.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.owner import orphaned
from sandbox.types import LeftBehind

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_LARGEST = 16 * 1024
_STALE = 30 * 86400.0
WARM, UNUSED = "warm", "unused"  # kinds: held ready, and left behind without ever having been handed out
UNSURE = "unsure"  # label of one that nothing was written down of


class Register:
    """Labels by the name of the sandbox, in ``folder``, which only this user may read; it is made when first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, name: str, labels: Mapping[str, str]) -> None:
        """Write down whose it is; a killed process leaves the old labels or the new ones. Raises SandboxError."""
        data = json.dumps(dict(labels)).encode()
        if not _NAME.match(name) or len(data) > _LARGEST:
            raise SandboxError(f"the labels of {name[:128]!r} cannot be kept: {len(data)} bytes, at most {_LARGEST}")
        fresh = self._folder / f"{name}.new"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_bytes(data)
            fresh.replace(self._folder / f"{name}.json")
        except OSError as error:
            raise SandboxError(f"{self._folder} cannot be written: {error.strerror}; mend: make room there") from error

    def forget(self, name: str) -> None:
        """It is gone."""
        with contextlib.suppress(OSError):
            (self._folder / f"{name}.json").unlink()

    def labels(self, name: str) -> dict[str, str] | None:
        """What was written down for a name; None where nothing was, or where it cannot be read."""
        if not _NAME.match(name):
            return None
        try:
            with (self._folder / f"{name}.json").open("rb") as file:
                found = json.loads(file.read(_LARGEST))
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            return None
        return found

    def told(self, left: LeftBehind) -> LeftBehind:
        """The same with the labels that it was given later.

        One of ours of which nothing is written down was never handed out (kind UNUSED). Where it was made for someone
        all the same, its owner died before or the file was lost: it is marked UNSURE, and may hold half a checkout.
        """
        if not left.ours:
            return left
        found = self.labels(left.name)
        if found is None:
            made_for = left.labels.get("kind", WARM) != WARM
            found = {UNSURE: "yes"} if made_for else {"kind": UNUSED}
        return left.model_copy(update={"labels": {**left.labels, **found}})

    def tidy(self, gone: Collection[str]) -> None:
        """Forget those, and what nobody asked about for a month, whoever looked."""
        for name in self.names():
            path = self._folder / f"{name}.json"
            with contextlib.suppress(OSError):
                if name in gone or (orphaned(name) and path.stat().st_mtime < time.time() - _STALE):
                    path.unlink()

    def names(self) -> tuple[str, ...]:
        """Everything that is written down."""
        try:
            return tuple(sorted(entry.stem for entry in self._folder.iterdir() if _is_ours(entry)))
        except OSError:
            return ()


def _is_ours(entry: Path) -> bool:
    return entry.suffix == ".json" and _NAME.match(entry.stem) is not None
