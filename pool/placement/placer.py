"""Chooses, reserves and learns: the memory behind the pure choice. No I/O; calls come from one thread.

What may take an ask and what it costs is decided in `pool.placement.choice`; here is only what has to be remembered
between two asks: own load, residency, prices, homes and the last decisions, all of them bounded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pool.placement.choice import Allow, Picked, Score, Stand, barred, may_fit, patience, pick, score
from pool.placement.cost import Cost
from pool.placement.load import Lane, Load, Share
from pool.placement.record import Log, Regret, Rows
from pool.placement.residency import Residency
from pool.placement.sessions import Sessions
from pool.placement.settings import Settings
from pool.placement.truth import Truth
from pool.placement.view import Ask, Decision, Site
from pool.types import Usage

Clock = Callable[[], float]


class Server:
    """What is remembered of one endpoint. ``moves`` are the times at which sessions moved to it."""

    __slots__ = ("cost", "lane", "moves", "truth")

    def __init__(self, name: str) -> None:
        self.lane = Lane(name)
        self.cost = Cost()
        self.truth = Truth()
        self.moves: deque[float] = deque(maxlen=1024)


@dataclass(slots=True)
class Fleet:
    """What all candidates of one choice have in common: the time, how many of the chain's keys each endpoint and each
    sharing group holds, other people's load where it is unknown, and the busy share of live sessions."""

    now: float
    depths: dict[str, int]
    groups: dict[str, int]
    foreign: tuple[float, float]
    duty: float


class Placer:
    """Where each ask goes. ``choose`` and ``reserve`` belong into one critical section: nothing awaits in between."""

    def __init__(self, settings: Settings | None = None, clock: Clock = time.monotonic) -> None:
        self.settings = settings or Settings()
        self._clock = clock
        self._servers: dict[str, Server] = {}
        self._residency = Residency(self.settings.default_kv_tokens)
        self._sessions = Sessions(self.settings.most_sessions, self.settings.idle_after, self._lane)
        self._log = Log(self.settings.most_decisions)
        self._in_flight = 0

    def choose(
        self, ask: Ask, sites: Sequence[Site], tried: Collection[str] = frozenset(), allow: Allow | None = None
    ) -> Decision:
        """Where the ask should go now. Nobody, where all are barred or waiting for the home is cheaper than moving."""
        now = self._clock()
        self._sessions.settle(now)
        name = self._sessions.home(ask.session)
        fleet = self._fleet(ask, sites, now)
        left_out: list[tuple[str, str]] = []
        candidates: list[Site] = []
        absent: Site | None = None
        for site in sites:
            reason = barred(ask, site, tried) or (allow(site.name) if allow else "")
            if not reason:
                candidates.append(site)
                continue
            left_out.append((site.name, reason))
            if site.name == name and not barred(ask, site, tried, at_leisure=True):
                absent = site
        if not candidates:  # better to let a server count than to refuse by an estimate
            candidates = [s for s in sites if may_fit(ask, s, tried) and not (allow and allow(s.name))]
            left_out = [(name, reason) for name, reason in left_out if all(name != s.name for s in candidates)]
        candidates = self._slow_start(candidates, name, left_out, now)
        first = name not in fleet.depths or not (absent or any(site.name == name for site in candidates))
        scores = [self._score(ask, site, fleet, name, first=first) for site in candidates]
        home = None if first else next((s for s in scores if s.stand.site.name == name), None)
        picked = pick(scores, home, self.settings)
        if picked.score and absent and not first:
            picked = self._wait_or_go(ask, picked.score, self._score(ask, absent, fleet, name, first=False), now)
        if not scores:
            picked = _nobody(sites, left_out)
        return _decision(ask, picked, Rows(scores, left_out), name, now)

    def reserve(self, ask: Ask, decision: Decision) -> Reservation:
        """Count the ask where the decision sends it. Raises ValueError for a decision that sends it nowhere."""
        if decision.endpoint is None:
            raise ValueError(f"request {ask.request}: nothing to reserve, {decision.reason}")
        self._log.keep(decision)
        return Reservation(self, ask, decision)

    def observe(
        self,
        name: str,
        running: int | None = None,
        waiting: int | None = None,
        kv_usage: float | None = None,
        prompt_tokens: int | None = None,
    ) -> None:
        """Take a scrape. None is unknown. A counter of prompt tokens that went back tells of a restart."""
        lane = self._lane(name)
        if lane.counted(prompt_tokens):
            self.restarted(name)
        lane.scraped(self._clock(), running, waiting, kv_usage)

    def learn(self, ask: Ask, endpoint: str, ttft: float | None, usage: Usage, seconds: float | None = None) -> None:
        """Take what an answer without a reservation of ours told: TTFT and whole time in seconds, and its usage."""
        now = self._clock()
        depth = self._residency.depths(ask.prompt.chain).get(endpoint, 0)
        before = Before(now, depth, self._residency.used(endpoint, ask.prompt.chain), 0, 0)
        self._learn(ask, endpoint, before, Seen(ttft, seconds, usage))

    def restarted(self, name: str) -> None:
        """The endpoint is another process than before: its cache is empty."""
        self._residency.clear(name)

    def forget(self, name: str) -> None:
        """The endpoint was removed from the pool."""
        self._residency.remove(name)
        self._sessions.leave(name)
        self._servers.pop(name, None)
        self._log.regrets.pop(name, None)

    def forget_session(self, session: str) -> None:
        """The session ended: it will not come back."""
        self._sessions.forget(session)

    def home(self, session: str) -> str | None:
        """The endpoint that the session used last."""
        return self._sessions.home(session)

    def explain(self, request: str) -> Decision | None:
        """The last decision for a request, with what came of it; None for one of long ago."""
        return self._log.get(request)

    def regrets(self) -> dict[str, Regret]:
        """What the decisions were worth, by endpoint."""
        return dict(self._log.regrets)

    def load(self, name: str) -> Load:
        """Our own work in an endpoint, and other people's as far as it is known."""
        lane = self._lane(name)
        foreign = lane.foreign(self._clock(), self.settings.fresh_for)
        return Load(
            in_flight=lane.in_flight,
            pending_tokens=lane.pending,
            context_tokens=lane.context,
            live_sessions=lane.live_sessions,
            live_tokens=lane.live_tokens,
            foreign=foreign[0] if foreign else None,
        )

    def estimate(self, ask: Ask, sites: Sequence[Site]) -> float | None:
        """Seconds to the first token if the ask went now to whichever of the living would be soonest; a pure look.

        None where nobody may ever take it. Who is full for a moment is reckoned with, its queue being in the price.
        """
        now = self._clock()
        fleet = self._fleet(ask, sites, now)
        fitting = [site for site in sites if not barred(ask, site, (), at_leisure=True)]
        waits = (self._score(ask, s, fleet, None, first=False).ttft + s.cooling for s in fitting)
        return min(waits, default=None)

    def prefill_seconds(self, name: str, tokens: int) -> float | None:
        """Seconds that so many tokens take to prefill there, alone; None for one that no answer told of yet."""
        server = self._servers.get(name)
        return server.cost.prefill(tokens) if server and server.cost.seen else None

    def cost(self, name: str) -> Cost:
        """The prices of an endpoint as fitted so far."""
        return self._server(name).cost

    def resident(self, name: str) -> int:
        """Tokens that an endpoint is believed to hold in its prefix cache."""
        return self._residency.tokens(name)

    def _server(self, name: str) -> Server:
        server = self._servers.get(name)
        if server is None:
            server = self._servers[name] = Server(name)
        return server

    def _lane(self, name: str) -> Lane:
        return self._server(name).lane

    def _fleet(self, ask: Ask, sites: Sequence[Site], now: float) -> Fleet:
        depths = self._residency.depths(ask.prompt.chain)
        groups: dict[str, int] = {}
        known: list[tuple[float, float]] = []
        for site in sites:
            if site.group is not None and site.state in ("up", "suspect") and (depth := depths.get(site.name)):
                groups[site.group] = max(depth, groups.get(site.group, 0))
            if foreign := self._lane(site.name).foreign(now, self.settings.fresh_for):
                known.append(foreign)
        usual = (sum(f for f, _ in known) / len(known), sum(w for _, w in known) / len(known)) if known else (0.0, 0.0)
        live = self._sessions.live
        return Fleet(now, depths, groups, usual, min(1.0, self._in_flight / live) if live else 1.0)

    def _score(self, ask: Ask, site: Site, fleet: Fleet, home: str | None, *, first: bool) -> Score:
        server = self._server(site.name)
        lane = server.lane
        foreign, waiting = lane.foreign(fleet.now, self.settings.fresh_for) or fleet.foreign
        base, token, pair = server.cost.prefill_terms
        step, seat = server.cost.step_terms
        batch = lane.in_flight + foreign
        if site.kv_tokens:
            self._residency.resize(site.name, site.kv_tokens)
        hit = self._tokens(ask, site, fleet.depths.get(site.name, 0), server.truth.trust)
        near = hit
        if site.group is not None and site.transfer_rate:
            near = max(hit, self._tokens(ask, site, fleet.groups.get(site.group, 0), 1.0))
        stand = Stand(
            site,
            hit,
            near,
            batch,
            (batch + fleet.duty * lane.live_sessions + foreign) / 2,
            lane.pending,
            waiting,
            lane.stay,
            base,
            token,
            pair,
            step,
            seat,
            site.kv_tokens,
            lane.context,
            lane.live_tokens,
            site.name == home,
        )
        return score(ask, stand, self.settings, fleet.now, first=first)

    def _tokens(self, ask: Ask, site: Site, depth: int, trust: float) -> int:
        """Tokens of so many keys that the endpoint would find in its cache: whole blocks, never the whole prompt."""
        if not depth:
            return 0
        held = min(depth * ask.prompt.block_tokens * trust, ask.prompt.tokens - 1)
        return int(held) // site.block_tokens * site.block_tokens

    def _slow_start(
        self, candidates: list[Site], home: str | None, left_out: list[tuple[str, str]], now: float
    ) -> list[Site]:
        """Those that may take one more session of elsewhere; all, where there would be nobody else."""
        if home is None or all(site.warmth >= 1.0 for site in candidates):
            return candidates
        since = now - self.settings.rehomed_window
        most = max(self.settings.rehomed_least, int(self.settings.rehomed_share * self._sessions.live))

        def full(site: Site) -> bool:
            moves = self._server(site.name).moves
            while moves and moves[0] < since:
                moves.popleft()
            return site.warmth < 1.0 and site.name != home and len(moves) >= most

        kept = [site for site in candidates if not full(site)]
        if not kept:
            return candidates
        out = {site.name for site in candidates} - {site.name for site in kept}
        left_out.extend((name, "slow start: enough sessions moved there lately") for name in sorted(out))
        return kept

    def _wait_or_go(self, ask: Ask, best: Score, home: Score, now: float) -> Picked:
        site, lane = home.stand.site, self._lane(home.stand.site.name)
        free_in = site.cooling or lane.stay / max(1, lane.in_flight)
        wait = patience(ask, best, home, free_in, now)
        if wait is None:
            return Picked(best, f"moves: {site.name} may not be asked now", moved_from=site.name)
        return Picked(None, f"waits for {site.name}, which holds its prefix", again=wait)

    def _begin(self, ask: Ask, decision: Decision) -> tuple[Share, Before]:
        """Count an ask in its lane and its session; believe that its prompt will be resident."""
        name, chain, now = str(decision.endpoint), ask.prompt.chain, self._clock()
        server = self._server(name)
        depth = self._residency.depths(chain).get(name, 0)
        before = Before(now, depth, self._residency.used(name, chain), server.lane.pending, server.lane.in_flight)
        uncached = max(1, ask.prompt.tokens - decision.expected_hit)
        share = Share(server.lane, uncached, ask.prompt.tokens)
        self._in_flight += 1
        if decision.moved_from is not None:
            server.moves.append(now)
        self._sessions.put(ask.session, name, ask.prompt.tokens, now)
        self._residency.insert(name, chain, ask.prompt.block_tokens, now)
        return share, before

    def _end(self, share: Share) -> bool:
        ended = share.close()
        self._in_flight -= ended
        return ended

    def _undo(self, ask: Ask, name: str, before: Before) -> None:
        """It failed before its first token: what was not resident before is not."""
        self._residency.cut(name, ask.prompt.chain, before.depth, shared=False)

    def _learn(self, ask: Ask, name: str, before: Before, seen: Seen) -> None:
        server, usage = self._server(name), seen.usage
        cached, tokens = usage.cached_tokens, usage.prompt_tokens or ask.prompt.tokens
        if cached is not None:
            told = (before.depth, cached, tokens)
            server.truth.told(self._residency, name, ask.prompt, told, (before.used, before.at))
        hit = before.depth * ask.prompt.block_tokens if cached is None else cached
        new = max(1.0, tokens - hit)
        if seen.ttft is not None:
            server.cost.saw_first(new, tokens - new, before.ahead, seen.ttft)
        if seen.seconds is not None:
            server.lane.stayed(seen.seconds)
            if seen.ttft is not None and usage.completion_tokens > 1:
                server.cost.saw_steps(usage.completion_tokens - 1, before.batch + 1, seen.seconds - seen.ttft)
        self._residency.insert(name, ask.prompt.chain, ask.prompt.block_tokens, self._clock())
        self._sessions.grew(ask.session, tokens + usage.completion_tokens)


@dataclass(frozen=True, slots=True)
class Before:
    """How an endpoint stood when a request was sent: keys it held and when it used them last, prefill tokens ahead,
    requests in it."""

    at: float
    depth: int
    used: float | None
    ahead: int
    batch: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What an answer showed. Seconds; None where it was not seen."""

    ttft: float | None
    seconds: float | None
    usage: Usage


class Reservation:
    """One request's place at an endpoint, from the choice to its end. Use as a context manager; it counts once,
    however often and in whatever order it is told of its end."""

    __slots__ = ("_ask", "_before", "_first", "_placer", "_share", "decision", "endpoint")

    def __init__(self, placer: Placer, ask: Ask, decision: Decision) -> None:
        self._placer = placer
        self._ask = ask
        self._first: float | None = None
        self.decision = decision
        self.endpoint = str(decision.endpoint)
        self._share, self._before = placer._begin(ask, decision)  # noqa: SLF001  one unit in two classes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def first_token(self) -> None:
        """The first token came: its prefill is done."""
        if self._first is None and self._share.open:
            self._first = self._placer._clock()  # noqa: SLF001
            self._share.prefilled()

    def grew(self, tokens: int) -> None:
        """So many more tokens were generated."""
        self._share.grew(tokens)

    def finish(self, usage: Usage) -> None:
        """The answer is whole: give the place back and learn from it."""
        placer = self._placer
        if not placer._end(self._share):  # noqa: SLF001
            return
        began = self._before.at
        ttft = None if self._first is None else self._first - began
        placer._learn(self._ask, self.endpoint, self._before, Seen(ttft, placer._clock() - began, usage))  # noqa: SLF001
        placer._log.close(self.decision, ttft, usage.cached_tokens)  # noqa: SLF001

    def drop(self) -> None:
        """Another word for `release`."""
        self.release()

    def release(self) -> None:
        """Give the place back without an answer; nothing where that was done."""
        if self._placer._end(self._share) and self._first is None:  # noqa: SLF001
            self._placer._undo(self._ask, self.endpoint, self._before)  # noqa: SLF001


def _decision(ask: Ask, picked: Picked, rows: Rows, home: str | None, now: float) -> Decision:
    chosen = picked.score
    if chosen is None:
        return Decision(ask.request, ask.session, None, picked.reason, rows, at=now, again=picked.again)
    name = chosen.stand.site.name
    return Decision(
        ask.request,
        ask.session,
        name,
        picked.reason,
        rows,
        expected_ttft=chosen.ttft,
        expected_hit=max(chosen.stand.hit, chosen.stand.near),
        at=now,
        moved_from=home if home is not None and home != name else None,
    )


def _nobody(sites: Sequence[Site], left_out: Sequence[tuple[str, str]]) -> Picked:
    """Why nobody may take it, and when the first of the cooling may."""
    cooling = [site.cooling for site in sites if site.cooling > 0]
    told = "; ".join(f"{name}: {reason}" for name, reason in left_out) or "the tier has no endpoint"
    return Picked(None, told, again=min(cooling, default=None))
