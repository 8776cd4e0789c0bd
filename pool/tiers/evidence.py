"""Remembers what each session showed, in a bounded map: the longest idle session is forgotten first."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pool.config import AutoConfig
from pool.tiers import size
from pool.tiers.beneath import Request
from pool.tiers.policy import Evidence, Move, Standing
from pool.tiers.signs import Sign, rounds, sign_of
from pool.types import ChatRequest, Reply

ROOM = 1024  # tokens of answer that a window must leave; what is asked for is only a ceiling
FALLS = 8  # climbs back that are counted; calm doubles with each
SLOW = 0.7  # weight of the past in the running mean of seconds
SHORTER = 0.9  # a conversation that shrank to this share may be shown to a tier that refused it


@dataclass
class Session:
    """What one session showed. Counts are since its last move."""

    tier: str | None = None
    answers: int = 0
    falls: int = 0
    fell: bool = False
    since: int = 0
    failed_checks: int = 0
    seconds: float | None = None
    per_token: float = size.CHARS_PER_TOKEN
    signs: deque[Sign] = field(default_factory=deque)
    refused: dict[str, int] = field(default_factory=dict)

    def evidence(self, request: Request, rules: AutoConfig) -> Evidence:
        """What speaks for and against a move before this request."""
        messages = request.messages if isinstance(request, ChatRequest) else ()
        circling = rounds(messages, min(self.since, len(messages)))
        uneasy = self.failed_checks or circling > 1
        return Evidence(
            bad=sum(bool(sign.unusable) for sign in list(self.signs)[-rules.window :]),
            rounds=circling,
            unsure=_in_a_row(self.signs, lambda sign: _unsure(sign, rules)),
            failed_checks=self.failed_checks,
            calm=0 if uneasy else _in_a_row(self.signs, lambda sign: _good(sign, rules)),
            tokens=size.tokens(size.chars(request), self.per_token),
            room=min(request.max_tokens, ROOM),
            seconds=self.seconds,
            time_left=request.deadline,
        )

    def standing(self) -> Standing:
        """Where it stands."""
        return Standing(self.tier, self.answers, self.falls)

    def moved(self, move: Move, request: Request) -> None:
        """Take a move: what was counted against the old tier does not count against the new one."""
        if move.kind == "stay":
            return
        if move.kind == "climb" and self.fell:
            self.falls = min(FALLS, self.falls + 1)
        self.fell = move.kind == "descend"
        self.tier, self.answers, self.failed_checks, self.seconds = move.tier, 0, 0, None
        if move.kind != "start" and isinstance(request, ChatRequest):
            self.since = len(request.messages)
        self.signs.clear()

    def learn(self, request: Request, reply: Reply, rules: AutoConfig) -> None:
        """Take an answer that the session's tier gave."""
        self.answers += 1
        self.signs.extend(sign_of(choice, request) for choice in reply.choices[:1])
        kept = max(rules.window, rules.calm * 2**self.falls)
        while len(self.signs) > kept:
            self.signs.popleft()
        self.seconds = reply.seconds if self.seconds is None else SLOW * self.seconds + (1 - SLOW) * reply.seconds
        if reply.usage.prompt_tokens and request.n == 1:
            self.per_token = min(8.0, max(1.0, size.chars(request) / reply.usage.prompt_tokens))

    def refuse(self, tier: str, request: Request) -> None:
        """A tier said that this conversation does not fit its window."""
        self.refused[tier] = size.chars(request)

    def too_long(self, tier: str, request: Request) -> bool:
        """Whether a tier refused a conversation no longer than this one."""
        return size.chars(request) > self.refused.get(tier, float("inf")) * SHORTER


class Book:
    """All sessions that are remembered."""

    def __init__(self, rules: AutoConfig) -> None:
        self._rules = rules
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, session: str) -> Session:
        """A session's page, a new one where there is none."""
        found = self._sessions.setdefault(session, Session())
        self._sessions.move_to_end(session)
        while len(self._sessions) > self._rules.sessions:
            self._sessions.popitem(last=False)
        return found

    def note(self, session: str, *, failed_check: bool) -> None:
        """A check of the session's work failed, or passed."""
        page = self.of(session)
        page.failed_checks = page.failed_checks + 1 if failed_check else 0

    def forget(self, session: str) -> None:
        """A session is over."""
        self._sessions.pop(session, None)


def _in_a_row(signs: deque[Sign], holds: Callable[[Sign], bool]) -> int:
    return next((count for count, sign in enumerate(reversed(signs)) if not holds(sign)), len(signs))


def _unsure(sign: Sign, rules: AutoConfig) -> bool:
    return sign.confidence is not None and sign.confidence < rules.confidence


def _good(sign: Sign, rules: AutoConfig) -> bool:
    return not sign.unusable and not _unsure(sign, rules)
