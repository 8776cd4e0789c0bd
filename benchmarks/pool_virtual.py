"""The load of `pool_agents` in virtual time: the pool's own dispatcher against plain ways, over pretend engines.

    python -m benchmarks.pool_virtual [--quick] [--engines 4 16] [--seeds 5] [--set force_after=60]

No socket and no clock: engines (`pool.pretend.engine`) and agents live in one queue of events, and the pool's part is
the very `Dispatch` that runs in production. So the figures are the same on every machine however busy, and they tell
what the decisions are worth, without what HTTP and this program cost. Routers of others are programs and cannot be had
in virtual time; `sticky` (a session stays where its first turn went, which was the least loaded) is what the best of
them come to. `ours` is told of tools and ends of sessions as the pool's own callers do; `ours-seen` is told nothing
and sees which tools answers call, as the gateway does; `ours-untold` sees not even that: agents that speak their tools
as text. `lmetric` (arXiv 2603.15202) sends each turn where new prefill tokens times batch is least. `bound` is no
way but a limit: KV without end, every earlier token cached on every engine, each turn at the engine with the fewest
inside. The last line is one JSON object: tokens per second of ours over the best of the others, and p99 TTFT of ours
over that of the same.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from benchmarks.agent_sessions import CHARACTERS, SYSTEM, Session, Sessions, Turn, usual
from pool.config import AdmissionConfig, PoolConfig
from pool.dispatch import Dispatch
from pool.lease import Lease
from pool.placement.placer import Placer
from pool.placement.view import Ask, Prompt, Site
from pool.pretend.engine import Engine, EngineSettings, Sequence
from pool.types import Usage
from pool.wire.metrics import Snapshot

BLOCKS = {"rich": 32_768, "scarce": 6_144}  # as in pool_agents
BLOCK = 16
AGENTS = 16  # of each engine
WARM, WINDOW = 36.0, 60.0  # seconds
SCRAPE = 0.25
IN_FLIGHT = 64
PLAIN = ("round-robin", "least-loaded", "lmetric", "sticky")
OURS = ("ours", "ours-seen", "ours-untold")
BOUND = "bound"
ENDLESS = 1_000_000  # blocks that nothing here fills
KEY = 2**63 - 1


@dataclass
class Call:
    """One turn on its way: the tokens of its context, its sequence in an engine, whom to tell, and the tools that its
    answer calls."""

    sent: float
    length: int
    turn: Turn
    sequence: Sequence
    over: Callable[[Call], None]
    called: tuple[str, ...] = ()
    endpoint: str = ""
    lease: Lease | None = None
    first: float | None = None
    ended: float | None = None


@dataclass
class Agent:
    """One agent in one session, how far it has come, and how long its context is (tokens)."""

    session: Session
    next: int
    length: int


@dataclass
class World:
    """Engines, agents and one way between them, in virtual time."""

    way: str
    engines: dict[str, Engine]
    sessions: Sessions
    admission: AdmissionConfig
    now: float = 0.0
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers, self._started = count(), count(10_000)
        self._stepping: set[str] = set()
        self._under_way: dict[str, Call] = {}
        self._homes: dict[str, str] = {}
        self._inside = dict.fromkeys(self.engines, 0)
        self._turns = count()
        self._seen: dict[tuple[str, str], int] = {}
        self.dispatch = Dispatch(PoolConfig(admission=self.admission), lambda: self.now, Placer(clock=lambda: self.now))

    def run(self, agents: int, until: float) -> None:
        """Let so many agents work until then."""
        for number in range(agents):
            session = self.sessions.session(number, under_way=True)
            self._later(0.002 * number, partial(self._begin, session))
        self._scrape()
        while self._events and self._events[0][0] <= until:
            self.now, _, act = heapq.heappop(self._events)
            act()

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), act))

    def _scrape(self) -> None:
        if self.way in OURS:
            for name, engine in self.engines.items():
                told = Snapshot(
                    running=len(engine.running), waiting=engine.waiting, preemptions=engine.counters.preemptions
                )
                self.dispatch.news(name, told)
        self._later(SCRAPE, self._scrape)

    def _begin(self, session: Session) -> None:
        said = session.turns[: session.begin]
        length = SYSTEM + sum(len(turn.text) // CHARACTERS + turn.output for turn in said)
        self._ask(Agent(session, session.begin, length))

    def _ask(self, agent: Agent) -> None:
        turn, name = agent.session.turns[agent.next], agent.session.name
        agent.length += len(turn.text) // CHARACTERS
        keys = chain(name, (agent.length + turn.output) // BLOCK)
        sequence = Sequence(f"{name}/{agent.next}", agent.length, turn.output, keys)
        if self.way == BOUND:
            sequence = Sequence(sequence.id, max(1, len(turn.text) // CHARACTERS), turn.output)
        called = () if agent.next + 1 == len(agent.session.turns) else (turn.tool,)
        call = Call(self.now, agent.length, turn, sequence, partial(self._answered, agent), called)
        self.calls.append(call)
        if self.way in OURS:
            prompt = Prompt(agent.length, keys[: agent.length // BLOCK], BLOCK)
            ask = Ask(
                request=sequence.id, tier="t", session=name, prompt=prompt, arrived=self.now, deadline=self.now + 1e5,
                program=name, turn=agent.next, output_tokens=turn.output,
            )  # fmt: skip
            self.dispatch.submit(ask, self._sites, frozenset(), partial(self._placed, call))
        else:
            self._send(call, self._plain(name, sequence))

    def _sites(self) -> list[Site]:
        return [
            Site(
                name, "t", "up", IN_FLIGHT - self.dispatch.in_flight(name), running=len(engine.running),
                waiting=engine.waiting, kv_tokens=engine.settings.kv_tokens, age=SCRAPE,
            )
            for name, engine in self.engines.items()
        ]  # fmt: skip

    def _placed(self, call: Call, outcome: Lease | Exception) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        call.lease = outcome
        self._send(call, outcome.endpoint)

    def _plain(self, session: str, sequence: Sequence) -> str:
        """The endpoint by one of the plain ways, which count exactly what they sent where."""
        names = list(self.engines)
        if self.way == "round-robin":
            return names[next(self._turns) % len(names)]
        if self.way in ("least-loaded", BOUND):
            return min(names, key=lambda name: self._inside[name])
        if self.way == "lmetric":
            return min(names, key=lambda name: self._new_tokens(name, session, sequence) * (self._inside[name] + 1))
        if session not in self._homes:
            at_home = list(self._homes.values())
            self._homes[session] = min(names, key=lambda name: (self._inside[name], at_home.count(name)))
        return self._homes[session]

    def _new_tokens(self, name: str, session: str, sequence: Sequence) -> int:
        """What would have to be computed there, as LMetric's index believes: all but what last was sent there."""
        last = self._seen.get((name, session), 0)
        return max(BLOCK, sequence.prompt - last)

    def _send(self, call: Call, endpoint: str) -> None:
        call.endpoint = endpoint
        call.sequence.arrival = self.now
        self._inside[endpoint] += 1
        self._seen[endpoint, call.sequence.id.rpartition("/")[0]] = call.sequence.prompt
        self._under_way[call.sequence.id] = call
        self.engines[endpoint].add(call.sequence)
        if endpoint not in self._stepping:
            self._stepping.add(endpoint)
            self._later(0.0, partial(self._step, endpoint))

    def _step(self, endpoint: str) -> None:
        result = self.engines[endpoint].step(self.now)
        if result.idle:
            self._stepping.discard(endpoint)
            return

        def stepped() -> None:
            for identity in result.emitted:
                self._first(self._under_way[identity])
            for sequence in result.finished:
                self._finish(self._under_way.pop(sequence.id))
            self._step(endpoint)

        self._later(result.duration, stepped)

    def _first(self, call: Call) -> None:
        if call.first is None:
            call.first = self.now
            if call.lease is not None:
                call.lease.first_token()

    def _finish(self, call: Call) -> None:
        call.ended = self.now
        self._inside[call.endpoint] -= 1
        sequence = call.sequence
        if call.lease is not None:
            told = Usage(
                prompt_tokens=sequence.prompt, completion_tokens=sequence.target, cached_tokens=sequence.cached
            )
            call.lease.finish(told, call.called if self.way == "ours-seen" else None)
        call.over(call)

    def _answered(self, agent: Agent, call: Call) -> None:
        agent.length += call.turn.output
        agent.next += 1
        name = agent.session.name
        if agent.next >= len(agent.session.turns):
            if self.way == "ours":
                self.dispatch.end_session(name)
            self._begin(self.sessions.session(next(self._started)))
            return
        if self.way == "ours":
            self.dispatch.acting(name, call.turn.tool, usual(call.turn.tool))
        self._later(call.turn.gap, partial(self._ask, agent))


def chain(session: str, blocks: int) -> tuple[int, ...]:
    """Keys of a context's blocks: the first ones are those of all sessions."""
    shared = SYSTEM // BLOCK
    own = sum(session.encode()) * 1_000_003 + int(session.rpartition("-")[2])
    return tuple((index * 2_654_435_761 + (own * 40_503 if index >= shared else 0)) & KEY for index in range(blocks))


@dataclass(frozen=True)
class Figures:
    """What one way did with one seed: tokens a second, TTFT in seconds over all calls sent, share of prompts cached."""

    tokens: float
    p50: float
    p99: float
    hit: float
    moves: int


def measure(way: str, engines: int, regime: str, seed: int, admission: AdmissionConfig) -> Figures:
    """One run. Calls without a first token when time is up count with what they had waited."""
    settings = EngineSettings(num_gpu_blocks=ENDLESS if way == BOUND else BLOCKS[regime])
    world = World(way, {f"e{n}": Engine(settings) for n in range(engines)}, Sessions(seed), admission)
    world.run(AGENTS * engines, WARM + WINDOW)
    ended = [call for call in world.calls if call.ended is not None and call.ended > WARM]
    sent = [call for call in world.calls if call.sent > WARM]
    waits = sorted((WARM + WINDOW if call.first is None else call.first) - call.sent for call in sent)
    computed = sum(call.sequence.prompt - (call.sequence.cached or 0) for call in ended)
    places: dict[str, set[str]] = {}
    for call in world.calls:
        places.setdefault(call.sequence.id.rpartition("/")[0], set()).add(call.endpoint)
    return Figures(
        tokens=sum(call.turn.output for call in ended) / WINDOW,
        p50=waits[len(waits) // 2],
        p99=waits[int(len(waits) * 0.99)],
        hit=1 - computed / sum(call.length for call in ended),
        moves=sum(len(where) - 1 for where in places.values()),
    )


def compare(engines: int, regime: str, seeds: list[int], admission: AdmissionConfig) -> tuple[float, float]:
    """Measure every way; ours over the best of the others: tokens a second, and p99 TTFT."""
    print(f"{engines} engines, KV-{regime}, {AGENTS * engines} agents, {len(seeds)} seeds:")
    rates: dict[str, float] = {}
    waits: dict[str, float] = {}
    for way in (BOUND, *PLAIN, *OURS):
        runs = [measure(way, engines, regime, seed, admission) for seed in seeds]
        middle = {name: statistics.median(getattr(run, name) for run in runs) for name in Figures.__annotations__}
        spread = sorted(run.tokens for run in runs)
        rates[way], waits[way] = middle["tokens"], middle["p99"]
        print(
            f"  {way:12} {middle['tokens']:6.0f} tok/s ({spread[0]:.0f} to {spread[-1]:.0f})  TTFT p50 "
            f"{middle['p50']:.2f} p99 {middle['p99']:.2f} s  hit {middle['hit']:.0%}  moves {middle['moves']:.0f}",
            flush=True,
        )
    best = max(PLAIN, key=lambda way: rates[way])
    for way in OURS[1:]:
        print(f"  {way} over the best of the others: {rates[way] / rates[best]:.3f}")
    return rates["ours"] / rates[best], waits["ours"] / waits[best]


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="4 engines, one seed: under a minute")
    parser.add_argument("--engines", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of pool.admission other than the defaults"
    )
    told = parser.parse_args()
    admission = AdmissionConfig.model_validate(dict(pair.split("=", 1) for pair in told.set))
    fleets, seeds = ([4], [1]) if told.quick else (told.engines, list(range(1, told.seeds + 1)))
    found = {(engines, regime): compare(engines, regime, seeds, admission) for engines in fleets for regime in BLOCKS}
    result: dict[str, float] = {}
    for regime in BLOCKS:
        result[f"ratio_best_{regime}"] = round(min(found[n, regime][0] for n in fleets), 3)
        result[f"p99_ttft_ratio_{regime}"] = round(max(found[n, regime][1] for n in fleets), 3)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
