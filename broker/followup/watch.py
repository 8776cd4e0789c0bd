"""What one of the broker's own pull requests asks for next: a decision on what the forge shows. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from broker.config.repository import Follow
from broker.followup.ledger import Watched
from broker.followup.plain import line, plain
from broker.wire import Check, Comment, PullRequest

MAX_TEXT = 48_000
PATIENCE = 3600.0  # seconds that an event may be worked on before the next one comes all the same
DAY = 86_400.0

Next = Literal["nothing", "review", "check", "conflict", "needs-human"]


@dataclass(frozen=True)
class Facts:
    """A pull request as it is now: what permitted people said and was not passed on, whether its branch still is what
    the broker pushed, whether it conflicts and which checks failed since the last event of that kind."""

    words: tuple[Comment, ...] = ()
    conflict: bool = False
    failing: tuple[Check, ...] = ()


def decide(known: Watched, facts: Facts, follow: Follow, now: float) -> Next:
    """The one thing to do; people go first, then a conflict (checks of a conflicting branch tell little).

    Nothing while an earlier event is worked on. Once the rounds are used up a person is called, a single time.
    """
    wanted: Next = "nothing"
    if facts.words and follow.reviews:
        wanted = "review"
    elif facts.conflict and follow.conflicts:
        wanted = "conflict"
    elif facts.failing and follow.checks:
        wanted = "check"
    if wanted == "nothing" or is_busy(known, now):
        return "nothing"
    if known.rounds < follow.max_rounds:
        return wanted
    return "nothing" if known.told else "needs-human"


def is_busy(known: Watched, now: float) -> bool:
    """Whether an event of it is being worked on."""
    return known.busy is not None and now - known.busy < PATIENCE


def failing(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """The failed ones, once none is under way any more; nothing before, so that all of them are told together."""
    if any(check.state == "pending" for check in checks):
        return ()
    return tuple(check for check in checks if check.state == "failure")


def expired(last: float, days: int, now: float) -> bool:
    """Whether nothing has happened for that many days; never for 0."""
    return days > 0 and now - last > days * DAY


def text_of(wanted: Next, facts: Facts, pull: PullRequest) -> str:
    """The text of its event."""
    match wanted:
        case "review":
            return _bounded([_said(comment) for comment in facts.words])
        case "check":
            return _bounded([_ran(check) for check in facts.failing])
        case "conflict":
            return f"{pull.branch} conflicts with {pull.base} as it is now"
        case _:
            return ""


def _said(comment: Comment) -> str:
    where = f" on {line(comment.path, 300)}" if comment.path else ""
    where += f" line {comment.line}" if comment.path and comment.line else ""
    return f"{line(comment.author, 100)}{where}:\n{plain(comment.text, 8000).strip()}"


def _ran(check: Check) -> str:
    summary = plain(check.summary, 4000).strip()
    return f"{line(check.name, 200)} failed" + (f":\n{summary}" if summary else "")


def _bounded(parts: list[str]) -> str:
    return plain("\n\n".join(parts), MAX_TEXT)
