"""What a tree really changes against the base: an own walk with a budget, level by level, equal ids skipped.

Git's own walkers are not used: a pack of 787 bytes can describe 10^9 paths, and `diff-tree -r` walks them all.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from broker.wire import Finding

TREE, FILE, EXECUTABLE, SYMLINK, SUBMODULE = "40000", "100644", "100755", "120000", "160000"
_MODES = {TREE, FILE, EXECUTABLE, SYMLINK, SUBMODULE}
_SHORT_NAME = re.compile(r"~\d+(?:\.|$)")
_DEVICES = {"con", "prn", "aux", "nul", *(f"{name}{digit}" for name in ("com", "lpt") for digit in range(1, 10))}
MAX_DEPTH, MAX_ENTRIES, MAX_NAME, MAX_FINDINGS = 64, 100_000, 255, 200

ReadTree = Callable[[str], bytes]


@dataclass(frozen=True)
class Entry:
    """One line of a tree object."""

    mode: str
    name: bytes
    oid: str

    @property
    def is_tree(self) -> bool:
        return self.mode == TREE


@dataclass(frozen=True)
class Change:
    """One path that differs. ``old_*`` is None for an added path, ``new_*`` for a deleted one."""

    path: str
    kind: Literal["added", "modified", "deleted"]
    old_mode: str | None
    new_mode: str | None
    old_oid: str | None
    new_oid: str | None


@dataclass
class Facts:
    """All changed paths, the new side's trees that were read for it, and what is wrong with the trees themselves."""

    trees: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    complete: bool = True


class _BudgetSpentError(Exception):
    """The walk met more than it may look at."""


def compare(read_tree: ReadTree, base: str, tree: str, *, max_changes: int, max_entries: int = MAX_ENTRIES) -> Facts:
    """Walks both trees and returns what differs. Stops, with a finding, at the budget or at an unreadable tree."""
    walk = _Walk(read_tree, max_changes, max_entries)
    try:
        walk.level("", base, tree, 0)
    except _BudgetSpentError as spent:
        walk.facts.complete = False
        walk.facts.findings.append(Finding(rule="too-large", message=str(spent), mend="propose a smaller change"))
    return walk.facts


class _Walk:
    def __init__(self, read_tree: ReadTree, max_changes: int, max_entries: int) -> None:
        self._read = read_tree
        self._max_changes = max_changes
        self._entries_left = max_entries
        self.facts = Facts()

    def level(self, path: str, old: str | None, new: str | None, depth: int) -> None:
        if old == new:
            return
        if depth > MAX_DEPTH:
            raise _BudgetSpentError(f"folders are nested deeper than {MAX_DEPTH}")
        self.facts.trees += [new] if new else []
        before = {entry.name: entry for entry in self._entries(old)}
        after = self._entries(new)
        self._find_disorder(path, after, before)
        now = {entry.name: entry for entry in after}
        for name in sorted(before.keys() | now.keys()):
            self._entry(path, before.get(name), now.get(name), depth)

    def _entries(self, oid: str | None) -> list[Entry]:
        entries = [] if oid is None else parse_tree(self._read(oid), len(oid) // 2)
        self._entries_left -= len(entries) + 1
        if self._entries_left < 0:
            raise _BudgetSpentError("the tree has more entries than the broker looks at")
        return entries

    def _entry(self, folder: str, old: Entry | None, new: Entry | None, depth: int) -> None:
        if old is not None and new is not None and (old.mode, old.oid) == (new.mode, new.oid):
            return
        either = new or old
        if either is None:
            return
        path = folder + printable(either.name)
        if new is not None:
            self._report(path, name_problems(new.name) if old is None else [])
            if new.mode not in _MODES:
                self._report(path, [f"has mode {new.mode}, which git does not write"])
        old_tree = old.oid if old is not None and old.is_tree else None
        new_tree = new.oid if new is not None and new.is_tree else None
        if old_tree or new_tree:
            self.level(path + "/", old_tree, new_tree, depth + 1)
        self._leaf(path, None if old_tree else old, None if new_tree else new)

    def _leaf(self, path: str, old: Entry | None, new: Entry | None) -> None:
        if old is None and new is None:
            return
        if len(self.facts.changes) >= self._max_changes:
            raise _BudgetSpentError(f"more than {self._max_changes} files are changed")
        kind: Literal["added", "modified", "deleted"] = "modified"
        if old is None or new is None:
            kind = "added" if old is None else "deleted"
        self.facts.changes.append(
            Change(
                path=path,
                kind=kind,
                old_mode=old.mode if old else None,
                new_mode=new.mode if new else None,
                old_oid=old.oid if old else None,
                new_oid=new.oid if new else None,
            )
        )

    def _find_disorder(self, path: str, entries: list[Entry], before: dict[bytes, Entry]) -> None:
        keys = [entry.name + b"/" if entry.is_tree else entry.name for entry in entries]
        if keys != sorted(keys):
            self._report(path or "/", ["is not sorted as git sorts"])
        seen: dict[str, bytes] = {}
        for entry in entries:
            other = seen.get(_folded(entry.name))
            if other is not None and not (other != entry.name and other in before and entry.name in before):
                self._report(path + printable(entry.name), [f"collides with {printable(other)!r} in the same folder"])
            seen[_folded(entry.name)] = entry.name

    def _report(self, path: str, problems: list[str]) -> None:
        for problem in problems:
            if len(self.facts.findings) >= MAX_FINDINGS:
                raise _BudgetSpentError("too many things are wrong with the tree")
            self.facts.findings.append(
                Finding(rule="bad-tree", message=f"{path} {problem}", path=path, mend="remove or rename it")
            )


def parse_tree(data: bytes, hash_bytes: int) -> list[Entry]:
    """The entries of a raw tree object. Raises ValueError if it is cut or malformed."""
    return list(_parse(data, hash_bytes))


def _parse(data: bytes, hash_bytes: int) -> Iterator[Entry]:
    at = 0
    while at < len(data):
        space, end = data.find(b" ", at, at + 8), data.find(b"\0", at)
        if space < 0 or end < space or end + 1 + hash_bytes > len(data):
            raise ValueError("a tree object is malformed")
        mode, name = data[at:space].decode("ascii", "replace"), data[space + 1 : end]
        at = end + 1 + hash_bytes
        yield Entry(mode, name, data[end + 1 : at].hex())


def name_problems(name: bytes) -> list[str]:
    """What is wrong with one path component; every look-alike of .git on HFS+ and NTFS included."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return ["has a name that is not UTF-8"]
    problems = []
    if text in {"", ".", ".."} or "/" in text:
        problems.append("has a name that leaves its folder")
    if _is_git_folder(text):
        problems.append("is a name that some file systems take for .git")
    if len(name) > MAX_NAME:
        problems.append(f"has a name longer than {MAX_NAME} bytes")
    if any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in text):
        problems.append("has control or invisible characters in its name")
    if _unportable(text):
        problems.append("has a name that means something else on other systems")
    if text.startswith("-"):
        problems.append("has a name that programs take for an option")
    return problems


def _unportable(text: str) -> bool:
    device = text.split(".", maxsplit=1)[0].casefold() in _DEVICES
    # A short name such as GITHUB~1 opens .github on NTFS.
    return device or any(c in text for c in ':\\"<>|?*') or text.endswith((" ", ".")) or bool(_SHORT_NAME.search(text))


def _is_git_folder(text: str) -> bool:
    # HFS+ ignores these, NTFS drops trailing dots and spaces, cuts at a stream colon, and knows an 8.3 name.
    seen = "".join(char for char in text if unicodedata.category(char) != "Cf")
    seen = unicodedata.normalize("NFKC", seen).casefold().split(":")[0].split("\\")[0].rstrip(" .")
    return seen in {".git", "git~1"} or (seen.startswith("git~") and seen[4:].isdigit())


def _folded(name: bytes) -> str:
    return unicodedata.normalize("NFKC", name.decode("utf-8", "surrogateescape")).casefold()


def printable(name: bytes) -> str:
    """A component for messages and policy: escapes what does not decode or would move a terminal."""
    text = name.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
