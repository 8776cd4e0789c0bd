"""Sessions of agents as rounds: read from a trace, scaled, or made up from a seed. Pure but for reading the file.

The format is TraceLab's (uw-syfi/TraceLab): a CSV with session_id, arrival_time (ms), round_idx, prefix_len, input_len,
output_len (tokens) and tool_wait_after_ms. Files without arrival_time start every session at once.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pool.errors import PoolConfigError

COLUMNS = ("session_id", "arrival_time", "round_idx", "prefix_len", "input_len", "output_len", "tool_wait_after_ms")
WHOLE = ("prefix_len", "input_len", "output_len", "round_idx")
MOST_ROUNDS = 1_000_000
SAMPLE_SEED = 7
SAMPLE_SESSIONS = 12


@dataclass(frozen=True, slots=True)
class Round:
    """One model call: ``prefix`` tokens of context from before, ``new`` ones, ``output`` wanted; then ``wait`` seconds
    of tools."""

    prefix: int
    new: int
    output: int
    wait: float


@dataclass(frozen=True, slots=True)
class Session:
    """One agent: when it comes, in seconds from the start, and its rounds in order."""

    name: str
    arrival: float
    rounds: tuple[Round, ...]


def read(path: Path) -> tuple[Session, ...]:
    """The sessions of a trace, by arrival. Raises PoolConfigError naming the line that is wrong."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return parse(file, str(path))
    except OSError as error:
        raise PoolConfigError(f"the trace {path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise PoolConfigError(f"the trace {path} cannot be read: it is no CSV text") from None


def parse(lines: Iterable[str], source: str) -> tuple[Session, ...]:
    """The sessions in the lines of a trace. Raises PoolConfigError naming the line that is wrong."""
    rows = csv.DictReader(lines)
    missing = set(COLUMNS) - {"arrival_time"} - set(rows.fieldnames or ())
    if missing:
        raise PoolConfigError(f"{source} is no trace of sessions: it has no column {', '.join(sorted(missing))}")
    found: dict[str, tuple[float, list[tuple[int, Round]]]] = {}
    for number, row in enumerate(rows, start=2):
        if number > MOST_ROUNDS:
            raise PoolConfigError(f"{source} has more than {MOST_ROUNDS} rounds")
        try:
            arrival, place, one = _row(row)
        except ValueError as error:
            raise PoolConfigError(f"{source}, line {number}: {error}") from None
        found.setdefault(row["session_id"], (arrival, []))[1].append((place, one))
    made = [
        Session(name, arrival, tuple(one for _, one in sorted(rounds, key=lambda pair: pair[0])))
        for name, (arrival, rounds) in found.items()
    ]
    if not made:
        raise PoolConfigError(f"{source} has no sessions")
    return tuple(sorted(made, key=lambda session: session.arrival))


def _row(row: dict[str, str]) -> tuple[float, int, Round]:
    prefix, new, output, place = (_whole(row, name) for name in WHOLE)
    arrival = _number(row, "arrival_time") / 1000 if row.get("arrival_time") else 0.0
    return arrival, place, Round(prefix, new, output, _number(row, "tool_wait_after_ms") / 1000)


def _whole(row: dict[str, str], column: str) -> int:
    value = _number(row, column)
    if value != int(value):
        raise ValueError(f"{column} is {row[column]}, which is no whole number")
    return int(value)


def _number(row: dict[str, str], column: str) -> float:
    """A length or a time. Raises ValueError that names the column."""
    told = row.get(column)
    try:
        value = float(told or "")
    except ValueError:
        raise ValueError(f"{column} is {told!r}, which is no number" if told else f"it has no {column}") from None
    if not 0 <= value < math.inf:
        raise ValueError(f"{column} is {told}; no length and no time is below zero or without end")
    return value


def scaled(
    sessions: Sequence[Session], *, scale: float = 1.0, speed: float = 1.0, limit: int | None = None
) -> tuple[Session, ...]:
    """The first ``limit`` sessions with every length times ``scale``, and every time divided by ``speed``."""

    def shrink(tokens: int) -> int:
        return max(1, round(tokens * scale)) if tokens else 0

    return tuple(
        replace(
            session,
            arrival=session.arrival / speed,
            rounds=tuple(
                Round(shrink(one.prefix), max(1, shrink(one.new)), max(1, shrink(one.output)), one.wait / speed)
                for one in session.rounds
            ),
        )
        for session in sessions[:limit]
    )


def invented(seed: int = SAMPLE_SEED, sessions: int = SAMPLE_SESSIONS) -> tuple[Session, ...]:
    """Coding agents made up from a seed: a growing context, short new parts, short tools with a heavy tail.

    Lengths and times are log-normal; they are nobody's data. The same seed gives the same sessions.
    """
    dice = random.Random(seed)  # noqa: S311  a workload, not a secret
    made, arrival = [], 0.0
    for number in range(sessions):
        arrival += dice.expovariate(1 / 0.8)
        rounds, context = [], 0
        for place in range(dice.randint(3, 9)):
            new = _drawn(dice, 900 if place == 0 else 220, 0.6, 4000)
            output = _drawn(dice, 90, 0.7, 800)
            wait = min(60.0, round(dice.lognormvariate(-1.2, 1.5), 3))
            rounds.append(Round(context, new, output, wait))
            context += new + output
        made.append(Session(str(number), round(arrival, 3), tuple(rounds)))
    return tuple(made)


def _drawn(dice: random.Random, median: int, spread: float, most: int) -> int:
    return max(8, min(most, round(median * dice.lognormvariate(0, spread))))


def written(sessions: Sequence[Session]) -> str:
    """The sessions as a trace."""
    lines = [",".join(COLUMNS)]
    lines += [
        f"{s.name},{round(s.arrival * 1000)},{place},{r.prefix},{r.new},{r.output},{round(r.wait * 1000)}"
        for s in sessions
        for place, r in enumerate(s.rounds)
    ]
    return "\n".join(lines) + "\n"
