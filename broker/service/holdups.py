"""What hinders the proposals that have no verdict yet: the last words, how often, and when it is worth another look.

In memory alone: after a restart each of them is tried again at once, which tells it anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.errors import BrokerError, BudgetError, ForgeError, StoppedError
from broker.outbox.rows import Kept


@dataclass(frozen=True)
class Holdup:
    """What one proposal met last. ``failed``: how often that was a failure and no stop or budget."""

    said: str = ""
    failed: int = 0
    opens: float | None = None


class Holdups:
    """By proposal. Safe to use from several threads: each change is one assignment."""

    def __init__(self) -> None:
        self._known: dict[str, Holdup] = {}

    def of(self, kept: Kept) -> Holdup:
        """What hinders one that has no verdict."""
        found = self._known.get(kept.id)
        return found or Holdup(kept.reason or "it is being worked on")

    def failed(self, proposal: str) -> int:
        """How often it failed."""
        return self._known.get(proposal, Holdup()).failed

    def met(self, proposal: str, error: Exception) -> bool:
        """Keeps what it met; whether that is said for the first time."""
        before = self._known.get(proposal, Holdup())
        later = isinstance(error, StoppedError | BudgetError)
        opens = error.opens if isinstance(error, BudgetError) else error.when if isinstance(error, ForgeError) else None
        now = Holdup(said(error), before.failed + (not later), opens)
        self._known[proposal] = now
        return now.said != before.said

    def over(self, proposal: str) -> None:
        """It has a verdict."""
        self._known.pop(proposal, None)


def said(error: Exception) -> str:
    """Of an error that nobody foresaw the class alone: its text could hold anything."""
    return str(error) if isinstance(error, BrokerError) else f"a fault of the broker's own: {type(error).__name__}"
