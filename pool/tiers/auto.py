"""The tier `auto`: gathers evidence, lets the policy decide, asks the tier that it names, and records why.

A conversation that outgrew its tier goes to one with a longer window above it; where there is none, old tool results
are left out and it is tried once more (SWE-agent/mini-swe-agent#721: there an overflow ended the whole run).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pool.config import PoolConfig
from pool.errors import ContextOverflowError, MisconfiguredError, NoEndpointError, PoolConfigError, PoolError
from pool.tiers import size
from pool.tiers.beneath import Beneath, Request, ask
from pool.tiers.evidence import Book, Session
from pool.tiers.policy import Move, Rung, decide
from pool.types import ChatRequest, EndpointStatus, Reply

LEAST = 0.001  # seconds that a request is given when its deadline is as good as over
ELSEWHERE = (NoEndpointError, MisconfiguredError, PoolConfigError)  # nobody up, set up wrongly, or just removed
NEAR = 2  # tiers up and down whose price is asked


@dataclass(frozen=True, slots=True)
class Settled:
    """A request as it is to be sent: to a plain tier, and why there. ``until`` is the end of its deadline; ``down`` are
    tiers found without any living endpoint on the way, ``shortened`` tells that old tool results were left out."""

    request: Request
    move: Move
    until: float
    down: frozenset[str] = frozenset()
    shortened: bool = False

    @property
    def why(self) -> str:
        """The reason in words, as a reply records it."""
        verb = {"start": "", "stay": " stays", "climb": " climbs", "descend": " steps down"}[self.move.kind]
        return f"auto{verb}: {self.move.why}{'; old tool results were left out' if self.shortened else ''}"


class Auto:
    """Chooses a tier for each turn of each session, and remembers why it would choose another."""

    def __init__(self, pool: Beneath, config: PoolConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = config.auto
        self._allowed = tuple(tier for tier in config.ladder if not config.auto.tiers or tier in config.auto.tiers)
        self.book = Book(config.auto)
        self._pool = pool
        self._clock = clock

    @property
    def ladder(self) -> tuple[str, ...]:
        """The tiers to choose from, the weakest first: those that have an endpoint, which may come and go."""
        there = {one.tier for one in self._pool.status()}
        return tuple(tier for tier in self._allowed if tier in there) or self._allowed

    async def answer(self, request: Request) -> Reply:
        """The answer of the tier that the policy names. Raises PoolError as that tier does, once no other may be
        asked: ContextOverflowError with the longest window where nothing is long enough."""
        settled = self.settle(request)
        while True:
            try:
                reply = await ask(self._pool, settled.request)
            except (ContextOverflowError, *ELSEWHERE) as error:
                after = self.failed(settled, error)
                if after is None:
                    raise
                settled = after
            else:
                self.learn(settled, reply)
                return reply.model_copy(update={"tier": settled.request.tier, "why": settled.why})

    def settle(self, request: Request) -> Settled:
        """The request for a plain tier; the session stands there from now on. To be followed by `learn` once the answer
        is there, or by `failed`."""
        return self._settle(request, self._clock() + request.deadline)

    def failed(self, settled: Settled, error: PoolError) -> Settled | None:
        """What to send after a tier refused; None where the error is the caller's.

        Too long: the next longer tier above, else the same without old tool results, once. Nobody up,
        or none that is set up rightly: the next tier above. Its last endpoint was removed: the weakest of those left.
        Each answer shortens or asks a tier that was not asked yet, so this ends.
        """
        request, down, shortened = settled.request, settled.down, settled.shortened
        if isinstance(error, ContextOverflowError):
            self.book.of(request.session).refuse(request.tier, request)
            ahead = self._move(request, down)
            if ahead.kind != "climb" or not ahead.fits:
                shorter = None if shortened else self._shorter(request)
                if shorter is None:
                    return None
                request, shortened = shorter, True
        elif isinstance(error, ELSEWHERE):
            down |= {request.tier}
            if self._move(request, down).tier in down:
                return None
        else:
            return None
        return self._settle(request, settled.until, down, shortened=shortened)

    def learn(self, settled: Settled, reply: Reply) -> None:
        """Take what an answer showed."""
        self.book.of(settled.request.session).learn(settled.request, reply, self.rules)

    def _settle(
        self, request: Request, until: float, down: frozenset[str] = frozenset(), *, shortened: bool = False
    ) -> Settled:
        page = self.book.of(request.session)
        move = self._move(request, down)
        page.moved(move, request)
        left = max(LEAST, min(request.deadline, until - self._clock()))
        update: dict[str, object] = {"tier": move.tier, "deadline": left}
        if self.rules.ask_logprobs:
            update["logprobs"] = True
        return Settled(request.model_copy(update=update), move, until, down, shortened)

    def _move(self, request: Request, down: frozenset[str]) -> Move:
        """What the policy says now; nobody moves by it."""
        page = self.book.of(request.session)
        rungs = tuple(self._rungs(page, request, down))
        return decide(page.evidence(request, self.rules), page.standing(), rungs, self.rules)

    def _rungs(self, page: Session, request: Request, down: frozenset[str]) -> Iterator[Rung]:
        seen: dict[str, list[EndpointStatus]] = {}
        for one in self._pool.status():
            seen.setdefault(one.tier, []).append(one)
        ladder = self.ladder
        at = ladder.index(page.tier) if page.tier in ladder else 0
        for index, tier in enumerate(ladder):
            ours = seen.get(tier, [])
            known = [one.window for one in ours if one.window is not None]
            yield Rung(
                tier,
                window=max(known, default=None),
                up=tier not in down and (not ours or any(one.state != "down" for one in ours)),
                price=self._pool.estimate(request, tier) if abs(index - at) <= NEAR else None,
                too_long=page.too_long(tier, request),
            )

    def _shorter(self, request: Request) -> Request | None:
        """The request without its old tool results; None where that is switched off or makes nothing shorter."""
        if not self.rules.compact or not isinstance(request, ChatRequest):
            return None
        messages = size.compacted(request.messages)
        shorter = request.model_copy(update={"messages": messages})
        return shorter if size.chars(shorter) < size.chars(request) else None
