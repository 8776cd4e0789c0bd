"""What of the sandboxes left behind may be removed, and what is kept and why. Pure; removing is the backend's."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.register import UNUSED
from sandbox.types import Frozen, LeftBehind

_EMPTY = frozenset({UNUSED, "check", "setup"})  # kinds that hold nothing which is not elsewhere too


class Judged(Frozen):
    """One sandbox that was left behind. ``why`` is for a person."""

    left: LeftBehind
    removed: bool
    why: str


class PrunePlan(Frozen):
    """All of them, oldest first."""

    judged: tuple[Judged, ...]

    @property
    def removed(self) -> tuple[LeftBehind, ...]:
        """Those to remove."""
        return tuple(each.left for each in self.judged if each.removed)

    @property
    def kept(self) -> tuple[Judged, ...]:
        """Those that stay."""
        return tuple(each for each in self.judged if not each.removed)


def prune_plan(found: Iterable[LeftBehind], *, all_owners: bool = False) -> PrunePlan:
    """Judge what ``left_behind`` found: their processes are gone, as the backend made sure.

    Another owner's stay unless ``all_owners`` asks for them, and even then where they may hold work: only their own
    daemon can save that.
    """
    ordered = sorted(found, key=lambda left: (left.created, left.name))
    return PrunePlan(judged=tuple(_judge(left, all_owners=all_owners) for left in ordered))


def unsaved(left: LeftBehind) -> bool:
    """Whether its workspace may hold work that is nowhere else: it can still be read, and was an attempt's own."""
    return left.living and left.labels.get("kind") == "work" and "fork" not in left.labels


def _judge(left: LeftBehind, *, all_owners: bool) -> Judged:
    if not left.ours and not all_owners:
        return Judged(left=left, removed=False, why="another daemon's; --all-owners looks at those too")
    if not left.living:
        return Judged(left=left, removed=True, why="its process is gone, and nothing of its workspace is left")
    if left.ours:
        return _judge_ours(left)
    if left.labels:
        # One that was held ready has its later labels in its owner's state folder, where we do not look.
        why = "another daemon's, and it may hold work that only its next start can save"
        return Judged(left=left, removed=False, why=why)
    return Judged(left=left, removed=True, why="another daemon's, its process is gone, and nobody is named on it")


def _judge_ours(left: LeftBehind) -> Judged:
    if unsaved(left):
        why = f"it holds work of attempt {left.labels.get('attempt', '?')}; the daemon saves that when it starts"
        return Judged(left=left, removed=False, why=why)
    if "fork" in left.labels:
        return Judged(left=left, removed=True, why="its process is gone; a copy for trying something out")
    kind = left.labels.get("kind", "")
    if kind in _EMPTY or not left.labels:
        return Judged(left=left, removed=True, why=f"its process is gone, and it holds no work ({kind or 'no label'})")
    return Judged(left=left, removed=False, why=f"it is labelled {kind!r}, of which nothing is known; the daemon looks")
