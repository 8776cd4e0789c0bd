"""How long sessions stay away between turns, and for how long it pays to keep the place of one that does; pure.

A life table of each kind of absence: of those that lasted until a time, how many came back in the next while. Those
that are still away count for as long as they were, so that the share of sessions that are over is known although nobody
ever tells (Kaplan and Meier, 1958).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from dataclasses import dataclass

EDGES = tuple(0.1 * 1.5**step for step in range(26))  # seconds; the last is 42 minutes
BEGINS = (0.0, *EDGES)
LENT = 4.0  # absences that what is more general counts for
KEPT = 256.0  # absences of a table, beyond which all count half
QUIET = "no call"  # the kind of an answer that could have called a tool and did not
Kinds = tuple[str, ...]


def _expected(middle: float) -> tuple[float, ...]:
    """The share that comes back in each step where nothing is known: half within ``middle`` seconds, the rest late."""
    return tuple(1 - (middle + begin) / (middle + end) for begin, end in zip(BEGINS, EDGES, strict=False))


USUAL, LONG = _expected(1.0), _expected(60.0)


@dataclass(slots=True)
class Absence:
    """One time away. ``kinds`` are what it is one of, the most general first; ``step`` is how far it has come."""

    since: float
    kinds: Kinds
    step: int = 0
    open: bool = True


@dataclass(slots=True)
class Table:
    """How many came back in each step, and how many were still away at its end."""

    back: list[float]
    away: list[float]

    def count(self, column: list[float], step: int) -> None:
        """One more."""
        column[step] += 1
        if step == 0 and self.back[0] + self.away[0] > KEPT:
            self.back = [count / 2 for count in self.back]
            self.away = [count / 2 for count in self.away]


class Absences:
    """Tables of at most ``cap`` kinds; beyond, the one that nothing was heard of for longest is forgotten.

    Of absences at most ``most`` are ``followed`` at once; further ones are no news.
    """

    def __init__(self, cap: int = 1_000, most: int = 100_000) -> None:
        self._cap = cap
        self._most = most
        self._tables: OrderedDict[str, Table] = OrderedDict()
        self._open: tuple[deque[Absence], ...] = tuple(deque() for _ in EDGES)
        self.followed = 0

    def __len__(self) -> int:
        return len(self._tables)

    def begin(self, kinds: Kinds, now: float) -> Absence:
        """Somebody is away from now on."""
        self._pass(now)
        absence = Absence(now, kinds)
        if self.followed < self._most:
            self.followed += 1
            self._open[0].append(absence)
        return absence

    def came_back(self, absence: Absence, now: float) -> None:
        """One is over."""
        self._pass(now)
        if absence.open and absence.step < len(EDGES):
            for kind in absence.kinds:
                table = self._table(kind)
                table.count(table.back, absence.step)
        absence.open = False

    def worth(self, absence: Absence, now: float, loss: float, most: float) -> float:
        """Seconds for which to keep the place of one that is away, at most about ``most``.

        A second of keeping costs 1, who comes back to find it gone costs ``loss``. Told is the time with the least
        expected cost: it ends where so few come back in a second that waiting for them costs more.
        """
        self._pass(now)
        tables = [table for kind in absence.kinds if (table := self._tables.get(kind))]
        usual = LONG if QUIET in absence.kinds else USUAL
        elapsed = begin = max(0.0, now - absence.since)
        away, kept, least, stay = 1.0, 0.0, loss, 0.0
        for step in range(bisect_right(EDGES, elapsed), len(EDGES)):
            end = EDGES[step]
            share = (end - begin) / (end - BEGINS[step])
            still = away * (1 - _returning(tables, usual[step], step)) ** share
            kept += (end - begin) * (away + still) / 2
            if kept + loss * still < least:
                least, stay = kept + loss * still, end - elapsed
            if kept >= least or end - elapsed >= most:
                break
            away, begin = still, end
        return min(stay, most)

    def _pass(self, now: float) -> None:
        """Count those that are still away at the end of each step."""
        for step, waiting in enumerate(self._open):
            while waiting and waiting[0].since + EDGES[step] <= now:
                absence = waiting.popleft()
                if absence.open:
                    for kind in absence.kinds:
                        table = self._table(kind)
                        table.count(table.away, step)
                    absence.step = step + 1
                if absence.open and absence.step < len(EDGES):
                    self._open[absence.step].append(absence)
                else:
                    self.followed -= 1

    def _table(self, kind: str) -> Table:
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = Table([0.0] * len(EDGES), [0.0] * len(EDGES))
            if len(self._tables) > self._cap:
                self._tables.popitem(last=False)
        self._tables.move_to_end(kind)
        return table


def _returning(tables: list[Table], usual: float, step: int) -> float:
    """The share of those still away that comes back in a step: what is general counts where there is little else."""
    share = usual
    for table in tables:
        back = table.back[step]
        share = (back + LENT * share) / (back + table.away[step] + LENT)
    return share
