"""The append-only log: one JSON line per event, chained by hashes, on disk before the call returns.

It is never rotated: a chain that ends proves nothing of what came after it, and a line has some 400 bytes, so that a
hundred pull requests a day make under 200 MB in a year. `swarm-broker log export` gives any part a proof of its own.
"""

from __future__ import annotations

import bisect
import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from broker.chain import MEND, Head, broken, digest, follow
from broker.errors import AuditError, FencedError
from broker.person_wire import LogEntry

_MAX_FIELD, _MAX_FIELDS, _MAX_NAME = 2000, 32, 64
_MAX_TEXT = 1 << 20  # of a field that is looked at
_MARK_EVERY = 500  # lines between two places in the file that are remembered


def unchanged(text: str) -> str:
    """The redactor of a broker that lends nothing."""
    return text


class Audit:
    """Verifies the whole log when opened; after that only appends. Raises AuditError with the line that is wrong.

    Beside the log lies its head (number and hash), so that lines cut from the end are noticed too. Texts lose their
    control characters and, by ``redact``, every secret that the broker knows. Two brokers on one log would fork the
    chain: whoever finds that another wrote to it gets FencedError, and writes nothing.
    """

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.time, redact: Callable[[str], str] = unchanged
    ) -> None:
        self._path = path
        self._clock = clock
        self._redact = redact
        self._lock = threading.Lock()
        self._head_file = path.with_suffix(".head")
        torn = self._mend_torn_line()
        emptied = self._head_file.exists() and not self._head_file.stat().st_size
        self._marks: list[tuple[int, int]] = []  # (number of a line, where it begins)
        self._head = self._read_all()
        self._file = path.open("ab", buffering=0)  # a buffer would keep a failed line and write it before the next one
        self._end = os.fstat(self._file.fileno()).st_size  # where the last line of this broker's own ends
        path.chmod(0o600)
        self._write_head()
        if torn:
            self.append("log-mended", bytes=torn)
        if emptied:
            self.append("log-mended", reason="its head was empty: had lines been cut from its end, nobody would know")

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self._head.number

    def append(self, event: str, **fields: str | float) -> LogEntry:
        """Writes one event and forces it to disk."""
        with self._lock:
            draft = LogEntry(
                number=self._head.number + 1,
                at=self._clock(),
                event=plain(event)[:_MAX_NAME],
                fields={plain(name)[:_MAX_NAME]: self._bounded(value) for name, value in _few(fields)},
                previous=self._head.hash,
                hash="",
            )
            entry = draft.model_copy(update={"hash": digest(draft)})
            self._write(entry)
            self._head = Head(entry.number, entry.hash)
            self._write_head()
            return entry

    def page(self, after: int, limit: int = 500) -> tuple[LogEntry, ...]:
        """Entries with a number above ``after``, in order."""
        found: list[LogEntry] = []
        with self._path.open("rb") as file:
            file.seek(self._place_of(after + 1))
            for line in file:
                if not line.endswith(b"\n"):
                    break  # being written just now
                entry = LogEntry.model_validate_json(line)
                if entry.number > after:
                    found.append(entry)
                if len(found) >= limit:
                    break
        return tuple(found)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _bounded(self, value: str | float) -> str:
        # Redacted first: an escape in the middle of a secret would hide it from the redactor.
        return plain(self._redact(str(value)[:_MAX_TEXT]))[:_MAX_FIELD]

    def _write(self, entry: LogEntry) -> None:
        """All of a line, or nothing of it: half a line or an unacknowledged one would break the chain for good."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            self._write_locked(memoryview(entry.model_dump_json().encode() + b"\n"), entry.number)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _write_locked(self, left: memoryview, number: int) -> None:
        end = os.fstat(self._file.fileno()).st_size
        if end != self._end:
            raise FencedError(f"another broker writes to {self._path}", "this one must stop; the other goes on")
        self._end = end + len(left)
        try:
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError:
            self._end = end
            os.ftruncate(self._file.fileno(), end)
            raise
        self._mark(number, end)

    def _mark(self, number: int, place: int) -> None:
        if number % _MARK_EVERY == 1:
            self._marks.append((number, place))

    def _place_of(self, number: int) -> int:
        at = bisect.bisect_right(self._marks, number, key=lambda mark: mark[0])
        return self._marks[at - 1][1] if at else 0

    def _read_all(self) -> Head:
        place, head = 0, Head()
        for head, size in _heads(self._path):
            self._mark(head.number, place)
            place += size
        return head

    def _write_head(self) -> None:
        draft = self._head_file.with_suffix(".draft")
        with draft.open("w") as file:
            file.write(f"{self._head.number} {self._head.hash}\n")
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave the name and nothing in it
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


def plain(text: str) -> str:
    """Text for a log and a terminal: control, bidirectional and other unprintable characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def verify(path: Path) -> Head:
    """Checks every line and the head on disk; returns the last. Raises AuditError with the line number."""
    return next(iter(deque((head for head, _size in _heads(path)), maxlen=1)), Head())


def _heads(path: Path) -> Iterator[tuple[Head, int]]:
    """The head after each line, and the line's length; at the end the one that was written down must have passed."""
    written, head = _read_head(path), Head()
    for number, line in enumerate(_lines(path), start=1):
        if number > written.number and not line.endswith(b"\n"):
            break  # being written just now, or torn; nobody was told that it is there
        head = follow(head, line, str(path), number)
        if number == written.number and head.hash != written.hash:
            raise broken(str(path), number, "is not the line that was written")
        yield head, len(line)
    if head.number < written.number:
        raise broken(str(path), head.number + 1, f"is missing; {written.number} lines were written")


def _lines(path: Path) -> Iterator[bytes]:
    if path.exists():
        with path.open("rb") as file:
            yield from file


def _read_head(path: Path) -> Head:
    try:
        if not (words := path.with_suffix(".head").read_text().split()):
            return Head()
        number, last = words
        return Head(int(number), last)
    except FileNotFoundError:
        return Head()
    except ValueError:
        raise AuditError(f"{path.with_suffix('.head')} is damaged", MEND) from None


def _few(fields: dict[str, str | float]) -> list[tuple[str, str | float]]:
    return list(fields.items())[:_MAX_FIELDS]
