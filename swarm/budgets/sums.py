"""Arithmetic of budgets: what was spent, added up, and a budget that was granted more than once. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from swarm.types import Budget, Spent


def total(spent: Iterable[Spent]) -> Spent:
    """The sum."""
    parts = tuple(spent)
    return Spent.model_validate({name: sum(getattr(one, name) for one in parts) for name in Spent.model_fields})


def granted(once: Budget, times: int) -> Budget:
    """A budget that a person granted so many times; what is no sum (idle time, rounds) stays as it is."""
    sums = ("steps", "tokens", "wall", "attempts", "gpu_seconds", "money")
    limits = {name: getattr(once, name) for name in sums}
    return once.model_copy(update={name: limit * times for name, limit in limits.items() if limit is not None})


LIMITS = (
    ("steps", "steps"),
    ("tokens", "tokens"),
    ("wall", "seconds"),
    ("gpu_seconds", "GPU-seconds"),
    ("money", "of its money"),
)
"""What a budget and what was spent have in common, and how it is counted in words."""


def may_try_again(budget: Budget, spent: Spent) -> bool:
    """Whether anything is left for another attempt."""
    return spent.attempts < budget.attempts and all(
        (limit := getattr(budget, name)) is None or getattr(spent, name) < limit for name, _ in LIMITS
    )


def exceeded(budget: Budget, spent: Spent) -> str:
    """Which limit was passed, in words; empty when none was. Attempts are counted when one begins, not here."""
    for name, unit in LIMITS:
        used, limit = getattr(spent, name), getattr(budget, name)
        if limit is not None and used > limit:
            return f"{used:.0f} of {limit:.0f} {unit} are spent"
    return ""
