"""Who is next among the waiting: class with ageing, then who waited too long, paused sessions most recent first,
fairness, deadline, arrival.

Pure: no clock of its own and no futures. Nothing here looks at all waiting requests at once; what was taken out stays
in its heap until it comes up, and the heaps are swept once more than half of them is such.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from pool.admission.classes import LEVELS, OVERDUE, RANKS, Classes
from pool.admission.fairness import Service
from pool.placement.view import Ask

Lane = Literal["live", "paused", "new"]
LANES: tuple[Lane, ...] = ("paused", "live", "new")
NOT_LIVE: frozenset[Lane] = frozenset({"live"})


@dataclass(slots=True, eq=False)
class Ticket:
    """One waiting request. ``rank`` is its class and stays, ``level`` rises with time.

    ``lane`` tells where its session stood when it was last looked at, ``last_used`` when its session last had a turn,
    ``due`` that it has waited for longer than one should.
    """

    ask: Ask
    entered: float
    number: int
    program: str
    rank: int
    level: int
    expires: float
    lane: Lane = "new"
    last_used: float = 0.0
    waiting: bool = True
    risen: float = 0.0
    why: str = ""
    tried: frozenset[str] = frozenset()
    due: bool = False
    filing: int = 0

    @property
    def patient(self) -> bool:
        """Whether it has not waited for longer than one should, in its class or in all."""
        return not self.due and self.level != OVERDUE

    @property
    def late(self) -> bool:
        """Whether what ends its wait is its own deadline rather than its class's patience."""
        return self.expires >= self.ask.deadline


Entry = tuple[float, float, int, int, Ticket]


def _valid(entry: Entry) -> bool:
    """Whether a ticket still waits where this entry says: filing it anew makes older entries void."""
    return entry[4].waiting and entry[3] == entry[4].filing


class _Heap:
    """Tickets of one order; void entries are passed over."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, first: float, second: float, ticket: Ticket) -> None:
        heapq.heappush(self._entries, (first, second, ticket.number, ticket.filing, ticket))

    def head(self) -> Ticket | None:
        while self._entries:
            if _valid(self._entries[0]):
                return self._entries[0][4]
            heapq.heappop(self._entries)
        return None

    def sweep(self) -> None:
        self._entries = [entry for entry in self._entries if _valid(entry)]
        heapq.heapify(self._entries)


class _Fair:
    """Tickets by program, the least served program first; within one by deadline, then arrival."""

    __slots__ = ("_heaps", "_keys", "_level", "_order")

    def __init__(self, level: Callable[[str], float]) -> None:
        self._level = level
        self._heaps: dict[str, _Heap] = {}
        self._keys: dict[str, tuple[float, int]] = {}
        self._order: list[tuple[float, int, str]] = []

    def push(self, ticket: Ticket) -> None:
        heap = self._heaps.get(ticket.program)
        if heap is None:
            heap = self._heaps[ticket.program] = _Heap()
            self._place(ticket.program, ticket.number)
        heap.push(ticket.ask.deadline, ticket.entered, ticket)

    def touch(self, program: str) -> None:
        """Its service changed."""
        key = self._keys.get(program)
        if key is not None and key[0] != self._level(program):
            self._place(program, key[1])

    def _place(self, program: str, number: int) -> None:
        """Among equals, who came first: the number is that of a ticket."""
        self._keys[program] = key = (self._level(program), number)
        heapq.heappush(self._order, (*key, program))

    def head(self) -> Ticket | None:
        while self._order:
            level, number, program = self._order[0]
            if self._keys.get(program) == (level, number):
                ticket = self._heaps[program].head()
                if ticket is not None:
                    return ticket
                del self._heaps[program], self._keys[program]
            heapq.heappop(self._order)
        return None

    def sweep(self) -> None:
        for program, heap in list(self._heaps.items()):
            heap.sweep()
            if not len(heap):
                del self._heaps[program], self._keys[program]
        self._order = [(*key, program) for program, key in self._keys.items()]
        heapq.heapify(self._order)


class Queue:
    """The waiting requests of one tier. After ``patience`` seconds one is due, and then the order of arrival counts."""

    def __init__(self, classes: Classes, service: Service, patience: float) -> None:
        self._classes = classes
        self._service = service
        self._patience = patience
        self._fair = {(i, lane): _Fair(service.level) for i in range(1, LEVELS) for lane in ("live", "new")}
        self._plain = {(i, "paused"): _Heap() for i in range(1, LEVELS)}
        self._waited = {(i, lane): _Heap() for i in range(LEVELS) for lane in LANES}
        self._timers: list[tuple[float, int, Ticket]] = []
        self._tickets: dict[int, Ticket] = {}
        self._counts: Counter[int] = Counter()
        self._levels: Counter[int] = Counter()
        self._gone = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets.values())

    def count(self, rank: int) -> int:
        """How many of a class wait."""
        return self._counts[rank]

    def levels(self) -> list[int]:
        """Those in which somebody waits, the best first."""
        return [level for level in range(LEVELS) if self._levels[level]]

    def ahead(self, level: int) -> int:
        """How many wait in better levels than this one."""
        return sum(self._levels[better] for better in range(level))

    def push(self, ticket: Ticket) -> None:
        """Let a ticket wait."""
        ticket.level, ticket.risen = ticket.rank, ticket.entered
        self._tickets[ticket.number] = ticket
        self._counts[ticket.rank] += 1
        self._levels[ticket.level] += 1
        self._file(ticket)
        self._set_timer(ticket)

    def remove(self, ticket: Ticket) -> None:
        """Take a ticket out for good, also one that never was in; a second time does nothing."""
        waited = self._tickets.pop(ticket.number, None)
        ticket.waiting = False
        if waited is None:
            return
        self._counts[ticket.rank] -= 1
        self._levels[ticket.level] -= 1
        self._void()

    def refile(self, ticket: Ticket, lane: Lane, last_used: float) -> None:
        """Move a ticket whose session was paused, resumed or given a place since."""
        if ticket.lane != lane:
            ticket.lane, ticket.last_used = lane, last_used
            self._file(ticket)

    def head(self, level: int, shut: frozenset[Lane]) -> Ticket | None:
        """The next of a level, apart from shut lanes: who waited too long, unless his program got far more."""
        due = self._oldest(level, LANES, shut)
        if level == OVERDUE:
            return due
        usual = self._usual(level, shut)
        if due is None or (usual is not None and self._service.hogs(due.program, usual.program)):
            return usual
        return due

    def longest(self, level: int) -> Ticket | None:
        """Who of those without a live place waited for longest, and too long, with the same exception."""
        due = self._oldest(level, ("paused", "new"), frozenset())
        if due is None or level == OVERDUE:
            return due
        usual = self._usual(level, NOT_LIVE)
        return usual if usual is not None and usual.due and self._service.hogs(due.program, usual.program) else due

    def _oldest(self, level: int, lanes: tuple[Lane, ...], shut: frozenset[Lane]) -> Ticket | None:
        heads = [t for lane in lanes if lane not in shut and (t := self._waited[level, lane].head())]
        return min(heads, key=lambda t: (t.entered, t.number), default=None)

    def _usual(self, level: int, shut: frozenset[Lane]) -> Ticket | None:
        if "paused" not in shut and (paused := self._plain[level, "paused"].head()):
            return paused
        lanes: tuple[Lane, ...] = ("live", "new")
        fair = [t for lane in lanes if lane not in shut and (t := self._fair[level, lane].head())]
        return min(fair, key=lambda t: (self._service.level(t.program), t.ask.deadline, t.number), default=None)

    def step_over(self, ticket: Ticket) -> None:
        """Take a head out of the order so that the next one shows; `back` puts it in again."""
        ticket.filing += 1
        self._void()

    def back(self, ticket: Ticket) -> None:
        """Put a stepped-over ticket in again where it stood."""
        if ticket.waiting:
            self._file(ticket)

    def touch(self, program: str) -> None:
        """The attained service of a program changed."""
        for fair in self._fair.values():
            fair.touch(program)

    def advance(self, now: float) -> list[Ticket]:
        """Let the waiting rise; returns those whose time is over, which are out already."""
        over: list[Ticket] = []
        while self._timers and self._timers[0][0] <= now:
            ticket = heapq.heappop(self._timers)[2]
            if not ticket.waiting:
                continue
            if now >= ticket.expires:
                self.remove(ticket)
                over.append(ticket)
                continue
            if not ticket.due and now >= ticket.entered + self._patience:
                ticket.due = True
                self._file(ticket)
                self._set_timer(ticket)
                continue
            self._rise(ticket)
        return over

    def next_due(self) -> float | None:
        """When `advance` has something to do."""
        while self._timers and not self._timers[0][2].waiting:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _rise(self, ticket: Ticket) -> None:
        ticket.risen += self._classes.of(ticket.level).ageing
        self._levels[ticket.level] -= 1
        ticket.level -= 1
        self._levels[ticket.level] += 1
        self._file(ticket)
        self._set_timer(ticket)

    def _file(self, ticket: Ticket) -> None:
        ticket.filing += 1
        if ticket.due or ticket.level == OVERDUE:
            self._waited[ticket.level, ticket.lane].push(ticket.entered, 0.0, ticket)
        if ticket.level == OVERDUE:
            return
        if ticket.lane == "paused":
            self._plain[ticket.level, "paused"].push(-ticket.last_used, ticket.entered, ticket)
        else:
            self._fair[ticket.level, ticket.lane].push(ticket)

    def _set_timer(self, ticket: Ticket) -> None:
        at = ticket.expires
        if ticket.level != OVERDUE:
            at = min(at, ticket.risen + self._classes.of(ticket.level).ageing)
        if not ticket.due:
            at = min(at, ticket.entered + self._patience)
        heapq.heappush(self._timers, (at, ticket.number, ticket))

    def _void(self) -> None:
        """One more entry counts for nothing any more."""
        self._gone += 1
        if self._gone > 64 and self._gone > 2 * len(self._tickets):
            self._sweep()

    def _sweep(self) -> None:
        self._gone = 0
        for heap in (*self._plain.values(), *self._waited.values()):
            heap.sweep()
        for fair in self._fair.values():
            fair.sweep()
        self._timers = [timer for timer in self._timers if timer[2].waiting]
        heapq.heapify(self._timers)


def rank_of(ask: Ask) -> int:
    """The rank of a request's class."""
    return RANKS[ask.request_class]
