"""Sessions of coding agents, made up from a seed in the shapes of published traces; pure.

Shapes (no data of theirs is copied): TraceLab, SyFI Lab, University of Washington, CC BY 4.0 (uw-syfi/TraceLab): of
each call 875 tokens are new and 214 come out in the median; a tool takes 0.3 s in the median and 13.6 s at the 90th
percentile. Its contexts (118,656 tokens cached in the median) are about ten times as long as these, and tool times are
divided by the same ten, so that a context's prefill and a tool's run stand to one another as they do there.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

SCALE = 10.0  # contexts and tool times of the traces over ours
CHARACTERS = 4  # of one token, as the pretend engines count
SYSTEM = 2000  # tokens that all sessions begin with: system prompt and tools
LONGEST = 28_000  # tokens of a context; a session ends before it would grow beyond
WORDS = 50_000
QUICK, SLOW = "shell", "tests"  # the tools: most calls are quick, a sixth runs tests or builds
SLOW_SHARE = 1 / 6


@dataclass(frozen=True, slots=True)
class Turn:
    """One call: what is new in its prompt, how many tokens come out, then which tool runs for how long (seconds)."""

    text: str
    output: int
    tool: str
    gap: float


@dataclass(frozen=True, slots=True)
class Session:
    """One agent's work on one task. ``begin`` turns of it were had before the measurement began."""

    name: str
    system: str
    turns: tuple[Turn, ...]
    begin: int = 0


def usual(tool: str) -> float:
    """How long a tool usually takes (its median in seconds), which is what an orchestrator can know beforehand."""
    return {QUICK: 0.2, SLOW: 14.0}[tool] / SCALE


class Sessions:
    """An endless row of sessions from one seed; the n-th is the same whoever asks for it. All lengths are divided by
    ``shrink``, for servers whose window or speed is small."""

    def __init__(self, seed: int, shrink: float = 1.0) -> None:
        self._seed, self._shrink = seed, shrink
        dice = random.Random(seed)  # noqa: S311  no secret
        self._book = " ".join(_word(dice) for _ in range(WORDS))
        self._system = self._excerpt(dice, int(SYSTEM / shrink))

    def session(self, number: int, *, under_way: bool = False) -> Session:
        """The n-th; ``under_way`` puts it somewhere in its middle."""
        dice = random.Random(self._seed * 1_000_003 + number)  # noqa: S311  no secret
        first = self._turn(dice, _lognormal(dice, 1500, 4000, 200, 8000))
        turns, length = [first], (len(self._system) + len(first.text)) // CHARACTERS + first.output
        for _ in range(int(_lognormal(dice, 8, 25, 2, 60))):
            turn = self._turn(dice, _lognormal(dice, 875, 2600, 50, 8000))
            length += len(turn.text) // CHARACTERS + turn.output
            if length > LONGEST / self._shrink:
                break
            turns.append(turn)
        begin = dice.randrange(len(turns)) if under_way else 0
        return Session(f"session-{self._seed}-{number}", self._system, tuple(turns), begin)

    def _turn(self, dice: random.Random, new: float) -> Turn:
        tool = SLOW if dice.random() < SLOW_SHARE else QUICK
        middle, high = (14.0, 60.0) if tool == SLOW else (0.2, 2.0)
        gap = _lognormal(dice, middle, high, 0.01, 216.0) / SCALE
        output = max(1, int(_lognormal(dice, 214, 700, 8, 2000) / self._shrink))
        return Turn(self._excerpt(dice, int(new / self._shrink)), output, tool, gap)

    def _excerpt(self, dice: random.Random, tokens: int) -> str:
        length = tokens * CHARACTERS
        start = dice.randrange(len(self._book) - length)
        return self._book[start : start + length]


def _lognormal(dice: random.Random, median: float, high: float, least: float, most: float) -> float:
    """A value whose median and 90th percentile are told, between two bounds."""
    sigma = math.log(high / median) / 1.2816
    return min(most, max(least, median * math.exp(sigma * dice.gauss(0.0, 1.0))))


def _word(dice: random.Random) -> str:
    return "".join(dice.choices("etaoinshrdlucmfwypvbgk_(){}.=:/0123", k=dice.randrange(2, 9)))
