"""How many bytes of request bodies are held at one time, all callers together: one body's limit bounds no crowd."""

from __future__ import annotations

from pool.gateway.replies import Refusal, RefusedError

LATER = 1.0  # seconds after which to come back: bodies are let go as answers end
VALUE = 32  # bytes that a value of JSON takes once it is read, beside its text
SMALL = 65_536  # bytes of a body whose values are not counted


class Held:
    """Counts bytes up to ``most``, of which one caller may hold ``share``. Whoever takes gives back as much."""

    def __init__(self, most: int, share: int) -> None:
        self._most = most
        self._share = share
        self._held = 0
        self._by_caller: dict[str, int] = {}

    @property
    def bytes(self) -> int:
        """Bytes that are held now."""
        return self._held

    def take(self, whose: str, size: int) -> None:
        """Hold so many more bytes. Raises RefusedError: 503 while all is taken, 429 where the caller has its share."""
        own = self._by_caller.get(whose, 0)
        if self._held + size > self._most:
            words = "the gateway holds as many requests as it has memory for (max_bodies); come back in a moment"
            raise RefusedError(Refusal(503, words, "gateway_full", retry_after=LATER))
        if own + size > self._share:
            words = f"your requests under way hold {own} bytes, which is your share of max_bodies; let some end first"
            raise RefusedError(Refusal(429, words, "too_many_bytes", retry_after=LATER))
        self._held += size
        self._by_caller[whose] = own + size

    def give(self, whose: str, size: int) -> None:
        """Let so many bytes go."""
        self._held -= size
        left = self._by_caller.get(whose, 0) - size
        if left > 0:
            self._by_caller[whose] = left
        else:
            self._by_caller.pop(whose, None)

    def fits(self, size: int) -> bool:
        """Whether so many could be held at all, by one caller alone."""
        return size <= min(self._most, self._share)


def weight(body: bytes) -> int:
    """Bytes that a body takes beside its text once it is read: JSON of mere brackets grows thirtyfold."""
    if len(body) < SMALL:
        return 0
    return VALUE * (body.count(b",") + body.count(b"[") + body.count(b"{"))
