"""What the operator's reaction to a kind of finding makes of it."""

from __future__ import annotations

from broker.config.base import Reaction
from broker.wire import Severity

_SEVERITY: dict[Reaction, Severity | None] = {"block": "block", "ask": "ask", "warn": "warn", "allow": None}


def severity(reaction: Reaction) -> Severity | None:
    """The severity of what is found; None if nothing is to be said, and then it need not be looked for."""
    return _SEVERITY[reaction]
