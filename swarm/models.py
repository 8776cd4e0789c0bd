"""The daemon's gateway for its sandboxes: each attempt has a way in of its own, which pays from the attempt's budget.

What a program inside says of itself is not asked: its connection tells whose it is, and the servers' own counts what it
costs.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from pool.gateway.bound import Answered, Bound
from pool.gateway.handed import Handed
from pool.gateway.keys import Caller, Keys
from pool.gateway.metrics import Metrics
from pool.gateway.replies import Refusal, RefusedError
from pool.gateway.service import Service
from pool.router import Pool
from pool.tiers.front import Tiers
from swarm.budgets.account import Ledger
from swarm.errors import BudgetExceededError

CALLER = "sandbox"  # under which metrics count all of them
KEPT = 1_000  # calls that are kept until they are taken
SOON = 2.0  # seconds after which to come back where other requests hold what is left


class Meter:
    """What one attempt's model calls cost, charged to its ledger as they end. An `Account` of the gateway.

    ``over`` says why no further call is answered, empty while some are; ``limit`` names what was hit then.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._held = 0
        self._running = 0
        self._calls: deque[Answered] = deque(maxlen=KEPT)
        self._last = clock()
        self.over = ""
        self.limit = ""
        self.answers = 0
        self.model = ""

    @property
    def quiet(self) -> float:
        """Seconds since the last call was answered; 0 while one is under way."""
        return 0.0 if self._running else self._clock() - self._last

    def taken(self) -> list[Answered]:
        """The calls that ended since this was asked last."""
        calls = list(self._calls)
        self._calls.clear()
        return calls

    @contextmanager
    def holding(self, tokens: int) -> Iterator[None]:
        """As `Account` says: 403 once the budget is spent, which no client tries again, 429 while others hold it."""
        gauges = self._ledger.gauges()
        for gauge in gauges:
            if gauge.used >= gauge.limit:
                self._end(gauge.told(), gauge.name)
        if self.over:
            words = f"the budget of this task is spent ({self.over}); no further request is answered"
            raise RefusedError(Refusal(403, words, "budget_spent"))
        held = {"tokens": self._held, "steps": self._running}
        if any(gauge.used + held.get(gauge.unit, 0) >= gauge.limit for gauge in gauges):
            words = "requests of this task that are under way hold all that is left of its budget; let one end first"
            raise RefusedError(Refusal(429, words, "budget_held", retry_after=SOON))
        self._held += tokens
        self._running += 1
        try:
            yield
        finally:
            self._held -= tokens
            self._running -= 1

    def left(self) -> str:
        """As `Account` says."""
        return f"spent: {self.over}" if self.over else f"left: {self._ledger.left()}"

    def answered(self, answered: Answered) -> None:
        """As `Account` says. A refusal that cost nothing is no step."""
        self._calls.append(answered)
        self.model = answered.model or self.model
        if answered.status == "200":
            self._last = self._clock()
            self.answers += 1
        elif not answered.tokens:
            return
        try:
            self._ledger.charge(self._ledger.bill(answered, answered.tokens).model_copy(update={"steps": 1}))
        except BudgetExceededError as error:
            self._end(str(error), error.limit)

    def _end(self, why: str, limit: str) -> None:
        if not self.over:
            self.over, self.limit = why, limit


class Models:
    """Ways into the pool for attempts, by their id."""

    def __init__(self, pool: Pool, tiers: Tiers) -> None:
        config = pool.config.gateway.model_copy(update={"keys": ()})
        keys = Keys((), {}, time.monotonic)
        self._service = Service(pool=pool, tiers=tiers, config=config, keys=keys, metrics=Metrics(pool.status))
        self._open: dict[str, Handed] = {}

    @asynccontextmanager
    async def serving(self, attempt: str, task: str, tier: str, ledger: Ledger) -> AsyncIterator[Meter]:
        """Answer requests that come out of an attempt's sandboxes, for one tier, for as long as the block runs."""
        meter = Meter(ledger)
        caller = Caller(CALLER, best="default", bound=Bound(attempt, task, meter))
        handed = self._open[attempt] = Handed(self._service, caller, tier)
        try:
            yield meter
        finally:
            del self._open[attempt]
            await handed.close()

    async def connect(self, labels: Mapping[str, str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection for the sandbox with these labels. Raises ConnectionRefusedError where it may ask no model."""
        handed = self._open.get(labels.get("attempt", "")) if labels.get("kind") == "work" else None
        if handed is None:
            raise ConnectionRefusedError("no attempt at work in this sandbox may ask a model")
        return await handed.connect()
