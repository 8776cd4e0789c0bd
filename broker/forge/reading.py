"""Foreign JSON becomes our types: every value bounded and of the right kind, or left out. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError

from broker.errors import ForgeError
from broker.forge.base import Order
from broker.forge.rest.problems import Reason
from broker.wire import Check, Comment, PullRequest
from broker.words.marker import read_marker

MOST_WORDS, MOST_LINE, MOST_COMMENTS = 64 * 1024, 500, 200
UNKNOWN = "0" * 40
"""Stands for a commit that the forge did not tell."""

CheckState = Literal["pending", "success", "failure", "neutral"]

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_LOGIN = re.compile(r"[^\s/\x00-\x1f]{1,255}")
_PLAIN_LOGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
_MOST_NUMBER = 1 << 53
_OUR_CONTEXT = "agent-swarm/broker"


def text(value: object, longest: int = MOST_WORDS) -> str:
    """Words, cut; empty for anything else. Line ends are line feeds, and there is no NUL."""
    if not isinstance(value, str):
        return ""
    return value[:longest].replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")


def line(value: object, longest: int = MOST_LINE) -> str:
    """The same on one line."""
    return " ".join(text(value, longest).split())


def number(value: object) -> int:
    """A count or an id; 0 for anything else."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST_NUMBER
    return value if good and isinstance(value, int) else 0


def inside(value: object, *path: str) -> Any:
    """What stands in a map in a map; None where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def items(value: object) -> list[dict[str, Any]]:
    """The maps in a list; none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def at(value: object) -> float:
    """Seconds since the epoch of an ISO 8601 time; 0 for anything else."""
    try:
        return max(datetime.fromisoformat(text(value, 40)).timestamp(), 0.0)
    except (ValueError, OverflowError, OSError):
        return 0.0


def commit(value: object) -> str:
    """A commit's id; empty for anything else."""
    return value if isinstance(value, str) and _COMMIT.fullmatch(value) else ""


def login(value: object) -> str:
    """Somebody's login; empty for anything else."""
    return value if isinstance(value, str) and _LOGIN.fullmatch(value) else ""


def can_log_in(name: str) -> bool:
    """Whether a name can be a login on Gitea or GitLab: what only looks like one in lower case is nobody's."""
    return _PLAIN_LOGIN.fullmatch(name) is not None


def task_of(branch: str, prefix: str) -> str:
    """The task that a branch of the broker's is for."""
    name = branch.removeprefix(prefix)
    return name if _NAME.fullmatch(name) else "unknown"


def kept(order: Order | None, branch: str, body: str, prefix: str, base_commit: str) -> dict[str, Any]:
    """What a forge does not keep of a pull request: the order's where there is one, else read off branch and words.

    People can change the words, so this is for showing; nothing is decided by it.
    """
    if order is not None:
        return order.model_dump(include={"base_commit", "task", "proposal", "evidence"})
    marked = read_marker(body)
    return {
        "base_commit": commit(marked.get("base")) or base_commit or UNKNOWN,
        "task": marked["task"] if _NAME.fullmatch(marked.get("task", "")) else task_of(branch, prefix),
        "proposal": marked.get("proposal", "unknown"),
    }


def pull_request(**values: Any) -> PullRequest:
    """The wire's pull request. Raises ForgeError if what the forge told makes none."""
    try:
        return PullRequest.model_validate(values)
    except ValidationError as error:
        fields = ", ".join(sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]}))
        message = f"the forge's answer makes no pull request: {fields}"
        raise ForgeError(message, "compare the forge's version with docs/", reason=Reason.BROKEN) from None


def somebody_elses(index: int, branch: str) -> ForgeError:
    """What to say of a pull request that stands in the way and is not the broker's."""
    message = f"pull request {index} of the branch {branch} is somebody else's"
    return ForgeError(message, "close it, or submit the task under another name", reason=Reason.DUPLICATE)


@dataclass(frozen=True)
class Said:
    """A comment as a forge shows it, under that forge's names of things."""

    author: str
    at: float
    text: str
    bot: bool = False
    path: str = ""
    line: int = 0

    def comment(self) -> Comment:
        """The wire's comment. Whether its author is permitted is asked elsewhere."""
        return Comment(
            author=self.author,
            permitted=False,
            at=self.at,
            text=self.text,
            path=self.path or None,
            line=self.line or None,
            bot=self.bot,
        )


def check(name: object, state: CheckState, summary: object, url: object) -> Check | None:
    """A check or status of a commit; None for the broker's own."""
    title = line(name, 200)
    if not title or title == _OUR_CONTEXT:
        return None
    return Check(name=title, state=state, summary=line(summary), url=web(url))


def web(value: object) -> str:
    """A web address that may be shown; empty for anything else, such as a script."""
    address = value if isinstance(value, str) and len(value) <= 2000 else ""
    return address if re.fullmatch(r"https?://[^\s<>\"'`]+", address) else ""
