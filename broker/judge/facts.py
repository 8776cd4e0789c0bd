"""What a tree really changes against the base: an own walk with a budget, level by level, equal ids skipped.

Git's own walkers are not used: a pack of 787 bytes can describe 10^9 paths, and `diff-tree -r` walks them all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from broker.judge.names import folded, name_faults, name_oddities, printable
from broker.wire import Finding, Severity

TREE, FILE, EXECUTABLE, SYMLINK, SUBMODULE = "40000", "100644", "100755", "120000", "160000"
_MODES = {TREE, FILE, EXECUTABLE, SYMLINK, SUBMODULE}
MAX_DEPTH, MAX_ENTRIES, MAX_FINDINGS = 64, 100_000, 200

ReadTree = Callable[[str], bytes]


class Entry(NamedTuple):
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
        mend = "propose a smaller change"
        walk.facts.findings.append(Finding(rule="too-large", severity="fatal", message=str(spent), mend=mend))
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
        if path and new is not None and not after:
            self._fault(path, ["is an empty folder, which git does not write"])
        self._find_disorder(path, after, before)
        now = {entry.name: entry for entry in after}
        for name in sorted(before.keys() | now.keys()):
            self._entry(path, before.get(name), now.get(name), depth)

    def _entries(self, oid: str | None) -> list[Entry]:
        # No more is parsed than may be looked at: one folder can hold a million names.
        left = max(0, self._entries_left) + 1
        entries = [] if oid is None else list(itertools.islice(parse_tree(self._read(oid), len(oid) // 2), left))
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
            if old is None:
                self._fault(path, name_faults(new.name))
                self._report("odd-name", "block", path, name_oddities(new.name))
            if new.mode not in _MODES:
                self._fault(path, [f"has mode {new.mode}, which git does not write"])
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
            self._fault(path or "/", ["is not sorted as git sorts"])
        seen: dict[str, bytes] = {}
        for entry in entries:
            other = seen.get(folded(entry.name))
            if other is not None and not (other != entry.name and other in before and entry.name in before):
                self._fault(path + printable(entry.name), [f"collides with {printable(other)!r} in the same folder"])
            seen[folded(entry.name)] = entry.name

    def _fault(self, path: str, problems: list[str]) -> None:
        self._report("bad-tree", "fatal", path, problems)

    def _report(self, rule: str, severity: Severity, path: str, problems: list[str]) -> None:
        for problem in problems:
            if len(self.facts.findings) >= MAX_FINDINGS:
                raise _BudgetSpentError("too many things are wrong with the tree")
            said, mend = f"{path} {problem}", "remove or rename it"
            self.facts.findings.append(Finding(rule=rule, severity=severity, message=said, path=path, mend=mend))


def parse_tree(data: bytes, hash_bytes: int) -> Iterator[Entry]:
    """The entries of a raw tree object, read as far as they are asked for. Raises ValueError if it is malformed."""
    at = 0
    while at < len(data):
        space, end = data.find(b" ", at, at + 8), data.find(b"\0", at)
        if space < 0 or end < space or end + 1 + hash_bytes > len(data):
            raise ValueError("a tree object is malformed")
        mode, name = data[at:space].decode("ascii", "replace"), data[space + 1 : end]
        at = end + 1 + hash_bytes
        yield Entry(mode, name, data[end + 1 : at].hex())
