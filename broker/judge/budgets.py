"""Pure: whether a repository may take one more pull request now, and when it may again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from broker.config.hours import next_opening, parse_span, zone_of
from broker.config.policy import Policy
from broker.errors import BudgetError

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class Usage:
    """What a repository has taken: open pull requests of the broker's, and when it delivered (s since the epoch).

    ``delivered`` needs no more than the last day; order does not matter.
    """

    open_pulls: int = 0
    delivered: Sequence[float] = ()


@dataclass(frozen=True)
class Closed:
    """Why nothing more is delivered now; ``opens`` in s since the epoch, None where it waits for people."""

    rule: str
    reason: str
    mend: str
    opens: float | None = None

    def error(self) -> BudgetError:
        """The same as what a caller is told."""
        return BudgetError(self.reason, self.mend, self.opens)


def closed(policy: Policy, usage: Usage, now: float) -> Closed | None:
    """The stop that lasts longest, or None if one more may be delivered."""
    found = [*_hours(policy, now), *_rate(policy, usage, now, HOUR), *_rate(policy, usage, now, DAY)]
    if usage.open_pulls >= policy.max_open_pulls:
        reason = f"{usage.open_pulls} pull requests are open, {policy.max_open_pulls} may be"
        found.append(Closed("too-many-open", reason, "merge or close some of them; or max_open_pulls is raised"))
    return max(found, key=lambda one: float("inf") if one.opens is None else one.opens, default=None)


def _hours(policy: Policy, now: float) -> list[Closed]:
    if not policy.hours:
        return []
    zone = zone_of(policy.timezone)
    opens = next_opening([parse_span(words) for words in policy.hours], zone, now)
    if opens <= now:
        return []
    reason = f"pull requests are opened {'; '.join(policy.hours)} ({policy.timezone}) alone"
    return [Closed("closed-hours", reason, f"it opens at {when(opens, zone)}; propose it then", opens)]


def _rate(policy: Policy, usage: Usage, now: float, window: float) -> list[Closed]:
    limit, words = (policy.max_per_hour, "hour") if window == HOUR else (policy.max_per_day, "day")
    recent = sorted(at for at in usage.delivered if at > now - window)
    if len(recent) < limit:
        return []
    opens = recent[-limit] + window
    reason = f"{len(recent)} proposals were delivered in the last {words}, {limit} may be"
    return [Closed(f"too-many-per-{words}", reason, f"the next may go at {when(opens, dt.UTC)}", opens)]


def when(moment: float, zone: dt.tzinfo) -> str:
    """A moment for a person, with its zone."""
    return dt.datetime.fromtimestamp(moment, zone).strftime("%Y-%m-%d %H:%M %Z")
