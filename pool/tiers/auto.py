"""The tier `auto`: gathers evidence, lets the policy decide, asks the tier that it names, and records why.

A conversation that outgrew its tier goes to one with a longer window above it; where there is none, old tool results
are left out and it is tried once more (SWE-agent/mini-swe-agent#721: there an overflow ended the whole run).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pool.config import PoolConfig
from pool.errors import ContextOverflowError, NoEndpointError
from pool.tiers import size
from pool.tiers.beneath import Beneath, Request, ask
from pool.tiers.evidence import Book, Session
from pool.tiers.policy import Move, Rung, decide
from pool.types import ChatRequest, EndpointStatus, Reply


@dataclass(frozen=True, slots=True)
class Settled:
    """A request as it is to be sent: to a plain tier, and why there."""

    request: Request
    move: Move
    compacted: bool = False

    @property
    def why(self) -> str:
        """The reason in words, as a reply records it."""
        verb = {"start": "", "stay": "stays: ", "climb": "climbs: ", "descend": "steps down: "}[self.move.kind]
        return f"auto {verb}{self.move.why}{'; old tool results were left out' if self.compacted else ''}".strip()


class Auto:
    """Chooses a tier for each turn of each session, and remembers why it would choose another."""

    def __init__(self, pool: Beneath, config: PoolConfig) -> None:
        self.rules = config.auto
        self.ladder = tuple(tier for tier in config.ladder if not config.auto.tiers or tier in config.auto.tiers)
        self.book = Book(config.auto)
        self._pool = pool

    async def answer(self, request: Request) -> Reply:
        """The answer of the tier that the policy names. Raises PoolError as that tier does, once no other may be
        asked: ContextOverflowError with the longest window where nothing is long enough."""
        page = self.book.of(request.session)
        down: set[str] = set()
        shortened = False
        for _ in range(2 * len(self.ladder) + 1):
            settled = self.settle(request, down)
            try:
                reply = await ask(self._pool, settled.request)
            except ContextOverflowError:
                page.refuse(settled.request.tier, settled.request)
                after = self._ahead(settled.request, down)
                if after.kind != "climb" or not after.fits:
                    if shortened or (shorter := self._shorter(settled.request)) is None:
                        raise
                    shortened, request = True, shorter
            except NoEndpointError:
                down.add(settled.request.tier)
                if self._ahead(settled.request, down).kind != "climb":
                    raise
            else:
                self.learn(settled, reply)
                why = f"{settled.why}; old tool results were left out" if shortened else settled.why
                return reply.model_copy(update={"tier": settled.request.tier, "why": why})
        raise AssertionError("every turn of the loop climbs, shortens or raises")

    def settle(self, request: Request, down: set[str] | None = None) -> Settled:
        """The request for a plain tier; the session stands there from now on. ``down`` are tiers found without any
        living endpoint just now. To be followed by `learn` once the answer is there."""
        page = self.book.of(request.session)
        move = self._move(page, request, down or set())
        page.moved(move, request)
        update: dict[str, object] = {"tier": move.tier}
        if self.rules.ask_logprobs:
            update["logprobs"] = True
        return Settled(request.model_copy(update=update), move)

    def learn(self, settled: Settled, reply: Reply) -> None:
        """Take what an answer showed."""
        self.book.of(settled.request.session).learn(settled.request, reply, self.rules)

    def _ahead(self, request: Request, down: set[str]) -> Move:
        """What would be decided now, without moving."""
        return self._move(self.book.of(request.session), request, down)

    def _move(self, page: Session, request: Request, down: set[str]) -> Move:
        rungs = tuple(self._rungs(page, request, down))
        return decide(page.evidence(request, self.rules), page.standing(), rungs, self.rules)

    def _rungs(self, page: Session, request: Request, down: set[str]) -> Iterator[Rung]:
        seen: dict[str, list[EndpointStatus]] = {}
        for one in self._pool.status():
            seen.setdefault(one.tier, []).append(one)
        at = self.ladder.index(page.tier) if page.tier in self.ladder else 0
        for index, tier in enumerate(self.ladder):
            ours = seen.get(tier, [])
            known = [one.window for one in ours if one.window is not None]
            yield Rung(
                tier,
                window=max(known, default=None),
                up=tier not in down and (not ours or any(one.state != "down" for one in ours)),
                price=self._pool.estimate(request, tier) if abs(index - at) < 3 else None,
                too_long=page.too_long(tier, request),
            )

    def _shorter(self, request: Request) -> Request | None:
        """The request without its old tool results; None where that is switched off or makes nothing shorter."""
        if not self.rules.compact or not isinstance(request, ChatRequest):
            return None
        messages = size.compacted(request.messages)
        shorter = request.model_copy(update={"messages": messages})
        return shorter if size.chars(shorter) < size.chars(request) else None
