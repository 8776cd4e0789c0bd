"""Looks for a planted secret as one given user: in files, in every readable process, and in places that must stay shut.

Reads one JSON object from standard input (so that the secret is in no argument), prints the findings as a JSON list:
{"secret": TEXT, "folders": [where to look in files], "shut": [paths that this user must not be able to read],
 "skip": [process ids that may hold it, such as the asker], "memory": [process ids whose memory is searched too]}
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
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
        if descriptor.is_file() and holds(descriptor, secret):
            yield f"{descriptor} ({descriptor.readlink()})"


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
    skip = {os.getpid(), os.getppid(), *map(int, asked.get("skip", []))}
    for folder in asked.get("folders", []):
        yield from in_files(Path(folder), secret)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in skip:
            yield from in_process(int(entry.name), secret)
    for pid in asked.get("memory", []):
        yield from in_memory(int(pid), secret)
    for path in asked.get("shut", []):
        yield from open_doors(Path(path))


if __name__ == "__main__":
    question = json.load(sys.stdin)
    json.dump(sorted(search(question, question.pop("secret").encode())), sys.stdout)
