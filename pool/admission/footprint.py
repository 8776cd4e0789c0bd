"""How many KV tokens the live sessions of one endpoint need together, what they share counted once; pure.

Block keys stand for all blocks before them, so that two sessions with the same key at one place share all up to it.
Keys are compared at a few places only, 1.25 times apart, which finds at least four fifths of what is shared.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from pool.placement.view import Prompt


def _places(most: int = 1_000_000) -> tuple[int, ...]:
    places = [1]
    while places[-1] < most:
        places.append(max(places[-1] + 1, int(places[-1] * 1.25)))
    return tuple(places)


PLACES = _places()  # counts of blocks at whose end keys are compared


@dataclass(frozen=True, slots=True)
class Footprint:
    """The KV of one session: keys of its parts, from the first block on, and ``own`` tokens after them.

    ``ahead`` are the tokens by which it is forecast to grow in its next turns.
    """

    keys: tuple[int, ...]
    block_tokens: float
    own: int
    ahead: int = 0

    @property
    def tokens(self) -> int:
        """All of it but what lies ahead, as if nothing were shared."""
        return self.own + (int(PLACES[len(self.keys) - 1] * self.block_tokens) if self.keys else 0)


def footprint(prompt: Prompt, output: int, ahead: int = 0) -> Footprint:
    """The footprint of a prompt and its answer."""
    count = bisect_right(PLACES, len(prompt.chain))
    keys = tuple(prompt.chain[place - 1] for place in PLACES[:count])
    shared = int(PLACES[count - 1] * prompt.block_tokens) if count else 0
    return Footprint(
        keys=keys,
        block_tokens=prompt.block_tokens,
        own=max(0, prompt.tokens - shared) + max(0, output),
        ahead=max(0, ahead),
    )


def kept(before: Footprint, now: Footprint) -> int:
    """Tokens that a prompt still has in common with what its session was before."""
    for i in range(min(len(before.keys), len(now.keys)), 0, -1):
        if before.keys[i - 1] == now.keys[i - 1]:
            return int(PLACES[i - 1] * now.block_tokens)
    return 0


class Demand:
    """The sum over sessions. Adding and taking away cost a few dozen steps, whatever the number of sessions."""

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}
        self.tokens = 0

    def add(self, session: Footprint) -> None:
        """One more session."""
        self.tokens += self.added_by(session)
        for key in session.keys:
            self._holders[key] = self._holders.get(key, 0) + 1

    def remove(self, session: Footprint) -> None:
        """One session less, with the footprint that it was added with."""
        for key in session.keys:
            left = self._holders[key] - 1
            if left:
                self._holders[key] = left
            else:
                del self._holders[key]
        self.tokens -= self.added_by(session)

    def added_by(self, session: Footprint) -> int:
        """Tokens that one more session would add."""
        parts = len(session.keys)
        held = next((i for i in range(parts, 0, -1) if session.keys[i - 1] in self._holders), 0)
        shared = int(PLACES[held - 1] * session.block_tokens) if held else 0
        return session.tokens - shared
