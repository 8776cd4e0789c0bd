"""Where a proposal's objects come from: the pack or the granted base, and the pack brings no others.

Two ways out are closed here: content of another branch, taken from the mirror by its bare id, and objects that ride
along unseen (git-proxy's "hidden commits").
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.gitdir import GitDir
from broker.judge.facts import SUBMODULE, Facts
from broker.wire import Finding


class Origins:
    """The accounts of one proposal. ``brought`` are the ids in its pack."""

    def __init__(self, brought: frozenset[str], mirror: GitDir, base_commit: str) -> None:
        self._brought = brought
        self._mirror = mirror
        self._base_commit = base_commit

    def holds(self, oid: str) -> bool:
        """Whether an object is the pack's or the base's own."""
        return oid in self._brought or not self._beyond_base({oid})

    def is_foreign(self, facts: Facts) -> bool:
        """Whether anything is used that is neither the pack's nor the base's own."""
        used = {*facts.trees, *(c.new_oid for c in facts.changes if c.new_oid and c.new_mode != SUBMODULE)}
        return bool(self._beyond_base(used - self._brought))

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


def foreign() -> Finding:
    """The one word about content from elsewhere, there or not: any other would tell what another branch holds."""
    message = "the proposal uses content that is neither in its pack nor in the granted base"
    mend = "seal the tree again from the granted base, and send what is new in the pack"
    return Finding(rule="foreign-object", severity="fatal", message=message, mend=mend)
