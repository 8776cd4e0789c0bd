"""Chooses, reserves, learns and explains: the door of placement. No I/O; calls come from one thread.

What may take an ask and what that costs is decided in `pool.placement.choice`, on what `pool.placement.memory` holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

from pool.placement.choice import (
    Allow,
    Picked,
    Scene,
    Score,
    barred,
    enough,
    floor,
    held_tokens,
    may_fit,
    patience,
    pick,
    score,
)
from pool.placement.cost import Cost
from pool.placement.kvevents import Published
from pool.placement.load import Load
from pool.placement.memory import Before, Memory, Seen
from pool.placement.record import LeftOut, Log, Regret, Rows
from pool.placement.reservation import Reservation
from pool.placement.settings import Settings
from pool.placement.view import Ask, Decision, Site
from pool.types import Usage

Clock = Callable[[], float]


class Placer:
    """Where each ask goes. ``choose`` and ``reserve`` belong into one critical section: nothing awaits in between."""

    def __init__(self, settings: Settings | None = None, clock: Clock = time.monotonic) -> None:
        self.settings = settings or Settings()
        self._clock = clock
        self._memory = Memory(self.settings)
        self._log = Log(self.settings.most_decisions)

    def choose(
        self, ask: Ask, sites: Sequence[Site], tried: Collection[str] = frozenset(), allow: Allow | None = None
    ) -> Decision:
        """Where the ask should go now. Nobody, where all are barred or waiting for the home is cheaper than moving."""
        now = self._clock()
        self._memory.sessions.settle(now)
        scene = self._scene(ask, sites, now)
        if not scene.first and (decision := self._stay(scene, sites, tried, allow)):
            return decision
        left_out: list[tuple[str, str]] = []
        candidates: list[Site] = []
        absent: Site | None = None
        for site in sites:
            reason = barred(ask, site, tried) or (allow(site.name) if allow else "")
            if not reason:
                candidates.append(site)
                continue
            left_out.append((site.name, reason))
            if site.name == scene.home and not barred(ask, site, tried, at_leisure=True):
                absent = site
        if not candidates:  # better to let a server count than to refuse by an estimate
            candidates = [s for s in sites if may_fit(ask, s, tried) and not (allow and allow(s.name))]
            left_out = [(name, reason) for name, reason in left_out if all(name != s.name for s in candidates)]
        return self._price(scene, self._warmed(candidates, scene, left_out), absent, left_out, sites)

    def reserve(self, ask: Ask, decision: Decision) -> Reservation:
        """Count the ask where the decision sends it. Raises ValueError for a decision that sends it nowhere."""
        if decision.endpoint is None:
            raise ValueError(f"request {ask.request}: nothing to reserve, {decision.reason}")
        self._log.keep(decision)
        return Reservation(self._memory, self._log, self._clock, ask, decision)

    def observe(
        self,
        name: str,
        running: int | None = None,
        waiting: int | None = None,
        prompt_tokens: int | None = None,
    ) -> None:
        """Take a scrape. None is unknown. A counter of prompt tokens that went back tells of a restart."""
        if self._memory.lane(name).counted(prompt_tokens):
            self.restarted(name)
        self._memory.observe(name, self._clock(), running, waiting)

    def learn(self, ask: Ask, endpoint: str, ttft: float | None, usage: Usage, seconds: float | None = None) -> None:
        """Take what an answer without a reservation of ours told: TTFT and whole time in seconds, and its usage."""
        now = self._clock()
        depth, used = self._memory.residency.insert(endpoint, ask.prompt.chain, ask.prompt.block_tokens, now)
        self._memory.learn(ask, endpoint, Before(now, depth, used, 0, 0), Seen(ttft, seconds, usage), now)

    def publish(self, name: str, view: Published | None) -> None:
        """What an endpoint tells of its own blocks, kept up to date by whoever listens to it; None: nobody does."""
        if view is None:
            self._memory.views.pop(name, None)
        else:
            self._memory.views[name] = view

    def restarted(self, name: str) -> None:
        """The endpoint is another process than before: its cache is empty."""
        self._memory.restarted(name)

    def forget(self, name: str) -> None:
        """The endpoint was removed from the pool."""
        self._memory.forget(name)
        self._log.regrets.pop(name, None)

    def forget_session(self, session: str) -> None:
        """The session ended: it will not come back."""
        self._memory.sessions.forget(session)

    def home(self, session: str) -> str | None:
        """The endpoint that the session used last."""
        return self._memory.sessions.home(session)

    def explain(self, request: str) -> Decision | None:
        """The last decision for a request, with what came of it; None for one of long ago."""
        return self._log.get(request)

    def regrets(self) -> dict[str, Regret]:
        """What the decisions were worth, by endpoint."""
        return dict(self._log.regrets)

    def load(self, name: str) -> Load:
        """Our own work in an endpoint, and other people's as far as it is known."""
        lane = self._memory.lane(name)
        believed = lane.believed(self._clock(), self.settings.fresh_for)
        return Load(
            in_flight=lane.in_flight,
            pending_tokens=lane.pending,
            context_tokens=lane.context,
            live_sessions=lane.live_sessions,
            live_tokens=lane.live_tokens,
            foreign=None if lane.scraped_at is None else lane.foreign * believed,
        )

    def estimate(self, ask: Ask, sites: Sequence[Site]) -> float | None:
        """Seconds to the first token if the ask went now to whichever of the living would be soonest; a pure look.

        None where nobody may ever take it. Who is full for a moment is reckoned with, its queue being in the price.
        """
        scene = self._scene(ask, sites, self._clock())
        scene.first = False  # seconds of its own are asked for, not what it does to others
        fitting = (site for site in sites if not barred(ask, site, (), at_leisure=True))
        waits = (score(s, self._memory.lane(s.name), scene).ttft + s.cooling for s in fitting)
        return min(waits, default=None)

    def prefill_seconds(self, name: str, tokens: int) -> float | None:
        """Seconds that so many tokens take to prefill there, alone; None for one that no answer told of yet."""
        server = self._memory.servers.get(name)
        return server.cost.prefill(tokens) if server and server.cost.known else None

    def cost(self, name: str) -> Cost:
        """The prices of an endpoint as fitted so far."""
        return self._memory.server(name).cost

    def resident(self, name: str) -> int:
        """Tokens that an endpoint is believed to hold in its prefix cache."""
        return self._memory.residency.tokens(name)

    def _scene(self, ask: Ask, sites: Sequence[Site], now: float) -> Scene:
        memory, home = self._memory, self._memory.sessions.home(ask.session)
        depths = memory.residency.depths(ask.prompt.chain)
        groups = _groups(sites, depths) if depths else {}
        foreign, waiting = memory.foreign, memory.foreign_waiting
        exact = memory.published(ask.prompt) if memory.views else {}
        scene = Scene(ask, now, self.settings, home, depths, groups, exact, foreign, waiting, memory.duty)
        if home in depths or home in exact or groups:
            at_home = (site for site in sites if site.name == home)
            held = max((held_tokens(scene, site) for site in at_home), default=0)
            # of a session that lost more than half of its prefix there is little to stay at
            scene.first = 2 * held < min(memory.sessions.tokens(ask.session), ask.prompt.tokens)
        return scene

    def _stay(
        self, scene: Scene, sites: Sequence[Site], tried: Collection[str], allow: Allow | None
    ) -> Decision | None:
        """The home, where nobody else can come near its price however idle; None where they must be priced too."""
        site = next((site for site in sites if site.name == scene.home), None)
        if (
            site is None
            or site.group is not None
            or scene.exact
            or barred(scene.ask, site, tried)
            or (allow and allow(site.name))
        ):
            return None
        home = self._scores((site,), scene)[0]
        elsewhere = max((depth for name, depth in scene.depths.items() if name != scene.home), default=0)
        emptiest = self._memory.emptiest() if home.future else 0.0
        least = floor(scene, self._memory.least, elsewhere, emptiest)
        if home.late or home.total - enough(home, self.settings) >= least:
            return None
        others = partial(_unpriced, scene.ask, sites, tried, (site.name, least))
        return _decision(scene, Picked(home, "stays: its prefix lives here"), Rows([home], others, least))

    def _price(
        self,
        scene: Scene,
        candidates: Sequence[Site],
        absent: Site | None,
        left_out: list[tuple[str, str]],
        sites: Sequence[Site],
    ) -> Decision:
        scene.first = scene.first or not (absent or any(site.name == scene.home for site in candidates))
        scores = self._scores(candidates, scene)
        home = None if scene.first else next((s for s in scores if s.name == scene.home), None)
        picked = pick(scores, home, self.settings)
        if not scores:
            picked = _nobody(sites, left_out)
        elif picked.score and absent and not scene.first:
            picked = self._wait_or_go(scene, picked.score, absent)
        return _decision(scene, picked, Rows(scores, left_out))

    def _scores(self, candidates: Sequence[Site], scene: Scene) -> list[Score]:
        memory, scores = self._memory, []
        for site in candidates:
            lane = memory.lane(site.name)
            if site.kv_tokens and site.kv_tokens != lane.kv_tokens:
                memory.size(site.name, site.kv_tokens)
            scores.append(score(site, lane, scene))
        return scores

    def _warmed(self, candidates: list[Site], scene: Scene, left_out: list[tuple[str, str]]) -> list[Site]:
        """Those that may take one more session of elsewhere; all, where there would be nobody else."""
        if scene.home is None or all(site.warmth >= 1.0 for site in candidates):
            return candidates
        memory, now = self._memory, scene.now
        full = {
            site.name
            for site in candidates
            if site.warmth < 1.0 and site.name != scene.home and not memory.may_take(site.name, now)
        }
        if len(full) == len(candidates):
            return candidates
        left_out.extend((name, "slow start: enough sessions moved there lately") for name in sorted(full))
        return [site for site in candidates if site.name not in full]

    def _wait_or_go(self, scene: Scene, best: Score, site: Site) -> Picked:
        """The home is alive but may not be asked this moment: whichever costs less seconds, waiting or moving."""
        lane = self._memory.lane(site.name)
        free_in = site.cooling or lane.stay / max(1, lane.in_flight)
        wait = patience(scene.ask, best, self._scores((site,), scene)[0], free_in, scene.now)
        if wait is None:
            return Picked(best, f"moves: {site.name} may not be asked now")
        return Picked(None, f"waits for {site.name}, which holds its prefix", again=wait)


def _groups(sites: Sequence[Site], depths: dict[str, int]) -> dict[str, int]:
    """How many of the chain's keys each sharing group holds, on whichever of its living members."""
    groups: dict[str, int] = {}
    for site in sites:
        if site.group is not None and site.state != "down":
            groups[site.group] = max(groups.get(site.group, 0), depths.get(site.name, 0))
    return groups


def _decision(scene: Scene, picked: Picked, rows: Rows) -> Decision:
    chosen, ask = picked.score, scene.ask
    if chosen is None:
        return Decision(ask.request, ask.session, None, picked.reason, rows, at=scene.now, again=picked.again)
    moved = scene.home if scene.home != chosen.name else None
    return Decision(
        ask.request, ask.session, chosen.name, picked.reason, rows, chosen.ttft, chosen.hit, scene.now, moved
    )


def _unpriced(ask: Ask, sites: Sequence[Site], tried: Collection[str], staying: tuple[str, float]) -> LeftOut:
    """Why the others were not even priced."""
    told = f"not priced: costs {staying[1]:.2f} s at least"
    return [(site.name, barred(ask, site, tried) or told) for site in sites if site.name != staying[0]]


def _nobody(sites: Sequence[Site], left_out: LeftOut) -> Picked:
    """Why nobody may take it, and when the first of the cooling may."""
    cooling = [site.cooling for site in sites if site.cooling > 0]
    told = "; ".join(f"{name}: {reason}" for name, reason in left_out) or "the tier has no endpoint"
    return Picked(None, told, again=min(cooling, default=None))
