"""Where each session is at home and how large it has grown. Bounded; the longest unused are forgotten first. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from pool.placement.load import Lane

Lanes = Callable[[str], Lane]


class Record:
    """One session: its home, its tokens there, and when it was last seen. ``live`` while it counts in its lane."""

    __slots__ = ("home", "live", "seen", "tokens")

    def __init__(self, home: str, tokens: int, seen: float) -> None:
        self.home = home
        self.tokens = tokens
        self.seen = seen
        self.live = False


class Sessions:
    """All sessions, the longest unseen first. Keeps each lane's count of live sessions and of their tokens."""

    def __init__(self, most: int, idle_after: float, lane: Lanes) -> None:
        self._most = most
        self._idle_after = idle_after
        self._lane = lane
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._live: OrderedDict[str, Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def live(self) -> int:
        """Sessions that will probably come back."""
        return len(self._live)

    def home(self, session: str) -> str | None:
        """The endpoint that the session used last."""
        record = self._records.get(session)
        return record.home if record else None

    def tokens(self, session: str) -> int:
        """How large the session was last; 0 for one that is not known."""
        record = self._records.get(session)
        return record.tokens if record else 0

    def put(self, session: str, home: str, tokens: int, now: float) -> None:
        """The session goes there now, so many tokens large."""
        record = self._records.pop(session, None) or Record(home, tokens, now)
        self._rest(session, record)
        record.home, record.tokens, record.seen = home, tokens, now
        self._records[session] = record
        self._live[session] = record
        record.live = True
        lane = self._lane(home)
        lane.live_sessions += 1
        lane.live_tokens += tokens
        while len(self._records) > self._most:
            gone, old = self._records.popitem(last=False)
            self._rest(gone, old)

    def grew(self, session: str, tokens: int) -> None:
        """The session is so many tokens large now."""
        record = self._records.get(session)
        if record is not None:
            if record.live:
                self._lane(record.home).live_tokens += tokens - record.tokens
            record.tokens = tokens

    def forget(self, session: str) -> None:
        """The session ended."""
        record = self._records.pop(session, None)
        if record is not None:
            self._rest(session, record)

    def leave(self, home: str) -> None:
        """The endpoint was taken away: nobody is at home there any more."""
        for session in [name for name, record in self._records.items() if record.home == home]:
            self.forget(session)

    def settle(self, now: float) -> None:
        """Count those idle for long no more."""
        while self._live:
            session, record = next(iter(self._live.items()))
            if now - record.seen < self._idle_after:
                return
            self._rest(session, record)

    def _rest(self, session: str, record: Record) -> None:
        if record.live:
            record.live = False
            del self._live[session]
            lane = self._lane(record.home)
            lane.live_sessions -= 1
            lane.live_tokens -= record.tokens
