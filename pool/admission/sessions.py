"""What is known of each session: how its context grows, what it does between turns, when it is expected back; pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from pool.admission.absences import QUIET, Absence, Absences, Kinds
from pool.admission.classes import RANKS
from pool.admission.durations import Durations
from pool.placement.view import Ask

GROWTH = 1_000.0  # tokens a turn, until something is learned (TraceLab: 875 appended and 214 answered in the middle)
NEWS = 0.02  # weight of one turn in what is usual here
LOWEST = max(RANKS.values())
GAP = 1.0  # seconds between turns, until something is learned (86 % of gaps are shorter)
LONG_GAP = 60.0  # the same after an answer that called none of the tools that it was offered
LONGEST = 128  # characters of a tool's name; it comes from a model


@dataclass(slots=True)
class Session:
    """One growing context. ``homes`` are the endpoints where it last was, by tier.

    ``since`` is when what it does between turns began, None while its next turn waits or runs; ``doing`` is the kind of
    it, "" where nobody knows, and ``told`` whether its agent said so or its last answer. ``promised`` are the
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
    doing: str = ""
    told: bool = False
    away: Absence | None = None
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
        self._absences = Absences()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def following(self) -> int:
        """How many times between turns are followed."""
        return self._absences.followed

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

    def ended_turn(
        self, session: Session, now: float, called: Iterable[str] | None = None, *, answered: bool = True
    ) -> None:
        """A turn is over; ``called`` are the tools that its answer wants run, None where it was offered none.

        One without an answer is sent again, which tells nothing of the time between turns.
        """
        session.turns = max(0, session.turns - 1)
        session.seen = session.ended = now
        self._leaves(session, now if answered else None, "" if called is None else self._slowest(called))
        if session.name in self._sessions:
            self._sessions.move_to_end(session.name)

    def acting(self, name: str, tool: str, expected: float | None, now: float) -> Session | None:
        """The session runs a tool now, whatever was made of its answer; None where it is unknown or has a turn."""
        session = self._sessions.get(name)
        if session is None or session.turns:
            return None
        if session.told:
            self._came_back(session, now)
        self._leaves(session, now, _tool(tool) if tool else "")
        session.told, session.expected = True, expected
        return session

    def left(self, session: Session, now: float) -> float:
        """Seconds until its next turn is expected."""
        elapsed = 0.0 if session.since is None else max(0.0, now - session.since)
        if session.expected is not None:
            return session.expected - elapsed if elapsed < session.expected else elapsed
        for kind in reversed(_kinds(session)):
            learned = self.durations.left(kind, elapsed)
            if learned is not None:
                return learned
        return max(LONG_GAP if session.doing == QUIET else GAP, elapsed)

    def worth(self, session: Session, now: float, loss: float, most: float) -> float:
        """Seconds for which to keep its place, at most ``most``; to find it gone costs ``loss`` seconds."""
        return loss if session.away is None else self._absences.worth(session.away, now, loss, most)

    def ahead(self, session: Session, turns: int) -> int:
        """Tokens by which a session is expected to grow in so many turns."""
        growth = session.growth if session.growth is not None else self._growth.get(session.program, self._usual)
        return int(turns * growth)

    def end(self, name: str) -> Session | None:
        """Forget a session."""
        session = self._sessions.pop(name, None)
        if session is not None:
            _forgo(session)
        return session

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
            _forgo(oldest)
            found.append(oldest)
            del self._sessions[oldest.name]
        return found

    def _came_back(self, session: Session, now: float) -> None:
        if session.since is not None and not session.turns:
            for kind in _kinds(session):
                self.durations.learn(kind, now - session.since)
            if session.away is not None:
                self._absences.came_back(session.away, now)
        _forgo(session)
        session.since = session.expected = None

    def _leaves(self, session: Session, since: float | None, doing: str) -> None:
        """What it does between turns begins, where nothing else of it runs."""
        _forgo(session)
        session.since, session.doing, session.told, session.expected = since, doing, False, None
        if since is not None and not session.turns and self._sessions.get(session.name) is session:
            session.away = self._absences.begin(_kinds(session), since)

    def _slowest(self, called: Iterable[str]) -> str:
        """The kind of an absence in which these tools run: that of the slowest."""
        return max(map(_tool, called), key=lambda tool: self.durations.left(tool) or 0.0, default=QUIET)

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


def _forgo(session: Session) -> None:
    """Nobody counts any more how long it stays away."""
    if session.away is not None:
        session.away.open, session.away = False, None


def _tool(name: str) -> str:
    return f"tool {name[:LONGEST]}"


def _kinds(session: Session) -> Kinds:
    """Kinds of what it does between turns, the most general first: of all, of its tool, and of that in its program.

    An answer that calls nothing is mostly the last one, and has nothing to do with all others.
    """
    own = f"{session.program} {session.doing}"
    if session.doing == QUIET:
        return QUIET, own
    return ("any", session.doing, own) if session.doing else ("any", own)
