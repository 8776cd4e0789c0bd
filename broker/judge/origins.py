"""Where a proposal's objects come from: the pack or the granted base, and the pack brings no others.

Two ways out are closed here: content of another branch, taken from the mirror by its bare id, and objects that ride
along unseen (git-proxy's "hidden commits").
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.gitdir import GitDir, Objects
from broker.judge.facts import SUBMODULE, Change, Facts
from broker.wire import Finding


class Origins:
    """The accounts of one proposal. ``brought`` are the ids in its pack; ``objects`` sees them and the mirror's."""

    def __init__(self, objects: Objects, brought: frozenset[str], mirror: GitDir, base_commit: str) -> None:
        self._objects = objects
        self._brought = brought
        self._mirror = mirror
        self._base_commit = base_commit

    def foreign(self, facts: Facts) -> tuple[tuple[Change, ...], tuple[Finding, ...]] | None:
        """The changes that may be shown and what is wrong; None if all is the pack's or the base's own.

        A verdict about them alone, for any other word about a foreign object would tell what it holds.
        """
        contents = {c.new_oid: c for c in facts.changes if c.new_oid and c.new_mode != SUBMODULE}
        suspects = {*facts.trees, *contents} - self._brought
        left = self._beyond_base({oid for oid in suspects if self._objects.info(oid) is not None})
        if folders := left - contents.keys():
            return (), tuple(_foreign(f"the folder {oid}", None) for oid in sorted(folders))
        paths = sorted(contents[oid].path for oid in left)
        return (tuple(facts.changes), tuple(_foreign(path, path) for path in paths)) if left else None

    def hidden(self, facts: Facts, tree: str) -> tuple[Finding, ...]:
        """What the pack holds and neither the tree reaches nor the base already has. Of a complete walk alone."""
        reached = {tree, *facts.trees, *(change.new_oid for change in facts.changes)}
        if not (left := self._beyond_base(self._brought - reached)):
            return ()
        message = f"the pack holds {len(left)} objects that the proposed tree does not reach"
        mend = "seal the tree again, and send its own objects alone"
        return (Finding(rule="hidden-object", severity="fatal", message=message, mend=mend),)

    def _beyond_base(self, suspects: Iterable[str]) -> set[str]:
        """Those that the base commit does not reach; its history is only read where there is something to look for."""
        left = set(suspects)
        if not left:
            return left
        rest = b""
        listing = self._mirror.stream(
            "rev-list", "--objects", "--no-object-names", "--end-of-options", self._base_commit
        )
        for chunk in listing:
            *lines, rest = (rest + chunk).split(b"\n")
            left.difference_update(line.decode() for line in lines)
            if not left:
                listing.close()
                break
        return left


def _foreign(what: str, path: str | None) -> Finding:
    message = f"{what} takes content from outside the granted base"
    mend = "send the content in the pack"
    return Finding(rule="foreign-object", severity="fatal", message=message, path=path, mend=mend)
