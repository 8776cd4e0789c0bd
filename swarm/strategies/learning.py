"""Which way of working is likely to solve the most for its tokens, from what became of earlier attempts. Pure.

Thompson sampling (Thompson, 1933; Chapelle and Li, 2011): what is known of a way is a distribution, one draw of each
decides, so a way is tried about as often as it may be the best; a few attempts take any that could work. What is
long ago counts for less. The draw is seeded by the attempt's id: the same attempt decides the same.

Worth for a token alone would keep a way attractive that never solves anything but fails at no cost, though whatever
follows it has to pay. So ways that surely solve far less than the best one are left to those few attempts.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from swarm.types import Experience

HALF_LIFE = 30 * 86400.0
"""Seconds after which an outcome counts for half."""
_PRIOR = 2.0  # outcomes that the rule's own first choice is taken to have, half of them good
_OTHER = 3.0  # the same for any other way, of which a third are good: new ways have to show it
_OVERHEAD = (
    3000.0  # tokens that every attempt is taken to cost beside its own: sandboxes and people's time are no tokens
)
_COST = 30_000.0  # tokens of an attempt of a way that nothing is known of
_EXPLORE = 0.06  # of all attempts take any way that could work, so that nothing is given up for good
_FAR = 0.25  # of what the best way surely solves: one that at most solves this is left out
_SURE = 1.96  # standard deviations, of a bound that holds in 95 of 100 cases
_FEW = 3.0  # outcomes below which nothing is learnt yet


@dataclass(frozen=True)
class Record:
    """What is known of one way: decayed counts, and the mean tokens of an attempt."""

    tried: float
    solved: float
    tokens: float

    def bounds(self) -> tuple[float, float]:
        """Between which shares of attempts solved the true one surely lies (Wilson, 1927)."""
        if not self.tried:
            return 0.0, 1.0
        share, square = self.solved / self.tried, _SURE**2
        middle = share + square / (2 * self.tried)
        spread = _SURE * math.sqrt(share * (1 - share) / self.tried + square / (4 * self.tried**2))
        whole = 1 + square / self.tried
        return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)

    def told(self) -> str:
        """In words."""
        return f"solved {self.solved:.3g} of {self.tried:.3g} at {self.tokens:.0f} tokens each"


@dataclass(frozen=True)
class Decision:
    """Ways to try in turn, and why these."""

    names: tuple[str, ...]
    why: str
    learnt: bool


def decide(
    rule: Sequence[str], untried: Sequence[str], outcomes: Iterable[Experience], *, now: float, seed: str, tier: str
) -> Decision:
    """The ways to try. ``rule`` is what would be tried if nothing were known, and stays behind what is chosen.

    ``untried`` are further ways that could work here; whatever the outcomes name and is in neither is left alone.
    Outcomes on another ``tier`` count for half. With few outcomes the rule stands.
    """
    records = recorded(outcomes, now=now, tier=tier)
    records = {name: one for name, one in records.items() if name in {*rule, *untried}}
    if sum(one.tried for one in records.values()) < _FEW:
        return Decision(tuple(rule), "too little is known of this repository yet", learnt=False)
    draw = random.Random(hashlib.sha256(seed.encode()).digest())  # noqa: S311 - a choice to be repeated, no secret
    possible = list(dict.fromkeys((*rule, *untried)))
    if draw.random() < _EXPLORE:
        pick = draw.choice(possible)
        before = records[pick].told() if pick in records else "was never tried here"
        return _decided(pick, rule, f"tried now and then to see how it does; {before}")
    known = list(dict.fromkeys((*rule, *sorted(records))))
    hopeless = _hopeless(records)
    worths = {name: _worth(records.get(name), draw, first=name == rule[0]) for name in known if name not in hopeless}
    pick = max(worths, key=lambda name: worths[name])
    told = ", ".join(f"{name} {records[name].told()}" if name in records else f"{name} untried" for name in known)
    return _decided(pick, rule, told)


def recorded(outcomes: Iterable[Experience], *, now: float, tier: str | None = None) -> Mapping[str, Record]:
    """What is known of each way, newer outcomes and, where one is named, those on this tier counting for more."""
    weights: dict[str, list[tuple[float, Experience]]] = {}
    for one in outcomes:
        age = max(0.0, now - one.at)
        weight = 0.5 ** (age / HALF_LIFE) * (1.0 if tier in {None, one.tier} else 0.5)
        weights.setdefault(one.strategy, []).append((weight, one))
    return {name: _record(found) for name, found in weights.items()}


def _hopeless(records: Mapping[str, Record]) -> frozenset[str]:
    """The ways that surely solve far less than the best one."""
    bounds = {name: record.bounds() for name, record in records.items()}
    best = max(low for low, _ in bounds.values())
    return frozenset(name for name, (_, high) in bounds.items() if high < _FAR * best)


def _record(found: Sequence[tuple[float, Experience]]) -> Record:
    tried = sum(weight for weight, _ in found)
    solved = sum(weight for weight, one in found if one.solved)
    tokens = sum(weight * one.tokens for weight, one in found) / tried if tried else 0.0
    return Record(tried, solved, tokens)


def _worth(known: Record | None, draw: random.Random, *, first: bool) -> float:
    """One draw of what a way solves for a token."""
    prior, good = (_PRIOR, 0.5) if first else (_OTHER, 1 / 3)
    tried, solved, tokens = (known.tried, known.solved, known.tokens) if known else (0.0, 0.0, _COST)
    share = draw.betavariate(solved + prior * good, tried - solved + prior * (1 - good))
    cost = (tokens * tried + _COST * 1.0) / (tried + 1.0)
    return share / (cost + _OVERHEAD)


def _decided(pick: str, rule: Sequence[str], why: str) -> Decision:
    return Decision((pick, *(name for name in rule if name != pick)), f"{pick}: {why}", learnt=True)
