"""The statistics of an evaluation, by SciPy: shares, ratios and differences with 95 % intervals. Pure and seeded.

A case is what was drawn from the set; several tries at one case are not independent of one another. So wherever cases
were tried more than once, whole cases are drawn anew in the bootstrap, never single tries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, isclose
from typing import Any

import numpy as np
from scipy import stats

LEVEL = 0.95
RESAMPLES = 4999
Interval = tuple[float | None, float | None]
"""Lower and upper end; None where that side has no bound that the data tell."""


@dataclass(frozen=True)
class Counts:
    """Of one way: tries, solved tries and tokens by case, in the same order."""

    tries: tuple[int, ...]
    solved: tuple[int, ...]
    tokens: tuple[int, ...]


def share(counts: Counts, seed: int) -> Interval:
    """Of solved tries: Wilson's score interval (Wilson 1927) for one try a case, else a bootstrap over cases.

    Where all tries came out alike it is Wilson's over cases.
    """
    if not counts.tries:
        return None, None
    if max(counts.tries) == 1:
        return _wilson(sum(counts.solved), sum(counts.tries))
    if sum(counts.solved) in {0, sum(counts.tries)}:  # every draw is the same, which is no certainty
        return _wilson(len(counts.tries) if any(counts.solved) else 0, len(counts.tries))
    return _bootstrap(_ratio, (counts.solved, counts.tries), seed)


def _wilson(solved: int, tries: int) -> Interval:
    found = stats.binomtest(solved, tries).proportion_ci(LEVEL, method="wilson")
    return float(found.low), float(found.high)


def tokens_per_solved(counts: Counts, seed: int) -> tuple[float | None, Interval]:
    """All tokens over all solved tries, those of unsolved tries included; None where nothing was solved or counted.

    The interval is that of solved tries per token, turned round, so that draws in which nothing was solved have a
    place: then there is no upper end.
    """
    tokens, solved = sum(counts.tokens), sum(counts.solved)
    if not tokens or not solved:
        return None, (None, None)
    low, high = _bootstrap(_ratio, (counts.solved, counts.tokens), seed)
    return tokens / solved, (1 / high if high else None, 1 / low if low else None)


def pass_at(counts: Counts, k: int) -> float | None:
    """The chance that one of k tries at a case solves it, on average over the cases with so many tries.

    The unbiased estimator of Chen et al. 2021 (arXiv:2107.03374), 1 - C(n - c, k) / C(n, k).
    """
    pairs = [(n, c) for n, c in zip(counts.tries, counts.solved, strict=True) if n >= k]
    return sum(1 - comb(n - c, k) / comb(n, k) for n, c in pairs) / len(pairs) if pairs else None


def difference(ours: Sequence[float], theirs: Sequence[float], seed: int) -> tuple[float, Interval]:
    """Of the mean shares of solved tries, paired by case, with a bootstrap over cases."""
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    return sum(gaps) / len(gaps), _bootstrap(_mean, (gaps,), seed)


def ratio(ours: Sequence[float], theirs: Sequence[float], seed: int) -> tuple[float | None, Interval]:
    """How many times as much of one as of the other, paired by case; None where the other is nothing.

    The bootstrap is of one's part in both, which stays finite, turned into the ratio.
    """
    low, high = _bootstrap(_part, (ours, theirs), seed)
    value = sum(ours) / sum(theirs) if sum(theirs) else None
    return value, (_odds(low), _odds(high))


def mcnemar(ours: int, theirs: int) -> float:
    """The exact p-value of McNemar's test (McNemar 1947): cases that only the one solved, and only the other."""
    return float(stats.binomtest(ours, ours + theirs).pvalue) if ours + theirs else 1.0


def _bootstrap(statistic: Callable[..., Any], data: tuple[Sequence[float], ...], seed: int) -> Interval:
    """A percentile interval over draws of cases (Efron 1979).

    None of fewer than two cases, and none where every draw is the same: that no case differs is no certainty.
    """
    if len(data[0]) < 2:
        return None, None
    found = stats.bootstrap(
        tuple(np.asarray(each, dtype=float) for each in data),
        statistic,
        n_resamples=RESAMPLES,
        paired=True,
        vectorized=True,
        confidence_level=LEVEL,
        method="percentile",
        batch=500,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    low, high = float(found.low), float(found.high)
    return (None, None) if isclose(low, high) else (low, high)


def _mean(values: Any, axis: int = -1) -> Any:
    return np.mean(values, axis=axis)


def _ratio(above: Any, below: Any, axis: int = -1) -> Any:
    total = np.sum(below, axis=axis)
    return np.divide(np.sum(above, axis=axis), total, out=np.zeros_like(total), where=total > 0)


def _part(ours: Any, theirs: Any, axis: int = -1) -> Any:
    one = np.sum(ours, axis=axis)
    both = one + np.sum(theirs, axis=axis)
    return np.divide(one, both, out=np.full_like(both, 0.5), where=both > 0)


def _odds(part: float | None) -> float | None:
    return None if part is None or part >= 1.0 else part / (1.0 - part)
