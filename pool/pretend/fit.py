"""Fits the step model to measurements of a real server, and runs it in virtual time to say what that server would do;
pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Row
from dataclasses import dataclass, replace

from pool.pretend.engine import Engine, EngineSettings, Sequence


@dataclass(frozen=True, slots=True)
class Prefill:
    """A prompt of so many tokens, nothing of it cached, alone in the server: seconds to its first token."""

    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Decode:
    """Seconds between two tokens of one sequence while so many decode."""

    sequences: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request in virtual time: when it comes (seconds), its prompt and its output in tokens."""

    at: float
    prompt: int
    output: int = 1


def fitted(size: EngineSettings, prefills: Iterable[Prefill], decodes: Iterable[Decode]) -> EngineSettings:
    """The settings of ``size`` with the speeds that fit best (least squares, none below zero).

    Decoding tells what a step and a sequence cost; what a prompt takes beyond that is its tokens', and their square's
    for attention. Raises ValueError for fewer than two sizes of either.
    """
    steps = [(1.0, float(one.sequences), one.seconds) for one in decodes]
    base, each = _two(steps)
    chunk = size.max_num_batched_tokens
    rest = [
        (float(one.tokens), one.tokens**2 / 2, one.seconds - -(-one.tokens // chunk) * (base + each))
        for one in prefills
    ]
    token, square = _two(rest)
    return replace(size, step_base=base, step_per_sequence=each, prefill_per_token=token, prefill_quadratic=square)


def predicted(settings: EngineSettings, arrivals: Row[Arrival]) -> list[float]:
    """Seconds from each arrival to its first token, in virtual time. No two prompts share anything."""
    engine = Engine(settings)
    waiting = sorted(range(len(arrivals)), key=lambda i: arrivals[i].at)
    sequences = [Sequence(str(i), one.prompt, one.output, arrival=one.at) for i, one in enumerate(arrivals)]
    now = 0.0
    while waiting or engine.inside:
        if waiting and not engine.inside:
            now = max(now, arrivals[waiting[0]].at)
        while waiting and arrivals[waiting[0]].at <= now:
            engine.add(sequences[waiting.pop(0)])
        now += engine.step(now).duration
    return [(one.first_token or 0.0) - one.arrival for one in sequences]


def _two(rows: Row[tuple[float, float, float]]) -> tuple[float, float]:
    """Least squares of a*x + b*y = z with neither below zero."""
    if len({row[:2] for row in rows}) < 2:
        raise ValueError("at least two sizes must be measured")
    xx, xy, yy = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    xz, yz = (sum(r[i] * r[2] for r in rows) for i in (0, 1))
    determinant = xx * yy - xy * xy
    a, b = (xz * yy - yz * xy) / determinant, (yz * xx - xz * xy) / determinant
    if b < 0:
        return max(0.0, xz / xx), 0.0
    return (0.0, max(0.0, yz / yy)) if a < 0 else (a, b)
