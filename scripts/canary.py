"""Looks for a planted secret as one given user: in files, in every readable process, and in places that must stay shut.

Reads one JSON object from standard input (so that the secret is in no argument), prints the findings as a JSON list:
{"secret": TEXT, "folders": [where to look in files], "shut": [paths that this user must not be able to read],
 "trees": [process ids: only these and what they started are looked at, not every process that this user may read],
 "memory": [process ids whose memory is searched too]}
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

BLOCK = 1 << 20


def holds(path: Path, secret: bytes) -> bool:
    """Whether a file contains the secret. A file that this user cannot read does not count."""
    kept = b""
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                if secret in kept + block:
                    return True
                kept = block[-len(secret) :]
    except OSError:
        return False
    return False


def in_files(folder: Path, secret: bytes) -> Iterator[str]:
    """Every regular file and link below ``folder`` whose name, target or content holds the secret."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent) / name
            if secret in os.fsencode(path) or (path.is_symlink() and secret in os.fsencode(path.readlink())):
                yield f"the name or target of {path}"
            elif not path.is_symlink() and path.is_file() and holds(path, secret):
                yield str(path)


def in_process(pid: int, secret: bytes) -> Iterator[str]:
    """The arguments, environment and open files of a process, as far as this user may look."""
    proc = Path("/proc") / str(pid)
    for name in ("cmdline", "environ"):
        if holds(proc / name, secret):
            yield str(proc / name)
    try:
        descriptors = list((proc / "fd").iterdir())
    except OSError:
        return
    for descriptor in descriptors:
        if is_file(descriptor) and holds(descriptor, secret):
            yield f"{descriptor} (an open file)"


def is_file(path: Path) -> bool:
    """Whether it is a plain file that this user may look at; processes come and go meanwhile."""
    try:
        return path.is_file()
    except OSError:
        return False


def started_by(roots: list[int]) -> set[int]:
    """The given processes and all that descend from them."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # pid (name) state parent ...; the name may hold anything, closing brackets included
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1]
                )
    found, fresh = set(roots), set(roots)
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def in_memory(pid: int, secret: bytes) -> Iterator[str]:
    """The writable memory of a process. Raises OSError where this user may not read it."""
    maps = (Path("/proc") / str(pid) / "maps").read_text("ascii", "replace")
    with (Path("/proc") / str(pid) / "mem").open("rb", buffering=0) as memory:
        for line in maps.splitlines():
            span = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if span and _in_span(memory.fileno(), int(span[1], 16), int(span[2], 16), secret):
                yield f"memory of process {pid}: {line}"


def _in_span(memory: int, start: int, end: int, secret: bytes) -> bool:
    for at in range(start, end, BLOCK):
        try:
            block = os.pread(memory, min(BLOCK + len(secret), end - at), at)
        except OSError:
            return False  # a guard page or device memory
        if secret in block:
            return True
    return False


def open_doors(path: Path) -> Iterator[str]:
    """``path`` itself when this user can read it, although it must be shut."""
    try:
        if path.is_dir():
            list(path.iterdir())
        else:
            path.open("rb").close()
    except PermissionError:
        return
    except OSError as error:
        yield f"{path} should be shut and is not there: {error.strerror}"
        return
    yield f"{path} can be read"


def search(asked: dict[str, list[str]], secret: bytes) -> Iterator[str]:
    """All findings."""
    for folder in asked.get("folders", []):
        yield from in_files(Path(folder), secret)
    everyone = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    seen = started_by([int(pid) for pid in asked["trees"]]) if "trees" in asked else everyone
    for pid in seen - {os.getpid(), os.getppid()}:
        yield from in_process(pid, secret)
    for known in asked.get("memory", []):
        yield from in_memory(int(known), secret)
    for path in asked.get("shut", []):
        yield from open_doors(Path(path))


if __name__ == "__main__":
    question = json.load(sys.stdin)
    json.dump(sorted(search(question, question.pop("secret").encode())), sys.stdout)
