"""Runs inside a sandbox, standard library alone: grep with Python's regular expressions, for where ripgrep is missing.

Takes one JSON object: pattern, path, glob, unlike, context, ignore_case, most. ``glob`` is None or patterns of paths,
each as its segments. Prints as ``grep -n`` does and exits as it does: 0 where something was found, 1 where nothing was,
2 for a pattern that is none.
"""

import fnmatch
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

LARGEST = 4_000_000
WIDEST = 20_000
SKIPPED = {".git", "node_modules", "__pycache__", ".venv"}


def files(path: str) -> "Iterator[str]":
    """The files of the project below a path, sorted; what git ignores is left out where there is git."""
    if os.path.isfile(path):
        yield path
        return
    listed = git(path)
    yield from sorted(set(listed)) if listed else walk(path)


def git(path: str) -> "list[str]":
    """What git knows or would add; nothing where it does not answer."""
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", path]
    try:
        answer = subprocess.run(asked, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    except OSError:
        return []
    return [os.fsdecode(name) for name in answer.stdout.split(b"\0") if name]


def walk(path: str) -> "Iterator[str]":
    """Every file but what tools put there themselves."""
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            yield os.path.normpath(os.path.join(folder, name))


def lines(path: str) -> "list[str]":
    """The lines of a text file; none of a link, a device, a huge or a binary file."""
    try:
        if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > LARGEST:
            return []
        with open(path, "rb") as file:
            data = file.read(LARGEST)
    except OSError:
        return []
    if b"\0" in data[:8192]:
        return []
    return [line.rstrip("\r")[:WIDEST] for line in data.decode("utf-8", "replace").removesuffix("\n").split("\n")]


def shown(path: str, text: "list[str]", hits: "list[int]", around: int) -> "Iterator[str]":
    """The matching lines of one file and those around them, as grep prints them."""
    found, last = set(hits), -1
    wanted = sorted({at for hit in hits for at in range(max(0, hit - around), min(len(text), hit + around + 1))})
    for at in wanted:
        if around and last >= 0 and at > last + 1:
            yield "--"
        sign = ":" if at in found else "-"
        yield f"{path}{sign}{at + 1}{sign}{text[at]}"
        last = at


def of_form(path: str, pattern: "Sequence[str]") -> bool:
    """Whether a path's parts match the segments of a pattern: `**` stands for any number of them, and a segment alone
    for a file in any folder. One row of a table for each segment, so that no pattern is slow."""
    parts = path.split("/")
    row = [True] + [False] * len(parts)
    for segment in pattern if len(pattern) > 1 else ("**", *pattern):
        if segment == "**":
            for at in range(1, len(row)):
                row[at] = row[at] or row[at - 1]
        else:
            row = [False] + [row[at] and fnmatch.fnmatchcase(part, segment) for at, part in enumerate(parts)]
    return row[-1]


def fits(path: str, glob: "list[list[str]] | None", unlike: bool = False) -> bool:  # noqa: FBT001, FBT002  as it is asked
    """Whether a file is of one of the forms asked for, or with ``unlike`` of none."""
    return glob is None or any(of_form(path, pattern) for pattern in glob) != unlike


def main(asked: "dict[str, Any]") -> int:
    """Search."""
    try:
        pattern = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        sys.stdout.write(f"{error}\n")
        return 2
    if not os.path.exists(asked["path"]):
        sys.stdout.write(f"there is no {asked['path']} in the repository\n")
        return 2
    left = asked["most"]
    for path in files(asked["path"]):
        if not fits(path, asked["glob"], asked["unlike"]):
            continue
        text = lines(path)
        hits = [at for at, line in enumerate(text) if pattern.search(line)][:left]
        left -= len(hits)
        for line in shown(path, text, hits, asked["context"]):
            sys.stdout.write(line.encode("utf-8", "replace").decode("utf-8") + "\n")
        if left <= 0:
            break
    return 0 if left < asked["most"] else 1


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace", encoding="utf-8")  # type: ignore[union-attr]
    raise SystemExit(main(json.loads(sys.argv[1])))
