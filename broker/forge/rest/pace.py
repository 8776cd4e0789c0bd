"""How fast a forge is asked: its own limits obeyed, and the creation of content spaced before it has to complain.

Sources: GitHub, "Rate limits for the REST API" (900 points a minute, a read 1 and a write 5; 80 creations a minute and
500 an hour) and "Best practices" (a second between writes; retry-after, else the reset, else a minute and then longer);
GitLab, "Rate limits" (RateLimit-Remaining, RateLimit-Reset, Retry-After; absent on several paths).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from broker.errors import ForgeError

_LONGEST = 3600.0  # seconds: one answer, which may be wrong, shuts a whole host; after that it is asked again
_MOST_STRIKES = 6
_SECONDARY = ("secondary rate limit", "abuse detection", "rate limit exceeded", "too many requests")


@dataclass(frozen=True)
class Tempo:
    """What a host is asked at most. ``patience``: seconds that a call waits; a longer wait becomes an error."""

    gap: float = 1.0
    per_minute: int = 80
    per_hour: int = 500
    points: int = 900
    patience: float = 20.0
    first: float = 60.0


@dataclass(frozen=True)
class Answered:
    """Of an answer what matters here; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    text: str = ""


def is_limit(answer: Answered) -> bool:
    """Whether an answer refuses for being asked too often. A secondary limit of GitHub's is a 403 as well."""
    if answer.status == 429:
        return True
    said = answer.text[:2000].lower()
    if answer.status == 422:
        return "submitted too quickly" in said
    if answer.status != 403:
        return False
    return "retry-after" in answer.headers or _left(answer.headers) == 0 or any(word in said for word in _SECONDARY)


def wait_for(answer: Answered, now: float, strikes: int, first: float = 60.0) -> float:
    """Seconds to leave the forge in peace after such a refusal, an hour at most; ``strikes`` counts those in a row."""
    told = _retry_after(answer.headers, now)
    if told is None and _left(answer.headers) == 0:
        told = _until_reset(answer.headers, now)
    if told is None:
        told = first * 2 ** min(strikes, _MOST_STRIKES)
    return min(max(told, 1.0), _LONGEST)


def spent(answer: Answered, now: float) -> float:
    """Seconds to wait after an answer that was good but the last one of its hour; 0 if there are more."""
    if _left(answer.headers) != 0:
        return 0.0
    return min(_until_reset(answer.headers, now) or 0.0, _LONGEST)


def _number(text: str | None) -> float | None:
    if text is None or not text.isascii() or not text.strip().isdecimal() or len(text) > 12:
        return None
    return float(text)


def _left(headers: Mapping[str, str]) -> float | None:
    return _number(headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining")))


def _until_reset(headers: Mapping[str, str], now: float) -> float | None:
    at = _number(headers.get("x-ratelimit-reset", headers.get("ratelimit-reset")))
    return None if at is None else max(at - now, 0.0) + 1.0


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    text = headers.get("retry-after")
    if text is None:
        return None
    if (seconds := _number(text)) is not None:
        return seconds
    try:
        return max(parsedate_to_datetime(text[:64]).timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return None


class Window:
    """What was spent in the last ``seconds``: tells when there is room for more. Not safe between threads."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds, self._most = seconds, most
        self._entries: deque[tuple[float, int]] = deque()
        self._sum = 0

    def free_at(self, cost: int, now: float) -> float:
        """When ``cost`` more fits."""
        while self._entries and self._entries[0][0] <= now - self._seconds:
            self._sum -= self._entries.popleft()[1]
        over = self._sum + cost - self._most
        for at, paid in self._entries:
            if over <= 0:
                break
            now, over = max(now, at + self._seconds), over - paid
        return now

    def take(self, cost: int, at: float) -> None:
        """Spends it."""
        self._entries.append((at, cost))
        self._sum += cost


class Pace:
    """The one clock of a host, shared by all its repositories and threads."""

    def __init__(
        self,
        host: str,
        tempo: Tempo = Tempo(),
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.host = host
        self._tempo, self._clock, self._sleep = tempo, clock, sleep
        self._lock = threading.Lock()
        self._points = Window(60.0, tempo.points)
        self._creations = (Window(60.0, tempo.per_minute), Window(3600.0, tempo.per_hour))
        self._next_creation = 0.0
        self._closed_until = 0.0
        self._strikes = 0

    def before(self, *, writes: bool, creates: bool = False) -> None:
        """Waits for the turn of one request. Raises ForgeError with ``when`` if that is further off than patience."""
        with self._lock:
            now = self._clock()
            at = self._turn(now, writes=writes, creates=creates)
            if at - now > self._tempo.patience:
                raise self.refused(at)
            self._points.take(5 if writes else 1, at)
            if creates:
                self._next_creation = at + self._tempo.gap
                for window in self._creations:
                    window.take(1, at)
        if at > now:
            self._sleep(at - now)

    def _turn(self, now: float, *, writes: bool, creates: bool) -> float:
        at = max(now, self._closed_until, self._points.free_at(5 if writes else 1, now))
        if creates:
            at = max(at, self._next_creation, *(window.free_at(1, now) for window in self._creations))
        return at

    def after(self, answer: Answered) -> bool:
        """Learns from an answer; True if it was refused for the pace, so that nothing was done."""
        with self._lock:
            now = self._clock()
            if is_limit(answer):
                wait = wait_for(answer, now, self._strikes, self._tempo.first)
                self._strikes += 1
                self._closed_until = max(self._closed_until, now + wait)
                return True
            if answer.status < 400:
                self._strikes = 0
            if rest := spent(answer, now):
                self._closed_until = max(self._closed_until, now + rest)
            return False

    def refused(self, at: float | None = None) -> ForgeError:
        """The error that says when to come back."""
        at = self._closed_until if at is None else at
        clock = datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
        mend = "nothing to do: it is tried again then"
        return ForgeError(f"{self.host} wants to be asked no more before {clock}", mend, reason="limit", when=at)


class Paces:
    """One pace a host, made when it is first asked for."""

    def __init__(self, tempo: Tempo = Tempo()) -> None:
        self._tempo = tempo
        self._lock = threading.Lock()
        self._paces: dict[str, Pace] = {}

    def of(self, host: str) -> Pace:
        """The pace of a host; hosts come from broker.toml alone, so there are few."""
        with self._lock:
            return self._paces.setdefault(host, Pace(host, self._tempo))
