"""From a quarantined tree to a verdict: walk, policy and scan over exactly the objects that would be pushed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.config.policy import Policy
from broker.errors import GitError
from broker.gitdir import GitDir, Objects
from broker.judge.facts import MAX_ENTRIES, SUBMODULE, Change, Facts, compare
from broker.judge.policy import judge, matches
from broker.judge.scan import Scanner, is_binary
from broker.wire import Finding

_MAX_TREE_BYTES = 16 << 20
_SLACK = 200  # changes looked at beyond max_files, so that the verdict can still name the number


@dataclass(frozen=True)
class Inspection:
    """What was seen and what is wrong with it; nothing wrong means that it may be pushed."""

    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]


def inspect(store: GitDir, mirror: GitDir, base_commit: str, tree: str, policy: Policy, scanner: Scanner) -> Inspection:
    """Judges ``tree`` against the base commit's tree; every finding at once.

    Raises GitError if the mirror is broken, never for what a proposal holds.
    """
    base = mirror.tree_of(base_commit)
    try:
        with store.objects() as objects:
            foreign = _Foreign(mirror, base_commit, store.packed())
            return _Inspector(objects, policy, scanner).inspect(base, tree, foreign)
    except GitError as error:
        said = str(error).replace(str(store.path), "the quarantine").replace(str(mirror.path), "the mirror")
        finding = Finding(rule="unreadable", message=said[:1000], mend="seal the tree again from the granted base")
        return Inspection((), (finding,))


class _Inspector:
    def __init__(self, objects: Objects, policy: Policy, scanner: Scanner) -> None:
        self._objects = objects
        self._policy = policy
        self._scanner = scanner

    def inspect(self, base: str, tree: str, foreign: _Foreign) -> Inspection:
        kind = self._objects.info(tree)
        if kind is None or kind[0] != "tree":
            message = f"{tree} is not a tree in the pack or in the base"
            return Inspection((), (Finding(rule="no-such-tree", message=message, mend="name the sealed tree"),))
        try:
            facts = compare(
                self._read_tree, base, tree, max_changes=self._policy.max_files + _SLACK, max_entries=MAX_ENTRIES
            )
        except ValueError as error:
            return Inspection((), (Finding(rule="bad-tree", message=str(error), mend="seal the tree again"),))
        changes = tuple(facts.changes)
        if strange := foreign.among(facts):
            return strange
        sizes, problems = self._sizes(changes)
        findings = [*facts.findings, *problems, *judge(changes, sizes, self._policy)]
        if not facts.complete:
            findings = [finding for finding in findings if finding.rule != "no-change"]
        if facts.complete:
            findings += self._contents(changes, sizes)
        return Inspection(changes, tuple(findings))

    def _read_tree(self, oid: str) -> bytes:
        return self._objects.read(oid, "tree", _MAX_TREE_BYTES)

    def _sizes(self, changes: Sequence[Change]) -> tuple[dict[str, int], list[Finding]]:
        sizes: dict[str, int] = {}
        problems: list[Finding] = []
        for change in changes:
            if change.new_oid is None or change.new_mode == SUBMODULE:
                continue
            known = self._objects.info(change.new_oid)
            if known is None or known[0] != "blob":
                message = f"{change.path} names {change.new_oid}, which is not a file's content"
                problems.append(Finding(rule="bad-tree", message=message, path=change.path, mend="seal the tree again"))
            else:
                sizes[change.new_oid] = known[1]
        return sizes, problems

    def _contents(self, changes: Sequence[Change], sizes: dict[str, int]) -> list[Finding]:
        findings: list[Finding] = []
        moved = {change.old_oid for change in changes if change.kind == "deleted"}
        for change in changes:
            size = sizes.get(change.new_oid or "")
            if size is None or size > self._policy.max_file_bytes or change.new_oid in moved:
                continue
            new = self._objects.read(change.new_oid or "", "blob", self._policy.max_file_bytes)
            if is_binary(new) and not any(matches(change.path, pattern) for pattern in self._policy.binary_paths):
                message = f"{change.path} is a binary file"
                findings.append(Finding(rule="binary", message=message, path=change.path, mend="leave it out"))
            findings += self._scanner.scan(change.path, self._old(change), new, self._policy)
        return findings

    def _old(self, change: Change) -> bytes:
        if change.old_oid is None or change.old_mode == SUBMODULE:
            return b""
        known = self._objects.info(change.old_oid)
        # A base file too large to read counts as empty: more lines are scanned, never fewer.
        too_large = known is None or known[0] != "blob" or known[1] > 16 * self._policy.max_file_bytes
        return b"" if too_large else self._objects.read(change.old_oid, "blob", 16 * self._policy.max_file_bytes)


class _Foreign:
    """Finds objects that neither the pack brings nor the granted base reaches: another branch's, from the mirror."""

    def __init__(self, mirror: GitDir, base_commit: str, brought: frozenset[str]) -> None:
        self._mirror = mirror
        self._base_commit = base_commit
        self._brought = brought

    def among(self, facts: Facts) -> Inspection | None:
        """A verdict about them alone, for any other word about a foreign object would tell what it holds."""
        contents = {c.new_oid: c for c in facts.changes if c.new_oid and c.new_mode != SUBMODULE}
        left = self._foreign({*facts.trees, *contents} - self._brought)
        if folders := left - contents.keys():
            return Inspection((), tuple(_foreign(f"the folder {oid}", None) for oid in sorted(folders)))
        paths = sorted(contents[oid].path for oid in left)
        return Inspection(tuple(facts.changes), tuple(_foreign(path, path) for path in paths)) if left else None

    def _foreign(self, suspects: set[str]) -> set[str]:
        with self._mirror.objects() as objects:
            left = {oid for oid in suspects if objects.info(oid) is not None}
        if left:
            self._strike_reachable(left)
        return left

    def _strike_reachable(self, left: set[str]) -> None:
        rest = b""
        listing = self._mirror.stream(
            "rev-list", "--objects", "--no-object-names", "--end-of-options", self._base_commit
        )
        for chunk in listing:
            *lines, rest = (rest + chunk).split(b"\n")
            left.difference_update(line.decode() for line in lines)
            if not left:
                listing.close()
                return


def _foreign(what: str, path: str | None) -> Finding:
    message = f"{what} takes content from outside the granted base"
    return Finding(rule="foreign-object", message=message, path=path, mend="send the content in the pack")
