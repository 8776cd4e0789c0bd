"""Which state may follow which, and what follows an attempt. Pure: data in, a decision out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from swarm.budgets.sums import may_try_again
from swarm.errors import IllegalMoveError
from swarm.types import Attempt, AttemptResult, Budget, Ending, Frozen, Outcome, Spent, TaskState

S = TaskState

FRESH = 0.25  # share of the budget that must be left for a fresh attempt on the same tier
FIRST_WAIT = 5.0  # seconds before the first retry of a passing fault; each further one waits four times as long

_ENDS = {
    S.NO_CHANGE: "the work ended without a change, and none was needed",
    S.LIMIT_HIT: "the budget was spent",
    S.GAVE_UP: "the agent said that it cannot do it",
    S.CHECKS_FAILED: "the tests do not vouch for the change",
    S.INFRA_FAILED: "machinery of ours is broken",
    S.NEEDS_PERSON: "only a person can decide what follows",
    S.CANCELLED: "a person cancelled it",
}
_AGAIN = (*_ENDS, S.REFUSED, S.EXPIRED)

MOVES: Mapping[tuple[TaskState, TaskState], str] = MappingProxyType(
    {
        (S.QUEUED, S.RUNNING): "a worker claimed it",
        (S.QUEUED, S.CANCELLED): "a person cancelled it before it was claimed",
        (S.QUEUED, S.PAUSED): "a person paused it before it was claimed",
        (S.QUEUED, S.EXPIRED): "nobody claimed it in time",
        (S.QUEUED, S.NEEDS_PERSON): "something has to be put right before anything is spent on it",
        (S.RUNNING, S.QUEUED): "another attempt is to be made, or another worker goes on with this one",
        (S.RUNNING, S.PAUSED): "a person paused it; its work is saved",
        (S.PAUSED, S.QUEUED): "a person lets it go on",
        (S.PAUSED, S.CANCELLED): "a person cancelled it while it was paused",
        (S.RUNNING, S.DELIVERING): "the checks vouch for the change, so it goes to the broker",
        (S.DELIVERING, S.DELIVERED): "the forge holds it",
        (S.DELIVERING, S.REFUSED): "the broker's policy refused it; it is kept for a person",
        (S.DELIVERING, S.NEEDS_PERSON): "the broker could not take it, or holds it; the work is kept",
        (S.NEEDS_PERSON, S.DELIVERED): "the broker, which held it, has brought it to the forge",
        (S.NEEDS_PERSON, S.REFUSED): "the broker, which held it, refused it",
        (S.REFUSED, S.DELIVERED): "a person approved it at the broker",
        (S.REFUSED, S.NEEDS_PERSON): "a person approved it at the broker, which holds it",
        **{(S.RUNNING, end): why for end, why in _ENDS.items()},
        **{(end, S.QUEUED): "a person asked for another try" for end in _AGAIN},
    }
)


HELD = (S.NEEDS_PERSON, S.REFUSED)
"""Where a task ends whose proposal the broker may yet deliver."""


def why_legal(start: TaskState, end: TaskState) -> str:
    """The sentence behind a legal move. Raises IllegalMoveError for any other."""
    try:
        return MOVES[start, end]
    except KeyError:
        raise IllegalMoveError(
            f"a task that is {start.value} cannot become {end.value}", "see where it stands: swarm list"
        ) from None


_STATES: Mapping[Ending, TaskState] = MappingProxyType(
    {
        "no_change": S.NO_CHANGE,
        "limit_hit": S.LIMIT_HIT,
        "gave_up": S.GAVE_UP,
        "cancelled": S.CANCELLED,
        "infra_failed": S.INFRA_FAILED,
    }
)


class Decision(Frozen):
    """What follows an attempt.

    ``end`` names the final ``state``; ``retry`` is the same again on ``tier`` after ``wait`` seconds, ``climb`` the
    next tier at once; ``deliver`` hands the sealed tree to the broker.
    """

    kind: Literal["deliver", "retry", "climb", "end"]
    reason: str
    state: TaskState | None = None
    tier: str | None = None
    wait: float = 0.0


def decide(attempt: Attempt, result: AttemptResult, budget: Budget, spent: Spent, ladder: tuple[str, ...]) -> Decision:
    """What follows an attempt.

    Faults of the machinery are tried again, all of them on the one count of attempts in ``budget``. Faults of the agent
    are never repeated blindly: they climb to the next tier of ``ladder`` (weakest first; empty where the person pinned
    the tier); with none above, a fresh attempt is made where the last one left lessons and enough of the budget; else
    they end.
    """
    if result.fault:
        return _after_fault(attempt, result, budget, spent)
    ending = result.conclusion.ending
    reason = result.conclusion.summary or ending
    if ending == "finished":
        return _after_checks(attempt, result, budget, spent, ladder)
    if ending == "asked":
        return _end(S.NEEDS_PERSON, f"the agent asks: {' '.join(reason.split())}")
    if ending != "gave_up":
        return _end(_STATES[ending], reason)
    return _again(attempt, result, budget, spent, ladder) or _end(S.GAVE_UP, reason)


def _after_fault(attempt: Attempt, result: AttemptResult, budget: Budget, spent: Spent) -> Decision:
    fault = result.fault
    if fault is None:
        raise AssertionError("asked about a fault that is none")
    if fault.kind == "person":
        return _end(S.NEEDS_PERSON, fault.text)
    if fault.kind == "lasting":
        return _end(S.INFRA_FAILED, fault.text)
    if not may_try_again(budget, spent):
        return _end(S.INFRA_FAILED, f"{fault.text}; after {spent.attempts} attempts")
    wait = FIRST_WAIT * 4.0 ** (attempt.number - 1)
    return Decision(kind="retry", reason=fault.text, tier=attempt.tier, wait=min(wait, 600.0))


def _after_checks(
    attempt: Attempt, result: AttemptResult, budget: Budget, spent: Spent, ladder: tuple[str, ...]
) -> Decision:
    sealed, report = result.sealed, result.report
    if sealed is None or not sealed.changed:
        return _end(S.NO_CHANGE, result.conclusion.summary or "the work ended without a change")
    if report is None or report.verdict == "not_run":
        why = report.reason if report else "no checks were run"
        return _end(S.NEEDS_PERSON, f"nothing vouches for the change: {why}")
    if report.verdict == "passed":
        return Decision(kind="deliver", reason=f"the checks pass{_fixed(report.fixed)}")
    return _again(attempt, result, budget, spent, ladder) or _end(S.CHECKS_FAILED, report.reason)


def _again(
    attempt: Attempt, result: AttemptResult, budget: Budget, spent: Spent, ladder: tuple[str, ...]
) -> Decision | None:
    """Another attempt at what an agent could not do: on the next tier, else afresh with what was learned."""
    if climb := _climb(attempt, budget, spent, ladder):
        return climb
    if not (result.conclusion.lessons and may_try_again(budget, spent) and _worth(budget, spent)):
        return None
    reason = f"attempt {attempt.number} could not do it; a fresh one is told what was tried"
    return Decision(kind="retry", reason=reason, tier=attempt.tier)


def _worth(budget: Budget, spent: Spent) -> bool:
    """Whether so much is left that beginning afresh is no waste."""
    pairs = ((spent.tokens, budget.tokens), (spent.steps, budget.steps), (spent.wall, budget.wall))
    return all(used <= limit * (1 - FRESH) for used, limit in pairs)


def _climb(attempt: Attempt, budget: Budget, spent: Spent, ladder: tuple[str, ...]) -> Decision | None:
    if attempt.tier not in ladder or not may_try_again(budget, spent):
        return None
    above = ladder[ladder.index(attempt.tier) + 1 :]
    if not above:
        return None
    return Decision(kind="climb", reason=f"{attempt.tier} could not do it; {above[0]} tries next", tier=above[0])


def pauses(patience: float) -> Iterator[float]:
    """How long to wait between tries of a delivery, in seconds, until ``patience`` is over."""
    pause, left = 5.0, patience
    while left > 0:
        yield min(pause, left)
        left -= pause
        pause = min(2 * pause, 120.0)


def _end(state: TaskState, reason: str) -> Decision:
    return Decision(kind="end", state=state, reason=reason)


def _fixed(names: tuple[str, ...]) -> str:
    return f" and {len(names)} of them failed before" if names else ""


def carries(state: TaskState, result: AttemptResult | None) -> bool:
    """Whether the next attempt can take over the last one's sealed tree: it was finished, what came after failed."""
    return (
        state in {S.QUEUED, S.NEEDS_PERSON, S.INFRA_FAILED}
        and result is not None
        and result.conclusion.ending == "finished"
        and result.sealed is not None
        and result.sealed.changed
    )


def after_delivery(outcome: Outcome) -> tuple[TaskState, str]:
    """Where a delivering task goes, and why. Raises AssertionError for an outcome that nobody tried to deliver."""
    if outcome.fault is not None:
        return S.NEEDS_PERSON, f"{outcome.fault.text}; the work is kept, and a retry delivers it"
    if outcome.verdict is None:
        raise AssertionError("nothing was delivered")
    return after_word(outcome.verdict)


def after_word(verdict: Mapping[str, Any]) -> tuple[TaskState, str]:
    """Where the broker's word on a proposal puts its task, and why."""
    if verdict["kind"] == "receipt":
        return S.DELIVERED, f"pull request {verdict.get('url') or verdict['pull_request']}"
    if verdict["kind"] == "waiting":
        return S.NEEDS_PERSON, f"waits at the broker, which delivers it by itself: {verdict['reason']}"
    against = [found for found in verdict["findings"] if found.get("severity") != "warn"]
    reason = "; ".join(f"{found['rule']}: {found['message']}" for found in against) or "the broker gave no reason"
    if verdict.get("waits"):
        return S.NEEDS_PERSON, f"{reason}; a person approves it: swarm-broker proposals show {verdict['proposal']}"
    return S.REFUSED, reason


def may_still_pass(verdict: Mapping[str, Any]) -> bool:
    """Whether the broker may yet deliver what it has this word on: it goes on by itself, or a person may approve it."""
    if verdict["kind"] == "refusal":
        return all(found.get("severity") != "fatal" for found in verdict["findings"])
    return bool(verdict["kind"] == "waiting")
