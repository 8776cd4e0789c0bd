"""What is known of each session: how its context grows, what it does between turns, when it is expected back; pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from pool.admission.classes import RANKS
from pool.admission.durations import Durations
from pool.placement.view import Ask

GROWTH = 1_000.0  # tokens a turn, until something is learned (TraceLab: 875 appended and 214 answered in the middle)
NEWS = 0.02  # weight of one turn in what is usual here
LOWEST = max(RANKS.values())
GAP = 1.0  # seconds between turns, until something is learned (86 % of gaps are shorter)


@dataclass(slots=True)
class Session:
    """One growing context. ``homes`` are the endpoints where it last was, by tier.

    ``since`` is when what it does between turns began, None while its next turn waits or runs. ``promised`` are the
    prompt tokens of its turn that are in the cache if its place was worth anything; ``rank`` is its last turn's class,
    ``had`` are the tokens of its last prompt and answer.
    """

    name: str
    program: str
    seen: float
    ended: float = 0.0
    prompt: int = 0
    growth: float | None = None
    turns: int = 0
    promised: int = 0
    rank: int = LOWEST
    had: int = 0
    tool: str = ""
    since: float | None = None
    expected: float | None = None
    homes: dict[str, str] = field(default_factory=dict)


class Sessions:
    """At most ``cap`` sessions, each for ``ttl`` seconds after it was last heard of."""

    def __init__(self, cap: int = 50_000, ttl: float = 3_600.0) -> None:
        self._cap = cap
        self._ttl = ttl
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._growth: OrderedDict[str, float] = OrderedDict()
        self._usual = GROWTH
        self.durations = Durations()

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, name: str) -> Session | None:
        """What is known of it."""
        return self._sessions.get(name)

    def arrived(self, ask: Ask, program: str, now: float) -> Session:
        """A turn was asked for: what the session did meanwhile is over, and its context has grown."""
        session = self._sessions.get(ask.session)
        if session is None:
            session = self._sessions[ask.session] = Session(ask.session, program, now)
        else:
            self._sessions.move_to_end(ask.session)
            session.program, session.seen = program, now
        session.rank = RANKS[ask.request_class]
        again = session.since is None and session.prompt == ask.prompt.tokens  # no answer came: a turn sent once more
        self._came_back(session, now)
        if session.prompt and not again:
            self._grew(session, ask.prompt.tokens - session.prompt)
        session.prompt = ask.prompt.tokens
        return session

    def ended_turn(self, session: Session, now: float, *, answered: bool = True) -> None:
        """A turn is over. One without an answer is sent again, which tells nothing of the time between turns."""
        session.turns = max(0, session.turns - 1)
        session.seen = session.ended = now
        session.since = now if answered else None
        session.tool, session.expected = "", None
        if session.name in self._sessions:
            self._sessions.move_to_end(session.name)

    def acting(self, name: str, tool: str, expected: float | None, now: float) -> Session | None:
        """The session runs a tool now; None for one that is not known or that has a turn running."""
        session = self._sessions.get(name)
        if session is None or session.turns:
            return None
        if session.tool:
            self._came_back(session, now)
        session.tool, session.since, session.expected = tool, now, expected
        return session

    def left(self, session: Session, now: float) -> float:
        """Seconds until its next turn is expected."""
        elapsed = 0.0 if session.since is None else max(0.0, now - session.since)
        if session.expected is not None:
            return session.expected - elapsed if elapsed < session.expected else elapsed
        for key in _keys(session):
            learned = self.durations.left(key, elapsed)
            if learned is not None:
                return learned
        return max(GAP, elapsed)

    def ahead(self, session: Session, turns: int) -> int:
        """Tokens by which a session is expected to grow in so many turns."""
        growth = session.growth if session.growth is not None else self._growth.get(session.program, self._usual)
        return int(turns * growth)

    def end(self, name: str) -> Session | None:
        """Forget a session."""
        return self._sessions.pop(name, None)

    def outdated(self, now: float) -> list[Session]:
        """Forget those beyond the bounds that have no turn running; returns them, a few at a time."""
        found: list[Session] = []
        for _ in range(8):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or (len(self._sessions) <= self._cap and now - oldest.seen < self._ttl):
                break
            if oldest.turns:
                self._sessions.move_to_end(oldest.name)
                continue
            found.append(oldest)
            del self._sessions[oldest.name]
        return found

    def _came_back(self, session: Session, now: float) -> None:
        if session.since is not None and not session.turns:
            for key in _keys(session):
                self.durations.learn(key, now - session.since)
        session.since = session.expected = None

    def _grew(self, session: Session, tokens: int) -> None:
        """A context that became shorter was compacted: no news of how it grows."""
        if tokens < 0:
            return
        session.growth = tokens if session.growth is None else session.growth + 0.3 * (tokens - session.growth)
        self._usual += NEWS * (tokens - self._usual)
        usual = self._growth.get(session.program, session.growth)
        self._growth[session.program] = usual + 0.1 * (tokens - usual)
        self._growth.move_to_end(session.program)
        while len(self._growth) > 10_000:
            self._growth.popitem(last=False)


def _keys(session: Session) -> tuple[str, ...]:
    """A tool of the same program first, then of any; what happens between turns without one told, by program."""
    tool = f"tool {session.tool}"
    return (f"{session.program} {tool}", tool) if session.tool else (f"program {session.program}",)
