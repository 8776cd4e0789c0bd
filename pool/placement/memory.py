"""What has to be remembered between two asks: load, prices, residency, homes. All of it bounded, no I/O."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass

from pool.placement.blocks import token_chain
from pool.placement.cost import Cost
from pool.placement.kvevents import Published
from pool.placement.load import Lane, Share
from pool.placement.residency import Residency
from pool.placement.sessions import Sessions
from pool.placement.settings import Settings
from pool.placement.truth import Truth
from pool.placement.view import Ask, Prompt
from pool.types import Usage

SLOW = 0.02
ALIKE = 2.0  # times slower or faster than usual up to which a decode step counts as the usual one
USUAL_BATCH = 8
FEW = 8  # answers from which on an endpoint's decode price means something
STEPS = Cost().step_terms
SHY = 32  # answers of an endpoint from which all others learn what such a server costs


class Server:
    """What is remembered of one endpoint. ``moves`` are the times at which sessions moved to it."""

    __slots__ = ("cost", "lane", "moves", "truth")

    def __init__(self, name: str) -> None:
        self.lane = Lane(name)
        self.cost = Cost()
        self.truth = Truth()
        self.moves: deque[float] = deque(maxlen=1024)


@dataclass(frozen=True, slots=True)
class Before:
    """How an endpoint stood when a request was sent to it: keys of the prompt that it held and when it had used them
    last, prefill tokens ahead in it, own requests in it."""

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


class Memory:
    """All servers and sessions. ``least`` has the lowest of each price, which no endpoint can be below; ``duty`` is the
    share of the live sessions that have a request in flight, averaged."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.servers: dict[str, Server] = {}
        self._lanes: dict[str, Lane] = {}
        self.residency = Residency(settings.default_kv_tokens)
        self.sessions = Sessions(settings.most_sessions, settings.idle_after, self.lane)
        self.least = Lane("")
        self.foreign = self.foreign_waiting = 0.0
        self.in_flight = 0
        self.duty = 0.3
        self.views: dict[str, Published] = {}
        self._resets: dict[str, int] = {}
        self._fleet = Cost()

    def server(self, name: str) -> Server:
        """What is remembered of an endpoint, from its first mention on."""
        server = self.servers.get(name)
        if server is None:
            server = self.servers[name] = Server(name)
            self._lanes[name] = server.lane
            self._reprice()
        return server

    def lane(self, name: str) -> Lane:
        """The numbers of an endpoint that a choice reads."""
        lane = self._lanes.get(name)
        return self.server(name).lane if lane is None else lane

    def published(self, prompt: Prompt) -> dict[str, int]:
        """Tokens of the prompt that endpoints told to hold. One that missed some events may hold more than it told."""
        found: dict[str, int] = {}
        chains: dict[int, array[int]] = {}
        for name, view in self.views.items():
            if view.resets != self._resets.get(name, view.resets):
                self.restarted(name)
            self._resets[name] = view.resets
            size = view.block_tokens
            if size is None or not len(prompt.token_ids):
                continue
            if size not in chains:
                chains[size] = token_chain(prompt.token_ids, size, prompt.token_root)
            keys = view.hit(chains[size])
            if keys or view.whole:
                found[name] = keys * size
        return found

    def emptiest(self) -> float:
        """The lowest share to which live sessions fill an endpoint's KV cache; 0 where one does not tell its size."""
        return min((s.live_tokens / s.kv_tokens if s.kv_tokens else 0.0 for s in self._lanes.values()), default=0.0)

    def begin(self, ask: Ask, name: str, hit: int, now: float, *, moved: bool) -> tuple[Share, Before]:
        """Count an ask in its lane and its session, and believe that its prompt will be resident.

        At once, so that a burst with one new prefix in common is kept together.
        """
        server, prompt = self.server(name), ask.prompt
        lane = server.lane
        depth, used = self.residency.insert(name, prompt.chain, prompt.block_tokens, now)
        lane.kv_free, lane.kv_oldest = self.residency.room(name)
        before = Before(now, depth, used, lane.pending, lane.in_flight)
        share = Share(lane, max(1, prompt.tokens - hit), prompt.tokens)
        self.in_flight += 1
        if moved:
            server.moves.append(now)
        self.sessions.put(ask.session, name, prompt.tokens, now)
        self.duty += SLOW * (min(1.0, self.in_flight / self.sessions.live) - self.duty)
        return share, before

    def end(self, share: Share) -> bool:
        """Give a share back; whether it was not before."""
        ended = share.close()
        self.in_flight -= ended
        return ended

    def undo(self, ask: Ask, name: str, before: Before) -> None:
        """A request failed before its first token: what was not resident before is not."""
        self.residency.cut(name, ask.prompt.chain, before.depth, shared=False)

    def learn(self, ask: Ask, name: str, before: Before, seen: Seen, now: float) -> None:
        """Take what an answer told of hits and prices; its whole prompt is resident now."""
        server, prompt, usage = self.server(name), ask.prompt, seen.usage
        cached, tokens = usage.cached_tokens, usage.prompt_tokens or prompt.tokens
        if cached is not None:
            told = (before.depth, cached, tokens)
            server.truth.told(self.residency, name, prompt, told, (before.used, before.at))
            server.lane.trust = server.truth.trust
        hit = before.depth * prompt.block_tokens * server.lane.trust if cached is None else cached
        self._price(server, before, seen, max(1.0, tokens - hit), tokens)
        self.residency.insert(name, prompt.chain, prompt.block_tokens, now)
        self.sessions.grew(ask.session, tokens + usage.completion_tokens)

    def size(self, name: str, kv_tokens: int) -> None:
        """An endpoint's KV cache holds so many tokens."""
        lane = self.lane(name)
        lane.kv_tokens = kv_tokens
        self.residency.resize(name, kv_tokens)
        lane.kv_free, lane.kv_oldest = self.residency.room(name)

    def observe(self, name: str, now: float, running: int | None, waiting: int | None) -> None:
        """Take a scrape; what is usual among those that tell stands for those that do not."""
        self.lane(name).scraped(now, running, waiting)
        known = [s.lane for s in self.servers.values() if s.lane.scraped_at is not None]
        self.foreign = sum(lane.foreign for lane in known) / len(known) if known else 0.0
        self.foreign_waiting = sum(lane.foreign_waiting for lane in known) / len(known) if known else 0.0

    def restarted(self, name: str) -> None:
        """An endpoint is another process than before: its cache is empty."""
        lane = self.lane(name)
        self.residency.clear(name)
        lane.kv_free, lane.kv_oldest = self.residency.room(name)

    def forget(self, name: str) -> None:
        """An endpoint was removed."""
        self.residency.remove(name)
        self.sessions.leave(name)
        self.views.pop(name, None)
        self._resets.pop(name, None)
        if self.servers.pop(name, None):
            del self._lanes[name]
            self._reprice()

    def may_take(self, name: str, now: float) -> bool:
        """Whether an endpoint that warms up may take one more session of elsewhere."""
        settings, moves = self.settings, self.server(name).moves
        while moves and moves[0] < now - settings.rehomed_window:
            moves.popleft()
        return len(moves) < max(settings.rehomed_least, int(settings.rehomed_share * self.sessions.live))

    def _price(self, server: Server, before: Before, seen: Seen, new: float, tokens: int) -> None:
        costs = [server.cost] if server.cost.seen >= SHY else [server.cost, self._fleet]
        generated = seen.usage.completion_tokens
        for cost in costs:
            if seen.ttft is not None:
                cost.saw_first(new, tokens - new, before.ahead, seen.ttft)
            elif seen.seconds is not None:
                cost.saw_whole(new, tokens - new, before.ahead, generated, before.batch + 1, seen.seconds)
            if seen.ttft is not None and seen.seconds is not None and generated > 1:
                cost.saw_steps(generated - 1, before.batch + 1, seen.seconds - seen.ttft)
        if seen.seconds is not None:
            server.lane.stay += 0.1 * (seen.seconds - server.lane.stay)
        self._reprice()

    def _reprice(self) -> None:
        """Give each lane its prices: the usual ones where nothing was seen yet."""
        lanes = [server.lane for server in self.servers.values()]
        for server in self.servers.values():
            cost = server.cost if server.cost.known else self._fleet
            lane = server.lane
            lane.base, lane.token, lane.pair = cost.prefill_terms
            lane.step, lane.seat = cost.step_terms
        self._even_steps()
        for price in ("base", "token", "pair", "step", "seat"):
            setattr(self.least, price, min((getattr(lane, price) for lane in lanes), default=0.0))

    def _even_steps(self) -> None:
        """Take decode prices for one unless they differ much for sure.

        What a step takes there wobbles with other people's prefills, and no session should move for that.
        """
        servers = self.servers.values()
        known = sorted((server.lane for server in servers if server.cost.seen >= FEW), key=_step)
        step, seat = (known[(len(known) - 1) // 2].step, known[(len(known) - 1) // 2].seat) if known else STEPS
        middle = step + USUAL_BATCH * seat
        for server in servers:
            if server.cost.seen < SHY or middle / ALIKE <= _step(server.lane) <= middle * ALIKE:
                server.lane.step, server.lane.seat = step, seat


def _step(lane: Lane) -> float:
    """Seconds of a step of a batch of usual size."""
    return lane.step + USUAL_BATCH * lane.seat
