"""One file that carries a recorded attempt: a tar archive, packed with gzip, of a manifest, the journal and a pack.

    manifest.json   `Recording` without its lines; ``version`` first of all
    journal.jsonl   the attempt's lines; past.jsonl those of attempts that it went on from
    objects.pack    the base commit, with its history where that is small, and the trees that it began with and came to

Whoever opens one does not trust it: nothing is unpacked to the disk by name, each part is bounded, and what is not
expected is refused. No capability and no secret that is known or looks like one is in a file that was written here.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sandbox.types import MIB
from swarm.errors import ReplayError
from swarm.replay.record import Recording
from swarm.telemetry.redaction import STRUCK, Redactor
from swarm.types import Step

MANIFEST, JOURNAL, PAST, OBJECTS = "manifest.json", "journal.jsonl", "past.jsonl", "objects.pack"
_LIMITS = {MANIFEST: 8 * MIB, JOURNAL: 512 * MIB, PAST: 512 * MIB, OBJECTS: 1024 * MIB}
MOST = 2048 * MIB  # bytes that a file may unpack to
LINES = 1_000_000
_MEND = "ask whoever made it for another one: swarm export TASK"


def redacted(recorded: Recording, redactor: Redactor) -> Recording:
    """Without the capability, and without anything that is or looks like a secret."""
    request = recorded.task.request.model_copy(update={"capability": ""})
    bare = recorded.model_copy(update={"task": recorded.task.model_copy(update={"request": request})})
    raw = bare.model_dump(mode="json")
    clean = _struck(raw, redactor)
    struck = json.dumps(clean).count(STRUCK) - json.dumps(raw).count(STRUCK)
    return Recording.model_validate({**clean, "struck": max(0, struck)})


def packed(recorded: Recording, objects: bytes) -> bytes:
    """The file's content; the same for the same recording, byte for byte."""
    manifest = recorded.model_dump_json(exclude={"steps", "past"}, indent=1).encode()
    parts = {
        MANIFEST: manifest,
        JOURNAL: _lines(recorded.steps),
        PAST: _lines(recorded.past),
        OBJECTS: objects,
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o600
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


def write(path: Path, content: bytes) -> None:
    """Put the file there, for its owner alone. Raises ReplayError where that cannot be, or where there is one."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(handle, "wb") as file:  # noqa: PTH123 - it has no path any more
            file.write(content)
    except OSError as error:
        mend = "name another one with -o" if isinstance(error, FileExistsError) else "see whether you may write there"
        raise ReplayError(f"{path} cannot be written: {error.strerror}", mend) from error


def read(path: Path) -> tuple[Recording, bytes]:
    """What a file holds: the recording and its objects. Raises ReplayError for one that is none, or is hostile."""
    try:
        with path.open("rb") as file, gzip.GzipFile(fileobj=file) as unpacked:
            parts = _parts(_Bounded(unpacked))
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        raise ReplayError(f"{path} cannot be read: {error}", _MEND) from error
    return _recording(parts, path), parts[OBJECTS]


class _Bounded(io.RawIOBase):
    """A stream that ends with an error rather than unpack to more than it may."""

    def __init__(self, inner: gzip.GzipFile) -> None:
        super().__init__()
        self._inner = inner
        self._left = MOST

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        data = self._inner.read(min(size, MIB) if size >= 0 else MIB)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {MOST} bytes")
        return data


def _parts(stream: Any) -> dict[str, bytes]:
    """The parts by name. Raises ValueError for whatever is none of ours."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=stream, mode="r|", format=tarfile.PAX_FORMAT) as archive:
        for member in archive:
            name = member.name
            if name not in _LIMITS or name in found or not member.isreg() or member.issparse():
                raise ValueError(f"it holds {name[:100]!r}, which is no part of a recorded attempt")
            if member.size > _LIMITS[name]:
                raise ValueError(f"its {name} has {member.size} bytes, more than {_LIMITS[name]}")
            content = archive.extractfile(member)
            found[name] = content.read() if content else b""
    if missing := _LIMITS.keys() - found.keys():
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    return found


def _recording(parts: dict[str, bytes], path: Path) -> Recording:
    try:
        manifest = json.loads(parts[MANIFEST])
        version = manifest.get("version") if isinstance(manifest, dict) else None
        if version != 1:
            raise ReplayError(f"{path} is of version {version!r}; this program reads version 1", "use a newer program")
        steps, past = _read_lines(parts[JOURNAL]), _read_lines(parts[PAST])
        return Recording.model_validate({**manifest, "steps": steps, "past": past})
    except (ValueError, RecursionError) as error:
        told = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else str(error)[:200]
        raise ReplayError(f"{path} is no recorded attempt: {told}", _MEND) from error


def _read_lines(content: bytes) -> list[Any]:
    lines = content.splitlines()
    if len(lines) > LINES:
        raise ValueError(f"there are more than {LINES} lines in it")
    return [json.loads(line) for line in lines]


def _lines(steps: Iterable[Step]) -> bytes:
    return b"".join(json.dumps(step.model_dump(mode="json")).encode() + b"\n" for step in steps)


def _struck(raw: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """What names objects stays as it is: a tree's id is no secret, and a replay needs it."""
    clean: dict[str, Any] = redactor.data(raw)
    kept = {key: raw[key] for key in ("version", "base", "sealed")}
    return {**clean, **kept}
