"""When a repository or an image is left alone for a while, because the machinery fails on it again and again. Pure.

Nygard, "Release It!", 2007: closed, open, and half open with one trial after a pause that doubles up to a bound.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

THRESHOLD = 3  # failures one after the other that open it
PAUSE = 60.0  # seconds before the first trial
LONGEST = 3600.0


@dataclass(frozen=True)
class Breaker:
    """What is remembered of a name ("repository:NAME" or "image:NAME"); ``trial`` is the one task let through.

    It counts for as long as that task is worked on: one that was stopped, or whose host is gone, tells nothing.
    """

    name: str
    failures: int = 0
    until: float | None = None
    trial: str | None = None
    reason: str = ""

    @property
    def opened(self) -> bool:
        """Whether it is open or half open."""
        return self.until is not None


def failed(breaker: Breaker, task: str, reason: str, now: float) -> Breaker:
    """After a failure of the machinery in an attempt at ``task``."""
    if breaker.opened and breaker.trial != task:
        return replace(breaker, reason=reason)  # one that had begun before it opened proves nothing new
    failures = breaker.failures + 1
    if failures < THRESHOLD:
        return replace(breaker, failures=failures, reason=reason)
    pause = min(PAUSE * 2.0 ** (failures - THRESHOLD), LONGEST)
    return replace(breaker, failures=failures, until=now + pause, trial=None, reason=reason)


def worked(breaker: Breaker) -> Breaker:
    """After an attempt that the machinery carried to its end, whatever became of it."""
    return Breaker(breaker.name)


def shut(breaker: Breaker, now: float, busy: Collection[str]) -> str:
    """Why nothing starts while the tasks ``busy`` are worked on, in words; empty when something may."""
    if breaker.until is None:
        return ""
    kind, _, name = breaker.name.partition(":")
    why = f"the machinery failed {breaker.failures} times in a row on {kind} {name} ({breaker.reason})"
    if now < breaker.until:
        return (
            f"{why}; tried again in {breaker.until - now:.0f} s, or at once after: swarm breaker reset {breaker.name}"
        )
    return f"{why}; task {breaker.trial} tries whether it works again" if breaker.trial in busy else ""


def trying(breaker: Breaker, task: str, now: float) -> Breaker:
    """Once a task was let through."""
    return replace(breaker, trial=task) if breaker.until is not None and now >= breaker.until else breaker
