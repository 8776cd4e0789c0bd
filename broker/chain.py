"""The chain of the log's lines: each line's hash covers the line and the hash before it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from broker.errors import AuditError
from broker.person_wire import LogEntry

GENESIS = "0" * 64
MEND = "find out who wrote to the state folder; then move the log and its head aside to start a new one"


@dataclass(frozen=True)
class Head:
    """The last line of a chain: its number and hash. Nothing was written yet where the number is 0."""

    number: int = 0
    hash: str = GENESIS


def digest(entry: LogEntry) -> str:
    """The hash of an entry: everything in it but the hash, canonical JSON, SHA-256."""
    body = entry.model_dump(mode="json", exclude={"hash"})
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def follow(head: Head, line: bytes, place: str, number: int) -> Head:
    """The head after one more line. Raises AuditError, naming ``place`` and ``number``, if it does not follow."""
    try:
        entry = LogEntry.model_validate_json(line)
    except ValidationError:
        raise broken(place, number, "is not a log entry") from None
    if entry.number != head.number + 1 or entry.previous != head.hash or entry.hash != digest(entry):
        raise broken(place, number, "does not follow from the line before")
    return Head(entry.number, entry.hash)


def verify_part(lines: Iterable[bytes], place: str) -> tuple[Head, Head]:
    """Checks lines of a log that may begin anywhere: the heads before the first and after the last. Raises AuditError.

    What was before the first line is vouched for by the hash that it names; nothing may be missing in between.
    """
    before: Head | None = None
    head = Head()
    for number, line in enumerate(lines, start=1):
        if before is None:
            try:
                first = LogEntry.model_validate_json(line)
            except ValidationError:
                raise broken(place, number, "is not a log entry") from None
            before = head = Head(first.number - 1, first.previous)
            if before.number == 0 and before.hash != GENESIS:
                raise broken(place, number, "is called the first, and names a line before it")
        head = follow(head, line, place, number)
    return before or Head(), head


def broken(place: str, number: int, what: str) -> AuditError:
    """The error of a line that is wrong."""
    return AuditError(f"{place}: line {number} {what}", MEND)
