"""Decides from evidence whether an endpoint lives; pure.

A failed probe is no proof of death: a busy server answers late. Death takes two sources (a probe and a request), two
refused connections in a row, or the server's own word. A server that was never seen alive has no such credit.
"""

from __future__ import annotations

from typing import Literal

from pool.types import Frozen, LifeState

Event = Literal[
    "probe_ok",  # answered and well
    "probe_unready",  # answered: not ready (503)
    "probe_refused",  # nobody listens
    "probe_silent",  # no answer in time, or a broken one
    "probe_stalled",  # answers, but its engine has stood still with work in hand
    "request_ok",
    "request_failed",  # 5xx, a reset, a torn or missing answer
    "request_dead",  # nobody listens, or the engine says that it died
]


class Liveness(Frozen):
    """Where an endpoint stands, and the bad news since the last good one."""

    state: LifeState = "unknown"
    evidence: frozenset[str] = frozenset()


def judge(before: Liveness, event: Event) -> Liveness:
    """The next state."""
    if event in ("probe_ok", "request_ok"):
        return Liveness(state="up")
    evidence = before.evidence | {event}
    if event == "probe_unready" or before.state in ("unknown", "down") or _proof(before, event):
        return Liveness(state="down", evidence=evidence)
    return Liveness(state="suspect", evidence=evidence)


def _proof(before: Liveness, event: Event) -> bool:
    """Whether this event and what was known make two sources."""
    if event in ("probe_refused", "request_dead") and before.evidence & {"probe_refused", "request_dead"}:
        return True
    other = "request_" if event.startswith("probe_") else "probe_"
    return any(known.startswith(other) for known in before.evidence)
