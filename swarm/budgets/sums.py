"""Arithmetic of budgets: what was spent, added up, and a budget that was granted more than once. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from swarm.types import Budget, Spent

LIMITS = (
    ("steps", "steps"),
    ("tokens", "tokens"),
    ("wall", "seconds"),
    ("gpu_seconds", "GPU-seconds"),
    ("money", "money"),
)
"""What a budget and what was spent have in common, and how it is counted in words."""


def total(spent: Iterable[Spent]) -> Spent:
    """The sum."""
    parts = tuple(spent)
    return Spent.model_construct(**{name: sum(getattr(one, name) for one in parts) for name in Spent.model_fields})


def granted(once: Budget, times: int) -> Budget:
    """A budget that a person granted so many times; what is no sum (idle time, rounds) stays as it is."""
    sums = ("steps", "tokens", "wall", "attempts", "gpu_seconds", "money")
    limits = {name: getattr(once, name) for name in sums}
    return once.model_copy(update={name: limit * times for name, limit in limits.items() if limit is not None})


def may_try_again(budget: Budget, spent: Spent) -> bool:
    """Whether anything is left for another attempt."""
    return spent.attempts < budget.attempts and all(
        (limit := getattr(budget, name)) is None or getattr(spent, name) < limit for name, _ in LIMITS
    )


def remaining(budget: Budget, spent: Spent) -> Budget | None:
    """What is left of a budget for a further task; None if nothing is left. Attempts begin anew."""
    limits = ((name, getattr(budget, name)) for name, _ in LIMITS)
    left = {name: limit - getattr(spent, name) for name, limit in limits if limit is not None}
    return None if min(left.values()) <= 0 else budget.model_copy(update=left)
