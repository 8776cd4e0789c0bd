"""Attained service of each program (a task tree), so that who got least goes first; pure.

Least attained service over whole programs: Autellix; weights and half-life as in llm-d's program-aware fairness.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from pool.types import Usage

OUTPUT_WEIGHT = 2.0  # a decoded token holds the engine longer than a prefilled one
CACHED_WEIGHT = 0.1  # a cached one only holds memory
NOTHING = -math.inf
HOG = math.log2(10.0)  # programs within a factor of ten of one another count as equals where waiting is concerned
LEAST = math.log2(4_096.0)  # who got less than a few turns' worth counts as having got that


def weight(prompt: float, output: float, cached: float = 0.0) -> float:
    """Weighted tokens of one request."""
    return max(0.0, prompt - cached) + CACHED_WEIGHT * min(cached, prompt) + OUTPUT_WEIGHT * output


def used(usage: Usage) -> float:
    """Weighted tokens that a server counted."""
    return weight(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens or 0)


class Service:
    """What each program got, forgotten by half every ``half_life`` seconds, for at most ``cap`` programs.

    All of them fade at the same pace, so their order changes only when one is served: kept is the logarithm of the
    service as it would count at time 0, which needs no sweep and cannot overflow. Beyond the cap the one that was
    served longest ago is forgotten.
    """

    def __init__(self, half_life: float, cap: int = 10_000) -> None:
        self._half_life = half_life
        self._cap = cap
        self._levels: OrderedDict[str, float] = OrderedDict()
        self._at = 0.0

    def __len__(self) -> int:
        return len(self._levels)

    def level(self, program: str) -> float:
        """What orders programs, least first; only comparable with other levels."""
        return self._levels.get(program, NOTHING)

    def attained(self, program: str, now: float) -> float:
        """Weighted tokens that still count."""
        level = self.level(program)
        return 0.0 if level == NOTHING else float(2.0 ** min(1000.0, level - now / self._half_life))

    def hogs(self, program: str, other: str) -> bool:
        """Whether a program got so much more than another one that having waited longer is no claim against it."""
        least = LEAST + self._at / self._half_life
        return self.level(program) > max(self.level(other), least) + HOG

    def charge(self, program: str, tokens: float, now: float) -> None:
        """Count tokens; negative ones take back what was counted too much."""
        self._at = now
        total = self.attained(program, now) + tokens
        if total < 1.0:
            self._levels.pop(program, None)
            return
        self._levels[program] = math.log2(total) + now / self._half_life
        self._levels.move_to_end(program)
        while len(self._levels) > self._cap:
            self._levels.popitem(last=False)
