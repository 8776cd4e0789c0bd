"""Which tier answers a session's next turn: decided from evidence, standing and prices in seconds. Pure.

Nothing here asks a server. A session stays where it is unless something speaks for a move, every move has its reason
in words, and a move down is made only by these rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pool.config import AutoConfig

ROOMY = 0.8  # a step down must leave a fifth of the lower window free, or the next turns would climb again
DOUBLE = 2.0  # strength from which even a dear climb is made


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a session showed since its last move. ``calm``, ``unsure`` and ``failed_checks`` count in a row.

    ``bad`` are unusable answers among the last few, ``rounds`` how often the same turns came round, ``tokens`` what
    the next turn reads and ``room`` what it may write; ``seconds`` is how long an answer takes on this tier.
    """

    bad: int = 0
    rounds: int = 1
    unsure: int = 0
    failed_checks: int = 0
    calm: int = 0
    tokens: int = 0
    room: int = 0
    seconds: float | None = None
    time_left: float = float("inf")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a session stands: its tier (None before its first turn), the answers since it came there, and how often
    it had to climb back after a step down."""

    tier: str | None = None
    answers: int = 0
    falls: int = 0


@dataclass(frozen=True, slots=True)
class Rung:
    """One tier as this session would find it: its window in tokens, whether anybody is up, and the price in seconds of
    the first token there, re-prefill included. None is unknown. ``too_long``: this conversation was refused there."""

    tier: str
    window: int | None = None
    up: bool = True
    price: float | None = None
    too_long: bool = False

    def fits(self, evidence: Evidence, share: float = 1.0) -> bool:
        """Whether the next turn fits this tier's window, or a share of it. An unknown window refuses nothing."""
        need = evidence.tokens + evidence.room
        return not self.too_long and (self.window is None or need <= self.window * share)


@dataclass(frozen=True, slots=True)
class Move:
    """What to do, and why. ``fits`` is False where no tier that may be taken has a window that is long enough."""

    kind: Literal["start", "stay", "climb", "descend"]
    tier: str
    why: str
    fits: bool = True


def decide(evidence: Evidence, standing: Standing, rungs: Sequence[Rung], rules: AutoConfig) -> Move:
    """The move of a session; ``rungs`` are the tiers from the weakest up, at least one."""
    names = [rung.tier for rung in rungs]
    if standing.tier not in names:
        return _start(evidence, rungs)
    at = names.index(standing.tier)
    here, above = rungs[at], rungs[at + 1 :]
    if not here.fits(evidence):
        return _longer(evidence, here, above)
    if not here.up:
        return _over(evidence, here, above)
    if trouble := tuple(_trouble(evidence, rules)):
        return _climb(evidence, standing, (here, above), trouble, rules)
    if at and (down := _descend(evidence, standing, (here, rungs[at - 1]), rules)):
        return down
    return Move("stay", here.tier, "nothing speaks for a move")


def _start(evidence: Evidence, rungs: Sequence[Rung]) -> Move:
    for rung in rungs:
        if rung.up and rung.fits(evidence):
            why = "the weakest tier" if rung is rungs[0] else "the weakest tier that is up and long enough"
            return Move("start", rung.tier, f"a session begins on {why}")
    widest = max(rungs, key=lambda rung: (rung.up, rung.window or 0))
    return Move("start", widest.tier, "no tier is up and long enough; the longest is asked", fits=False)


def _longer(evidence: Evidence, here: Rung, above: Sequence[Rung]) -> Move:
    need = f"about {evidence.tokens + evidence.room} tokens do not fit {here.tier}"
    for rung in above:
        if rung.up and rung.fits(evidence):
            return Move("climb", rung.tier, f"{need}; {rung.tier} is long enough")
    return Move("stay", here.tier, f"{need}, and no tier above it is longer", fits=False)


def _over(evidence: Evidence, here: Rung, above: Sequence[Rung]) -> Move:
    for rung in above:
        if rung.up and rung.fits(evidence):
            return Move("climb", rung.tier, f"no endpoint of {here.tier} is up")
    return Move("stay", here.tier, f"no endpoint of {here.tier} or above is up")


def _trouble(evidence: Evidence, rules: AutoConfig) -> Iterator[tuple[float, str]]:
    """Each sign that has reached its count, with its strength."""
    seen = (
        (evidence.bad, rules.bad_answers, "of the last answers could not be used"),
        (evidence.rounds, rules.repeats, "rounds of the same calls with the same results"),
        (evidence.failed_checks, rules.failed_checks, "failed checks in a row"),
        (evidence.unsure, rules.unsure_answers, "unsure answers in a row"),
    )
    for count, enough, words in seen:
        if count >= enough:
            yield count / enough, f"{count} {words}"


def _climb(
    evidence: Evidence,
    standing: Standing,
    place: tuple[Rung, Sequence[Rung]],
    trouble: Sequence[tuple[float, str]],
    rules: AutoConfig,
) -> Move:
    here, above = place
    why = ", ".join(words for _, words in trouble)
    target = next((rung for rung in above if rung.up and rung.fits(evidence)), None)
    if target is None:
        return Move("stay", here.tier, f"{why}, and no tier above {here.tier} can take it")
    if standing.answers < rules.settle:
        return Move("stay", here.tier, f"{why}, too soon after the last move")
    price = target.price
    if price is not None and price >= evidence.time_left:
        return Move("stay", here.tier, f"{why}, but {target.tier} would need {price:.0f} s and there is no time")
    if price is not None and price > rules.dear and sum(strength for strength, _ in trouble) < DOUBLE:
        return Move("stay", here.tier, f"{why}, not yet worth {price:.0f} s of re-prefill on {target.tier}")
    cost = "" if price is None else f" ({price:.1f} s to its first token)"
    return Move("climb", target.tier, f"{why}{cost}")


def _descend(evidence: Evidence, standing: Standing, place: tuple[Rung, Rung], rules: AutoConfig) -> Move | None:
    """A step down after calm, or where the time left allows for nothing else; None for neither."""
    here, below = place
    if not (below.up and below.fits(evidence, ROOMY)) or standing.answers < rules.settle:
        return None
    if here.price is not None and below.price is not None and below.price < evidence.time_left <= here.price:
        return Move("descend", below.tier, f"{here.tier} would need {here.price:.0f} s, which is past the deadline")
    calm = rules.calm * 2**standing.falls
    if evidence.calm < calm:
        return None
    saved = evidence.calm * (evidence.seconds or 0.0)
    if below.price is not None and below.price > max(rules.dear, saved):
        return None
    return Move("descend", below.tier, f"{evidence.calm} good answers in a row on {here.tier}")
