"""Corrects what an endpoint is believed to hold by the cached tokens that its answers tell. No I/O."""

from __future__ import annotations

from pool.placement.residency import Residency
from pool.placement.view import Prompt

SLACK = 0.05  # share of the foreseen hit within which a difference says nothing
COLD_AFTER = 2  # answers in a row without any hit where one was foreseen: it was started anew
IDLE = 30.0  # seconds of disuse from which on an eviction proves that the longer unused went too
MEAN = 0.1


class Truth:
    """How far one endpoint's word and our belief agree.

    ``trust`` is the share of the foreseen hits that came true, averaged: it falls where a server caches nothing or a
    chat template rewrites the history, and hits there are then worth as much less.
    """

    __slots__ = ("_misses", "_since", "trust")

    def __init__(self) -> None:
        self.trust = 1.0
        self._misses = 0
        self._since = 0.0

    def told(
        self,
        residency: Residency,
        name: str,
        prompt: Prompt,
        told: tuple[int, int, int],
        used: tuple[float | None, float],
    ) -> None:
        """An answer told (foreseen keys, cached tokens, prompt tokens); ``used`` are the foreseen part's last use and
        the time of the request."""
        keys, cached, tokens = told
        block = prompt.block_tokens * (tokens / prompt.tokens if tokens and prompt.tokens else 1.0)
        foreseen = keys * block
        if foreseen < 2 * block:
            return
        share = min(1.0, cached / foreseen)
        if cached or self._misses >= COLD_AFTER:  # a restart is no reason to trust it less, but one can be no more
            self.trust += MEAN * (share - self.trust)
        if cached == 0:
            self._missed(residency, name, prompt, used[1])
            return
        self._misses = 0
        if cached >= foreseen - max(2 * block, SLACK * foreseen):
            return
        last = used[0]
        residency.cut(name, prompt.chain, int(cached / block))
        if last is not None and used[1] - last > IDLE:
            residency.drop_older(name, last)

    def _missed(self, residency: Residency, name: str, prompt: Prompt, began: float) -> None:
        """No hit at all. Once it may be this prompt's own fault; twice in a row the endpoint is cold."""
        residency.cut(name, prompt.chain, 0, shared=False)
        if not self._misses:
            self._since = began
        self._misses += 1
        if self._misses >= COLD_AFTER:
            residency.drop_older(name, self._since)
