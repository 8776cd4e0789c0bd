"""An endpoint with nothing to do keeps nobody waiting for a place that is kept for others, on a clock of the test's."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import pytest

from pool.config import AdmissionConfig, PoolConfig
from pool.dispatch import Dispatch, Outcome
from pool.lease import Lease
from pool.placement.placer import Placer
from pool.placement.view import Ask, Prompt, Site
from pool.types import RequestClass, Usage

KV = 4_096
STEP = 0.05  # seconds between two ticks of the pool


@dataclass
class Engine:
    """Prefills one prompt after the other; what was its session's last prompt may still be cached, if nobody else was.

    With ``aloud`` its first tokens are heard, else answers come whole.
    """

    prefill: float = 4e-4
    aloud: bool = False
    time: float = 100.0
    free_at: float = 0.0
    answers: list[float] = field(default_factory=list)
    waits: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = PoolConfig(admission=AdmissionConfig())
        self.dispatch = Dispatch(config, lambda: self.time, Placer(clock=lambda: self.time))
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, seconds: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.time + seconds, next(self._numbers), then))

    def send(
        self, session: str, tokens: int, then: Callable[[], None] | None = None, of: RequestClass = "default"
    ) -> None:
        def settle(outcome: Outcome) -> None:
            assert isinstance(outcome, Lease), outcome
            self.waits.setdefault(session, []).append(outcome.waited)
            self.free_at = max(self.free_at, self.time) + 0.03 + tokens * self.prefill
            if self.aloud:
                self.at(self.free_at - self.time, outcome.first_token)
            self.at(self.free_at - self.time + 0.03, lambda: over(outcome))

        def over(lease: Lease) -> None:
            self.answers.append(self.time)
            lease.finish(Usage(prompt_tokens=tokens, completion_tokens=8))
            if then is not None:
                then()

        number = next(self._numbers)
        ask = Ask(f"r{number}", "t", session, Prompt(tokens), self.time, self.time + 3600, request_class=of)
        self.dispatch.submit(ask, self.sites, frozenset(), settle)

    def sites(self) -> list[Site]:
        return [Site("a", "t", "up", 64 - self.dispatch.in_flight("a"), kv_tokens=KV)]

    def run(self, seconds: float) -> None:
        end, tick = self.time + seconds, self.time
        while self.time < end:
            tick += STEP
            while self._events and self._events[0][0] <= tick:
                self.time, _, then = heapq.heappop(self._events)
                then()
            self.time = tick
            self.dispatch.tick()


@pytest.mark.parametrize("aloud", [False, True], ids=["whole", "streamed"])
def test_sessions_that_never_come_back_leave_the_endpoint_to_those_that_wait(aloud: bool) -> None:
    engine, numbers = Engine(aloud=aloud), count()

    def client() -> None:
        engine.send(f"job {next(numbers)}", 1_500, client)

    for _ in range(4):
        client()
    engine.run(40.0)
    assert len(engine.answers) > 0.7 * 40.0 / 0.63
    assert max(max(waits) for waits in engine.waits.values()) < 5.0


@pytest.mark.parametrize("aloud", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("of", ["bulk", "default"])
def test_one_that_waits_gets_in_soon_after_the_load_stopped(of: RequestClass, aloud: bool) -> None:
    engine = Engine(aloud=aloud)
    for name in ("a", "b", "c"):
        engine.send(name, 1_000, of="interactive")
    engine.send("large", 3_500, of=of)
    engine.run(6.0)
    assert engine.waits["large"][0] < 3.0  # two seconds of others' work, and less idle than theirs to prefill anew


def test_idle_moments_between_turns_are_too_short_to_give_a_large_context_away() -> None:
    engine = Engine(prefill=2e-3)

    def turn() -> None:
        engine.at(0.5, lambda: engine.send("agent", 3_000, turn))

    engine.send("agent", 3_000, turn)
    engine.at(0.1, lambda: engine.send("other", 3_000))
    engine.run(30.0)
    assert "other" not in engine.waits or engine.waits["other"][0] > 6.0  # its share of the time, no more


def test_place_of_one_that_is_away_for_long_goes_before_that_of_one_that_just_ended() -> None:
    engine = Engine()
    engine.send("old", 1_500)
    engine.run(8.0)
    engine.send("new", 1_500)
    engine.run(0.7)
    engine.send("third", 1_500)
    engine.run(2.0)
    live = engine.dispatch._presence._sets["a"].seats
    assert "old" not in live
