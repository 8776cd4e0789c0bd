"""Reads the files of a user's set: bounded, no link followed; every refusal names the place, the reason and the mend.

What lies in such a folder is data of strangers. A name that it gives never leads out of the folder that it is in.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from sandbox.trees.names import git_among, normal
from swarm.errors import EvaluationError
from swarm.evaluation.case import LONGEST_NAME, Case, File

LONGEST_TEXT = 2 * 1024 * 1024  # bytes of a statement, a description, a script
LONGEST_LINE = 32 * 1024 * 1024  # of one row
LARGEST_FILE = 16 * 1024 * 1024  # that goes into a workspace
LARGEST_TREE = 64 * 1024 * 1024  # of all files of one case
MOST_FILES = 5000  # of one case
DEEPEST = 64  # folders in folders
MOST_ROWS = 1_000_000
_SHOWN = 200  # characters of a name in a message


def refuse(where: str | Path, why: str, mend: str) -> NoReturn:
    """Raises EvaluationError for a place, a reason and a mend."""
    raise EvaluationError(f"{where}: {why}", mend)


def folder(path: Path, what: str) -> Path:
    """A folder of the user's, made absolute. Raises EvaluationError."""
    found, mend = whole(path), f"name the folder of {what}"
    try:
        if not found.is_dir():
            refuse(found, "is no folder" if found.exists() else "is not there", mend)
    except OSError as error:
        refuse(_shown(found), error.strerror or str(error), mend)
    return found


def whole(path: Path) -> Path:
    """A path as a person writes it, made absolute. Raises EvaluationError for a home that there is not."""
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        refuse(_shown(path), "begins with the home of a user who is not there", "write the path out, from / on")


def data(path: Path, most: int = LARGEST_FILE) -> bytes:
    """All of a plain file. Raises EvaluationError where it is missing, a link, special or over ``most`` bytes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = "is a link" if error.errno == errno.ELOOP else error.strerror or str(error)
        refuse(_shown(path), why, "put a plain, readable file there")
    with open(descriptor, "rb") as file:  # noqa: PTH123  a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            refuse(path, "is no plain file", "put a plain, readable file there")
        found = file.read(most + 1)
    if len(found) > most:
        refuse(path, f"is larger than {most} bytes", "make it smaller, or leave the case out")
    return found


def text(path: Path, most: int = LONGEST_TEXT) -> str:
    """A file as UTF-8 text. Raises EvaluationError."""
    raw = data(path, most)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        refuse(f"{path}, line {line}", "is not UTF-8", "save it as UTF-8")


def toml(path: Path) -> dict[str, Any]:
    """A TOML file. Raises EvaluationError, with the line that the parser names."""
    try:
        return tomllib.loads(text(path))
    except RecursionError:
        refuse(path, "nests too deep to be read", "make it flatter")
    except ValueError as error:  # also a number of more digits than Python reads
        refuse(path, f"is no TOML: {error}", "mend that line")


def json_object(path: Path) -> dict[str, Any]:
    """A JSON file that is one object. Raises EvaluationError."""
    return _object(text(path), path)


def rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a JSON or JSONL file, each with its place in words. Raises EvaluationError at the first bad one."""
    if path.suffix == ".json":
        found = _loads(text(path, 8 * LONGEST_LINE), path)
        for number, row in enumerate(found if isinstance(found, list) else [found], start=1):
            if not isinstance(row, dict):
                refuse(f"{path}, row {number}", "is no object", "write one JSON object a row")
            yield f"{path}, row {number}", row
        return
    try:
        file = path.open("rb")
    except OSError as error:
        refuse(path, error.strerror or str(error), "name a readable JSON or JSONL file")
    with file:
        for number in range(1, MOST_ROWS + 1):
            line = file.readline(LONGEST_LINE + 1)
            where = f"{path}, line {number}"
            if not line:
                return
            if len(line) > LONGEST_LINE:
                refuse(where, f"is longer than {LONGEST_LINE} bytes", "leave the row out")
            if line.strip():
                yield where, _object(line.decode("utf-8", "replace"), where)
    refuse(path, f"has more than {MOST_ROWS} lines", "split it")


def within(top: Path, name: str, where: str | Path) -> Path:
    """A path that a file of the set names, below ``top``. Raises EvaluationError where it leads out, or over a link."""
    path = top
    for part in plain(name, where).split("/"):
        path /= part
        if path.is_symlink():
            refuse(where, f"names {name!r}, which goes over a link", "put the file itself there")
    return path


def inside(top: Path, name: str) -> Path:
    """A path that the layout of a set names, below ``top``. Raises EvaluationError where it goes over a link."""
    return within(top, name, top / name)


def holding(top: Path, mark: str) -> list[Path]:
    """The folder itself where it holds a file of that name, else all folders in it that do, by name; maybe none.

    Raises EvaluationError where one of them is a link.
    """
    if (top / mark).exists():
        return [top]
    found = sorted(path.name for path in top.iterdir() if (path / mark).exists())
    return [inside(top, name) for name in found]


def plain(name: str, where: str | Path) -> str:
    """A relative path with nothing odd about it. Raises EvaluationError."""
    told = f"names the path {_shown(name)!r}"
    try:
        raw = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        refuse(where, f"{told}, which holds half of a character", "name it as it is on disk")
    found = normal(raw)
    if found is None or git_among(found.split(b"/")) is not None or "\\" in name:
        refuse(where, f"{told}, which leads out of its folder or into git's", "name a plain path in it")
    if max(map(len, found.split(b"/"))) > LONGEST_NAME:
        refuse(where, f"{told}, whose name is longer than {LONGEST_NAME} bytes", "give it a shorter name")
    return found.decode("utf-8", "surrogateescape")


def words(paths: Iterable[str]) -> str:
    """Paths as the words of a shell's command, none of them an option."""
    return shlex.join(f"./{path}" if path.startswith("-") else path for path in paths)


def tree(top: Path, *, under: str = "", leave_out: frozenset[str] = frozenset()) -> tuple[File, ...]:
    """Every file below a folder, ``under`` put before its path. ``leave_out`` are names that are passed over, at any
    depth, as `.git` always is. Raises EvaluationError for a link, a special file, and too many or too large ones."""
    found: list[File] = []
    left = LARGEST_TREE
    for path in _walk(top, leave_out | {".git"}):
        if len(found) >= MOST_FILES:
            refuse(top, f"holds more than {MOST_FILES} files", "use a smaller repository, or one as a git directory")
        content = data(path)
        left -= len(content)
        if left < 0:
            refuse(top, f"holds more than {LARGEST_TREE} bytes", "use a smaller repository, or one as a git directory")
        name = plain(under + path.relative_to(top).as_posix(), path)
        found.append(File(path=name, content=content, executable=os.access(path, os.X_OK)))
    return tuple(found)


def made(where: str | Path, **fields: Any) -> Case:
    """A case out of what was read at a place. Raises EvaluationError for what cannot be one."""
    try:
        return Case(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        what = ".".join(map(str, first["loc"])) or "the case"
        refuse(
            where, f"{what[:_SHOWN]}: {first['msg'].removeprefix('Value error, ')}", "mend that, or leave the case out"
        )


def _walk(top: Path, leave_out: frozenset[str]) -> Iterator[Path]:
    """Every path below that is no folder, by name, a folder's own before those of the folders in it."""
    waiting = [top]
    while waiting:
        here = waiting.pop()
        if here.is_symlink() or len(here.parts) - len(top.parts) > DEEPEST:
            refuse(here, "is a link, or lies too deep", f"use plain folders, at most {DEEPEST} deep")
        try:
            found = sorted(path for path in here.iterdir() if path.name not in leave_out)
        except OSError as error:
            refuse(here, error.strerror or str(error), "make it a readable folder")
        folders = [path for path in found if path.is_dir() and not path.is_symlink()]
        yield from (path for path in found if path not in set(folders))
        waiting += reversed(folders)


def _object(said: str, where: str | Path) -> dict[str, Any]:
    found = _loads(said, where)
    if not isinstance(found, dict):
        refuse(where, "is no JSON object", "write one object, in braces")
    return found


def _loads(said: str, where: str | Path) -> Any:
    try:
        return json.loads(said)
    except (ValueError, RecursionError) as error:
        refuse(where, f"is no JSON: {error}", "mend it there")


def _shown(name: str | Path) -> str:
    """What a message shows of a name."""
    said = str(name)
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."
