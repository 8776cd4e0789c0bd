"""What of the salvage may go: only what the forge shows as merged, or what the settings let expire. Pure.

Whatever is not known for certain stays: without a database nothing goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swarm.config import SalvageConfig
from swarm.lifecycle import HELD
from swarm.salvage.entries import Entry
from swarm.types import TaskState

DAY = 86400.0


@dataclass(frozen=True)
class Known:
    """What is known of an entry's task. ``merged``: the forge shows merged what was delivered of its tree.

    ``awaited`` names unfinished tasks that go on from it, ``ended`` is when the task ended, in seconds since 1970.
    ``only`` is for what a fork begins with, which has kept no work of its own yet.
    """

    state: TaskState | None
    open: bool = False
    merged: bool = False
    ended: float = 0.0
    awaited: tuple[str, ...] = ()
    only: bool = False
    size: int = 0


@dataclass(frozen=True)
class Fate:
    """What becomes of an entry, and why. ``merged``: it goes for that alone."""

    entry: Entry
    goes: bool
    why: str
    size: int = 0
    merged: bool = False


def fates(entries: Sequence[Entry], known: Mapping[str, Known], config: SalvageConfig, now: float) -> tuple[Fate, ...]:
    """What becomes of each entry; ``known`` by reference. An entry of which nothing is known stays."""
    judged = [_fate(entry, known.get(entry.ref), config, now) for entry in entries]
    return _within(judged, known, config)


def _fate(entry: Entry, known: Known | None, config: SalvageConfig, now: float) -> Fate:
    if known is None or known.state is None:
        return Fate(entry, goes=False, why="the database does not know its task, so nothing tells that it is finished")
    if why := needed(known):
        return Fate(entry, goes=False, why=why, size=known.size)
    if known.merged:
        return Fate(entry, goes=True, why="the forge shows it merged", size=known.size, merged=True)
    days = (now - known.ended) / DAY
    if config.keep_days is not None and days > config.keep_days:
        why = f"its task ended {days:.0f} days ago, and salvage.keep_days is {config.keep_days:g}"
        return Fate(entry, goes=True, why=why, size=known.size)
    return Fate(entry, goes=False, why="not merged, and not expired", size=known.size)


def needed(known: Known) -> str:
    """Why it must stay whatever the settings say; empty where nothing needs it."""
    if known.state is None or not known.state.final:
        return f"its task is {known.state.value if known.state else 'unknown'}"
    if known.state in HELD:
        return f"its task is {known.state.value}: a person may still have it delivered"
    if known.open:
        return "its attempt has not ended"
    if known.only:
        return "its task was forked and has kept no work of its own: it would begin with this again"
    return f"task {known.awaited[0]} goes on from it" if known.awaited else ""


def _within(judged: Sequence[Fate], known: Mapping[str, Known], config: SalvageConfig) -> tuple[Fate, ...]:
    """The oldest go too, until what stays of finished tasks fits the setting."""
    if config.keep_bytes is None:
        return tuple(judged)
    free = [fate for fate in judged if not fate.goes and _may_go(known.get(fate.entry.ref))]
    total = sum(fate.size for fate in free)
    over = set()
    for fate in sorted(free, key=lambda fate: fate.entry.at):
        if total <= config.keep_bytes:
            break
        over.add(fate.entry.ref)
        total -= fate.size
    why = f"finished tasks' work is more than salvage.keep_bytes ({config.keep_bytes}), and this is the oldest"
    return tuple(
        Fate(fate.entry, goes=True, why=why, size=fate.size) if fate.entry.ref in over else fate for fate in judged
    )


def _may_go(known: Known | None) -> bool:
    return known is not None and known.state is not None and not needed(known)
