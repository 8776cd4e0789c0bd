"""A part of the log as a file that proves itself: its lines, then a signed word for the hash of the last one."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker.chain import Head, verify_part
from broker.cli.screen import WrongUseError
from broker.client import Client
from broker.errors import AuditError
from broker.person_wire import LogEntry
from broker.provenance.signing import opened
from broker.provenance.store import HEAD_TYPE

_SEAL = b'{"payload"'  # how the last line of an export begins, and no line of a log


def entries(client: Client, after: int, since: float = 0.0, until: float = float("inf")) -> Iterator[LogEntry]:
    """Lines in order, from the first at or after ``since`` to the last before ``until`` (seconds since the epoch)."""
    begun = False
    while page := client.log(after).entries:
        for entry in page:
            begun = begun or entry.at >= since
            if entry.at >= until and begun:
                return
            if begun:
                yield entry
        after = page[-1].number


def verify_export(path: Path, key: Path) -> tuple[Head, Head]:
    """The heads before the first and after the last line of an export.

    Raises AuditError for a broken chain, ProvenanceError for a bad seal, WrongUseError if a file cannot be read.
    """
    lines, pem = read(path).splitlines(keepends=True), read(key).decode(errors="replace")
    if not lines or not lines[-1].startswith(_SEAL):
        raise AuditError(f"{path} does not end with a signed head", "export it again: swarm-broker log export")
    try:
        before, last = verify_part(lines[:-1], str(path))
    except AuditError as error:
        mend = "the file was changed after it was written: ask for it again (swarm-broker log export)"
        raise AuditError(str(error), mend) from None
    signed: Any = json.loads(opened(lines[-1], HEAD_TYPE, pem))
    if (signed["number"], signed["hash"]) != (last.number, last.hash):
        raise AuditError(
            f"{path}: its last line is {last.number}, yet {signed['number']} was signed", "export it again"
        )
    return before, last


def read(path: Path, limit: int = 1 << 30) -> bytes:
    """A plain file that a person names. Raises WrongUseError if it cannot be read, or might never end."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise WrongUseError(f"{path} is not a plain file", "name another file")
        with os.fdopen(handle, "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise WrongUseError(f"{path} cannot be read: {error.strerror}", "name another file") from None
    if len(data) > limit:
        raise WrongUseError(f"{path} is longer than {limit} bytes", "name another file")
    return data
