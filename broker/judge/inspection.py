"""From a quarantined tree to a verdict: walk, policy and scan over exactly the objects that would be pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from broker.config.policy import Policy
from broker.errors import GitError
from broker.gitdir import GitDir, Objects
from broker.judge.facts import MAX_ENTRIES, SUBMODULE, Change, Facts, compare
from broker.judge.origins import Origins, foreign
from broker.judge.policy import judge, permits
from broker.judge.scan.content import Content, is_binary
from broker.judge.scan.scanner import Scanner
from broker.wire import Finding

_MAX_TREE_BYTES = 16 << 20
_SLACK = 200  # changes looked at beyond max_files, so that the verdict can still name the number
_MEND = "seal the tree again from the granted base"

Watch = Callable[[str, bytes], bool]
"""Told of every content that comes in, and where it stood; the broker's planted credential is looked for in it."""


def never(_where: str, _content: bytes) -> bool:
    """Watches for nothing."""
    return False


@dataclass(frozen=True)
class Inspection:
    """What was seen and what speaks against it. Only warnings, or nothing: it may be pushed."""

    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)


def inspect(  # noqa: PLR0913, PLR0917 - two stores, two ids, and how to judge
    store: GitDir,
    mirror: GitDir,
    base_commit: str,
    tree: str,
    policy: Policy,
    scanner: Scanner,
    watch: Watch = never,
) -> Inspection:
    """Judges ``tree`` against the base commit's tree; every finding at once.

    Raises GitError if the mirror is broken, never for what a proposal holds.
    """
    with store.objects() as objects:
        base = objects.tree_of(base_commit)
        try:
            origins = Origins(store.packed(), mirror, base_commit)
            return _Inspector(objects, policy, scanner, watch).inspect(base, tree, origins)
        except GitError as error:
            said = str(error).replace(str(store.path), "the quarantine").replace(str(mirror.path), "the mirror")
            return Inspection((), (_fatal("unreadable", said[:1000], _MEND),))


class _Inspector:
    def __init__(self, objects: Objects, policy: Policy, scanner: Scanner, watch: Watch) -> None:
        self._objects = objects
        self._policy = policy
        self._scanner = scanner
        self._watch = watch

    def inspect(self, base: str, tree: str, origins: Origins) -> Inspection:
        kind = self._objects.info(tree)
        if kind is None or not origins.holds(tree):
            return Inspection((), (foreign(),))
        if kind[0] != "tree":
            return Inspection((), (_fatal("no-such-tree", f"{tree} is not a tree", "name the sealed tree"),))
        try:
            most = self._policy.max_files + _SLACK
            facts = compare(self._read_tree, base, tree, max_changes=most, max_entries=MAX_ENTRIES)
        except ValueError as error:
            return Inspection((), (_fatal("bad-tree", str(error), "seal the tree again"),))
        if origins.is_foreign(facts):
            return Inspection((), (foreign(),))
        sizes, problems = self._sizes(facts.changes)
        findings = [*facts.findings, *problems, *judge(facts.changes, sizes, self._policy)]
        if facts.complete:
            findings += [*origins.hidden(facts, tree), *self._contents(facts, sizes)]
        else:
            findings = [finding for finding in findings if finding.rule != "no-change"]
        return Inspection(tuple(facts.changes), tuple(findings), sizes)

    def _read_tree(self, oid: str) -> bytes:
        return self._objects.read(oid, "tree", _MAX_TREE_BYTES)

    def _sizes(self, changes: Sequence[Change]) -> tuple[dict[str, int], list[Finding]]:
        sizes: dict[str, int] = {}
        problems: list[Finding] = []
        sides = ((change.new_oid, change.new_mode, change.old_oid, change.old_mode) for change in changes)
        pairs = (pair for new, new_mode, old, old_mode in sides for pair in ((new, new_mode), (old, old_mode)))
        self._objects.prefetch(oid for oid, mode in pairs if oid and mode != SUBMODULE)
        for change in changes:
            if change.new_oid is None or change.new_mode == SUBMODULE:
                continue
            known = self._objects.info(change.new_oid)
            if known is None or known[0] != "blob":
                message = f"{change.path} names {change.new_oid}, which is not a file's content"
                problems.append(_fatal("bad-tree", message, "seal the tree again", change.path))
            else:
                sizes[change.new_oid] = known[1]
        return sizes, problems

    def _contents(self, facts: Facts, sizes: Mapping[str, int]) -> list[Finding]:
        findings: list[Finding] = []
        scan = self._scanner.begin(self._policy)
        looks, complete = self._looks(facts.changes, sizes)
        for content in self._read(looks, moved=_gone(facts.changes)):
            if content.new is not None:
                if self._watch(f"content of {content.path}", content.new):
                    findings.append(_fatal("turned-away", "the operator finds the reason in the log", "", content.path))
                findings += self._binary(content)
            findings += scan.look(content)
        return [*findings, *scan.close(complete=complete)]

    def _binary(self, content: Content) -> list[Finding]:
        allowed = any(permits(content.path, pattern) for pattern in self._policy.binary_paths)
        if content.new is None or content.moved or allowed or not is_binary(content.new):
            return []
        message = f"{content.path} is a binary file"
        return [Finding(rule="binary", message=message, path=content.path, mend="leave it out")]

    def _looks(self, changes: Sequence[Change], sizes: Mapping[str, int]) -> tuple[list[_Look], bool]:
        """What the scans look at, and whether it is all that policy does not speak against by its size alone.

        One content may stand under hundreds of paths, so a pack of a few bytes could ask for minutes of reading.
        """
        looks: list[_Look] = []
        room, old_room = self._policy.max_total_bytes, 4 * self._policy.max_total_bytes
        for change in changes:
            new, old = sizes.get(change.new_oid or ""), self._old_size(change)
            if new is not None and new > self._policy.max_file_bytes:
                continue
            room, old_room = room - (new or 0), old_room - (old or 0)
            if room < 0 or old_room < 0:
                return looks, False
            looks.append(_Look(change, old, new))
        return looks, True

    def _read(self, looks: Sequence[_Look], moved: frozenset[str]) -> Iterator[Content]:
        sides = (side for look in looks for side in ((look.change.old_oid, look.old), (look.change.new_oid, look.new)))
        contents = self._objects.contents([(oid, size) for oid, size in sides if oid and size is not None])
        for look in looks:
            old = b"" if look.old is None else next(contents)
            new = None if look.new is None else next(contents)
            yield Content(look.change.path, old, new, moved=look.change.new_oid in moved)

    def _old_size(self, change: Change) -> int | None:
        """None where there is nothing to read. A base file too large counts as empty: more is scanned, never less."""
        if change.old_oid is None or change.old_mode == SUBMODULE:
            return None
        known = self._objects.info(change.old_oid)
        too_large = known is None or known[0] != "blob" or known[1] > 16 * self._policy.max_file_bytes
        return None if known is None or too_large else known[1]


@dataclass(frozen=True)
class _Look:
    """One changed file to be read: the sizes of its sides, None where there is none to read."""

    change: Change
    old: int | None
    new: int | None


def _gone(changes: Sequence[Change]) -> frozenset[str]:
    return frozenset(change.old_oid for change in changes if change.kind == "deleted" and change.old_oid)


def _fatal(rule: str, message: str, mend: str, path: str | None = None) -> Finding:
    return Finding(rule=rule, severity="fatal", message=message, path=path, mend=mend)
