"""Tells a request that breaks servers from a server that is broken, and remembers it for a while; pure.

A request that fails on one server after the other would be carried through the whole fleet by failover, and would open
every breaker on its way. It is to blame where it was tried again after it had failed, and the servers that it failed on
served others at that time; it is sent to no further one then, and its failures are taken off them.

Everything else is excused, since an innocent one must never be refused: copies that failed side by side are one
failure; where a connection broke, or others failed there at the same moment, the server itself may have died, so it
must have done well by somebody a moment later; and one whose copy came further is cleared. Who is refused is who sent
it, until it failed for two callers.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import xxhash

NEAR = 1.0  # seconds before a failure within which a server's success with another request bears witness
TOGETHER = 0.5  # seconds within which failures of several requests at a server are one event
AFTER = 0.1  # seconds after which a success shows that a server lives on: what was under way comes in until then
HOLD, LONGEST = 10.0, 120.0  # seconds for which a poisoned request is refused: at first, doubled up to the most
FORGET = 300.0  # seconds after its last failure at which one is forgotten
MOST = 1024  # requests remembered; the one that failed longest ago is forgotten first
ENOUGH = 2  # failures before anything is said of a request, and callers before it is refused to everybody
KEPT = 32  # last failures of one request that are kept, and of one server
SERVERS = 4096  # servers whose last failures are kept
OURS = frozenset(("session_id",))
"""Fields that the gateway writes: they name who asks, in words of its own."""


Mark = tuple[int, str]
"""What stands for a request: roughly, which costs nothing to know, and exactly, which reads all of it."""


def mark_of(body: Mapping[str, Any]) -> str:
    """What stands exactly for a request: all of it that may decide how it fares."""
    kept = {name: value for name, value in body.items() if name not in OURS}
    return xxhash.xxh3_128_hexdigest(json.dumps(kept, sort_keys=True, default=str).encode())


@dataclass(frozen=True, slots=True)
class Failure:
    """One try that failed. ``answered``: the server said so itself, and did not just break off; ``begun``: a part of
    its answer was heard. ``who`` is its caller and session, ``request`` is common to the tries of one request. Seconds
    of the pool's clock."""

    endpoint: str
    who: tuple[str, str]
    request: str
    sent: float
    at: float
    answered: bool = True
    begun: bool = False


@dataclass(slots=True)
class _Suspect:
    failures: deque[Failure] = field(default_factory=lambda: deque(maxlen=KEPT))
    callers: set[str] = field(default_factory=set)
    last: float = 0.0
    until: float = 0.0
    hold: float = HOLD


class Suspects:
    """The requests that failed lately. ``succeeded`` tells when a server last did well by any request, if ever."""

    def __init__(self, succeeded: Callable[[str], float | None]) -> None:
        self._succeeded = succeeded
        self._known: OrderedDict[Mark, _Suspect] = OrderedDict()
        self._rough: Counter[int] = Counter()
        self._broken: OrderedDict[str, deque[tuple[Mark, Failure]]] = OrderedDict()

    def __contains__(self, rough: int) -> bool:
        """Whether something like it failed: only then is it worth while to look exactly."""
        return rough in self._rough

    def failed(self, mark: Mark, failure: Failure) -> bool:
        """A request failed at a server; whether it is the request that is to blame. Then it is refused for a while."""
        now = failure.at
        suspect = self._drop(mark)
        if suspect is None or now - suspect.last > FORGET:
            suspect = _Suspect()
        self._remember(mark, suspect, failure)
        if not self._guilty(mark, suspect):
            return False
        suspect.until, suspect.hold = now + suspect.hold, min(LONGEST, 2 * suspect.hold)
        return True

    def refused(self, mark: Mark, caller: str, now: float) -> float:
        """Seconds for which a request is not to be sent for a caller; 0 where it may. After that it is tried anew."""
        suspect = self._known.get(mark)
        if suspect is None:
            return 0.0
        if now - suspect.last > max(FORGET, suspect.hold):
            self._drop(mark)
            return 0.0
        if caller not in suspect.callers and len(suspect.callers) < ENOUGH:
            return 0.0
        return max(0.0, suspect.until - now)

    def began(self, mark: Mark) -> None:
        """An answer to it began well, which clears it of failing before that."""
        if (suspect := self._known.get(mark)) is not None:
            _keep(suspect, lambda one: one.begun)
            if not suspect.failures:
                self._drop(mark)

    def cleared(self, mark: Mark) -> None:
        """A server did well by it."""
        self._drop(mark)

    def gone(self, endpoint: str) -> None:
        """A server died, was started anew or left: what failed there is no news of any request."""
        self._broken.pop(endpoint, None)
        for suspect in self._known.values():
            _keep(suspect, lambda one: one.endpoint != endpoint)

    def _remember(self, mark: Mark, suspect: _Suspect, failure: Failure) -> None:
        suspect.failures.append(failure)
        suspect.last = failure.at
        if len(suspect.callers) < ENOUGH:
            suspect.callers.add(failure.who[0])
        self._known[mark] = suspect
        self._rough[mark[0]] += 1
        if len(self._known) > MOST:
            self._drop(next(iter(self._known)))
        self._broken.setdefault(failure.endpoint, deque(maxlen=KEPT)).append((mark, failure))
        self._broken.move_to_end(failure.endpoint)
        if len(self._broken) > SERVERS:
            self._broken.popitem(last=False)

    def _drop(self, mark: Mark) -> _Suspect | None:
        suspect = self._known.pop(mark, None)
        if suspect is not None:
            self._rough[mark[0]] -= 1
            if not self._rough[mark[0]]:
                del self._rough[mark[0]]
        return suspect

    def _guilty(self, mark: Mark, suspect: _Suspect) -> bool:
        """It failed, was sent again and failed again, often enough, while the servers were well."""
        count, before, here = 0, float("-inf"), dict[str, float]()
        for one in suspect.failures:  # in the order in which they failed, so that the most that follow each other count
            if one.sent >= before and self._sound(mark, one, here.get(one.endpoint, float("-inf"))):
                count, before = count + 1, one.at
                here[one.endpoint] = one.at
        return count >= ENOUGH

    def _sound(self, mark: Mark, one: Failure, before: float) -> bool:
        """Whether the server was well when it failed there, and served another since it failed there ``before``."""
        well = self._succeeded(one.endpoint)
        if well is None or well <= before:
            return False
        alone = not any(
            abs(other.at - one.at) <= TOGETHER
            and other.request != one.request
            and (what == mark or other.who != one.who)
            for what, other in self._broken.get(one.endpoint, ())
        )  # several different ones of one session do not excuse each other: it may be all that breaks
        return well >= (one.at - NEAR if one.answered and alone else one.at + AFTER)


def _keep(suspect: _Suspect, wanted: Callable[[Failure], bool]) -> None:
    kept = [one for one in suspect.failures if wanted(one)]
    if len(kept) < len(suspect.failures):
        suspect.failures.clear()
        suspect.failures.extend(kept)
