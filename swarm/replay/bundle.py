"""One file that carries a recorded attempt: a tar archive, packed with gzip, of a manifest, the journal and a pack.

    manifest.json   `Recording` without its lines; ``version`` first of all
    journal.jsonl   the attempt's lines; past.jsonl those of attempts that it went on from
    objects.pack    the base commit, with its history where that is small, and the trees that it began with and came to

Whoever opens one does not trust it: nothing is unpacked to the disk by name, each part is bounded before it is read,
plain ustar headers are read and no other, and JSON is counted before it is parsed, since a byte of it can become
thirty of memory. No capability and no secret that is known or looks like one is in a file that was written here.
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
from swarm.errors import ConfigError, ReplayError
from swarm.replay.record import Recording
from swarm.telemetry.redaction import STRUCK, Redactor
from swarm.types import Step

MANIFEST, JOURNAL, PAST, OBJECTS = "manifest.json", "journal.jsonl", "past.jsonl", "objects.pack"
_LIMITS = {MANIFEST: 4 * MIB, JOURNAL: 64 * MIB, PAST: 64 * MIB, OBJECTS: 512 * MIB}
LINES = 200_000  # of journal and past, each
LONGEST = 8 * MIB  # bytes of one line
VALUES = 2_000_000  # values in all the JSON of a file, at the most that its bytes can hold
_BLOCK = 512
_HERE = "replay it where it was worked on: swarm replay TASK"
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
    """The file's content; the same for the same recording, byte for byte. Raises ReplayError where it is too large."""
    manifest = recorded.model_dump_json(exclude={"steps", "past"}, indent=1).encode()
    parts = {
        MANIFEST: manifest,
        JOURNAL: _lines(recorded.steps),
        PAST: _lines(recorded.past),
        OBJECTS: objects,
    }
    try:
        for name, content in parts.items():
            _require_within(name, len(content))
        _count(parts)
    except ValueError as error:
        raise ReplayError(f"attempt {recorded.attempt.id} does not fit into a file: {error}", _HERE) from error
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o600
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


def write(path: Path, content: bytes) -> None:
    """Put the file there, for its owner alone. Raises ConfigError where that cannot be, or where there is one."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(handle, "wb") as file:  # noqa: PTH123 - it has no path any more
            file.write(content)
    except OSError as error:
        mend = "name another one with -o" if isinstance(error, FileExistsError) else "see whether you may write there"
        raise ConfigError(f"{path} cannot be written: {error.strerror}", mend) from error


def read(path: Path) -> tuple[Recording, bytes]:
    """What a file holds: the recording and its objects. Raises ReplayError for one that is none, or is hostile."""
    try:
        with path.open("rb") as file, gzip.GzipFile(fileobj=file) as unpacked:
            parts = _parts(unpacked)
            _count(parts)
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        raise ReplayError(f"{path} cannot be read: {error}", _MEND) from error
    return _recording(parts, path), parts[OBJECTS]


def _parts(stream: gzip.GzipFile) -> dict[str, bytes]:
    """The parts by name. Raises ValueError and TarError for whatever is none of ours.

    Headers are read one by one: `tarfile` would read the extended ones whole, however large they say they are.
    """
    found: dict[str, bytes] = {}
    while (block := stream.read(_BLOCK)) and block.strip(b"\0"):
        member = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        name = member.name
        if name not in _LIMITS or name in found or member.type != tarfile.REGTYPE:
            raise ValueError(f"it holds {name[:100]!r}, which is no part of a recorded attempt")
        _require_within(name, member.size)
        found[name] = stream.read(member.size)
        if len(found[name]) < member.size:
            raise ValueError(f"its {name} is cut short")
        stream.read(-member.size % _BLOCK)
    if missing := _LIMITS.keys() - found.keys():
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    return found


def _require_within(name: str, size: int) -> None:
    if not 0 <= size <= _LIMITS[name]:
        raise ValueError(f"its {name} has {size} bytes, more than {_LIMITS[name]}")


def _count(parts: dict[str, bytes]) -> None:
    """Raises ValueError where lines and values are more than fit into memory, before any of them is parsed."""
    values = sum(parts[name].count(sign) for name in (MANIFEST, JOURNAL, PAST) for sign in (b",", b"[", b"{"))
    if values > VALUES:
        raise ValueError(f"there may be {values} values in its JSON, more than {VALUES}")
    for name in (JOURNAL, PAST):
        if parts[name].count(b"\n") > LINES:
            raise ValueError(f"there are more than {LINES} lines in its {name}")
        start = 0
        while start < len(parts[name]):
            end = parts[name].find(b"\n", start)
            end = len(parts[name]) if end < 0 else end
            if end - start > LONGEST:
                raise ValueError(f"a line of its {name} has more than {LONGEST} bytes")
            start = end + 1


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
    return [json.loads(line) for line in io.BytesIO(content)]


def _lines(steps: Iterable[Step]) -> bytes:
    return b"".join(json.dumps(step.model_dump(mode="json")).encode() + b"\n" for step in steps)


def _struck(raw: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """What names objects stays as it is: a tree's id is no secret, and a replay needs it."""
    clean: dict[str, Any] = redactor.data(raw)
    kept = {key: raw[key] for key in ("version", "base", "sealed")}
    return {**clean, **kept}
