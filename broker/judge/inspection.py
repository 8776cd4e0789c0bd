"""From a quarantined tree to a verdict: walk, policy and scan over exactly the objects that would be pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from broker.config.policy import Policy
from broker.errors import GitError
from broker.gitdir import GitDir, Objects
from broker.judge.facts import MAX_ENTRIES, SUBMODULE, Change, Facts, compare
from broker.judge.origins import Origins
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
            origins = Origins(objects, store.packed(), mirror, base_commit)
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
        if kind is None or kind[0] != "tree":
            message = f"{tree} is not a tree in the pack or in the base"
            return Inspection((), (_fatal("no-such-tree", message, "name the sealed tree"),))
        try:
            most = self._policy.max_files + _SLACK
            facts = compare(self._read_tree, base, tree, max_changes=most, max_entries=MAX_ENTRIES)
        except ValueError as error:
            return Inspection((), (_fatal("bad-tree", str(error), "seal the tree again"),))
        if strange := origins.foreign(facts):
            return Inspection(*strange)
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
        for content in self._read(facts.changes, sizes):
            if content.new is not None:
                if self._watch(f"content of {content.path}", content.new):
                    findings.append(_fatal("turned-away", "the operator finds the reason in the log", "", content.path))
                findings += self._binary(content)
            findings += scan.look(content)
        return [*findings, *scan.close()]

    def _binary(self, content: Content) -> list[Finding]:
        allowed = any(permits(content.path, pattern) for pattern in self._policy.binary_paths)
        if content.new is None or content.moved or allowed or not is_binary(content.new):
            return []
        message = f"{content.path} is a binary file"
        return [Finding(rule="binary", message=message, path=content.path, mend="leave it out")]

    def _read(self, changes: Sequence[Change], sizes: Mapping[str, int]) -> Iterator[Content]:
        """What the scans look at, one file at a time: nothing beyond the size that the policy speaks against anyway."""
        gone = {change.old_oid for change in changes if change.kind == "deleted"}
        small = [change for change in changes if sizes.get(change.new_oid or "", 0) <= self._policy.max_file_bytes]
        sides = [(self._old_size(change), sizes.get(change.new_oid or "")) for change in small]
        wanted = [
            (oid, size)
            for change, (old, new) in zip(small, sides, strict=True)
            for oid, size in ((change.old_oid, old), (change.new_oid, new))
            if oid is not None and size is not None
        ]
        contents = self._objects.contents(wanted)
        for change, (old_size, new_size) in zip(small, sides, strict=True):
            old = b"" if old_size is None else next(contents)
            new = None if new_size is None else next(contents)
            yield Content(change.path, old, new, moved=change.new_oid in gone)

    def _old_size(self, change: Change) -> int | None:
        """None where there is nothing to read. A base file too large counts as empty: more is scanned, never less."""
        if change.old_oid is None or change.old_mode == SUBMODULE:
            return None
        known = self._objects.info(change.old_oid)
        too_large = known is None or known[0] != "blob" or known[1] > 16 * self._policy.max_file_bytes
        return None if known is None or too_large else known[1]


def _fatal(rule: str, message: str, mend: str, path: str | None = None) -> Finding:
    return Finding(rule=rule, severity="fatal", message=message, path=path, mend=mend)
