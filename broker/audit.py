"""The append-only log: one JSON line per event, chained by hashes, on disk before the call returns."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from broker.errors import AuditError
from broker.person_wire import LogEntry

GENESIS = "0" * 64
_MAX_FIELD = 2000


class Audit:
    """Verifies the whole log when opened; after that only appends. Raises AuditError with the line that is wrong.

    Beside the log lies its head (number and hash), so that lines cut from the end are noticed too.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._head_file = path.with_suffix(".head")
        torn = self._mend_torn_line()
        self._number, self._hash = verify(path)
        self._file = path.open("ab", buffering=0)  # a buffer would keep a failed line and write it before the next one
        path.chmod(0o600)
        self._write_head()
        if torn:
            self.append("log-mended", bytes=torn)

    def append(self, event: str, **fields: str | float) -> LogEntry:
        """Writes one event and forces it to disk."""
        with self._lock:
            texts = {name: str(value)[:_MAX_FIELD] for name, value in fields.items()}
            draft = LogEntry(
                number=self._number + 1, at=self._clock(), event=event, fields=texts, previous=self._hash, hash=""
            )
            entry = draft.model_copy(update={"hash": digest(draft)})
            self._write(entry.model_dump_json().encode() + b"\n")
            self._number, self._hash = entry.number, entry.hash
            self._write_head()
            return entry

    def _write(self, line: bytes) -> None:
        """All of a line, or nothing of it: half a line or an unacknowledged one would break the chain for good."""
        end, left = os.fstat(self._file.fileno()).st_size, memoryview(line)
        try:
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError:
            os.ftruncate(self._file.fileno(), end)
            raise

    def page(self, after: int, limit: int = 500) -> tuple[LogEntry, ...]:
        """Entries with a number above ``after``, in order."""
        with self._path.open("rb") as file:
            wanted = (LogEntry.model_validate_json(line) for line in file)
            found = [entry for entry in wanted if entry.number > after][:limit]
        return tuple(found)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write_head(self) -> None:
        draft = self._head_file.with_suffix(".draft")
        draft.write_text(f"{self._number} {self._hash}\n")
        draft.replace(self._head_file)

    def _mend_torn_line(self) -> int:
        # Only a power cut in the middle of an append leaves an unended line, and it was never acknowledged: the head
        # file still names the line before. A cut of an acknowledged line is found by verify().
        if not self._path.exists():
            return 0
        data = self._path.read_bytes()
        ended = data.rfind(b"\n") + 1
        if ended < len(data):
            os.truncate(self._path, ended)
        return len(data) - ended


def verify(path: Path) -> tuple[int, str]:
    """Checks every line and the head; returns the last number and hash. Raises AuditError with the line number."""
    number, last = 0, GENESIS
    head_number, head_hash = _read_head(path)
    for number, entry in enumerate(_lines(path, head_number), start=1):
        if entry.number != number or entry.previous != last or entry.hash != digest(entry):
            raise _broken(path, number, "does not follow from the line before")
        if number == head_number and entry.hash != head_hash:
            raise _broken(path, number, "is not the line that was written")
        last = entry.hash
    if number < head_number:
        raise _broken(path, number + 1, f"is missing; {head_number} lines were written")
    return number, last


def digest(entry: LogEntry) -> str:
    """The hash of an entry: everything in it but the hash, canonical JSON, SHA-256."""
    body = entry.model_dump(mode="json", exclude={"hash"})
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _lines(path: Path, head: int) -> Iterator[LogEntry]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield LogEntry.model_validate_json(line)
            except ValidationError:
                if number > head and not line.endswith(b"\n"):
                    return  # being written just now, or torn; nobody was told that it is there
                raise _broken(path, number, "is not a log entry") from None


def _read_head(path: Path) -> tuple[int, str]:
    try:
        number, last = path.with_suffix(".head").read_text().split()
        return int(number), last
    except FileNotFoundError:
        return 0, GENESIS
    except ValueError:
        raise AuditError(f"{path.with_suffix('.head')} is damaged", _MEND) from None


_MEND = "find out who wrote to the state folder; then move the log and its head aside to start a new one"


def _broken(path: Path, number: int, what: str) -> AuditError:
    return AuditError(f"{path}: line {number} {what}", _MEND)
