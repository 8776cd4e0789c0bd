"""The one status comment that the broker keeps on a task's issue or pull request. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from broker.words.clean import clean, code, fitted
from broker.words.dialect import Dialect
from broker.words.sections import without_claims

_MAX_TEXT = 4_000
_ADDRESS = re.compile(r"https?://[\w.:-]+(?:/[\w.-]+)+", re.ASCII)
_TASK = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_STATES = {
    "queued": "waits for its turn",
    "working": "is being worked on",
    "checking": "is being checked",
    "delivered": "is delivered",
    "failed": "has failed",
    "waiting": "waits for a person",
    "cancelled": "was cancelled",
}


def status_marker(task: str) -> str:
    """The hidden line by which the broker knows a task's one comment again; see `marker`."""
    if not _TASK.fullmatch(task):
        raise ValueError(f"{task!r} is not a task's name")
    return f"<!-- swarm:status={task} -->"


@dataclass(frozen=True)
class StatusPage:
    """How far a task is. ``text`` as it came; ``pull_url`` as the forge names it.

    ``at`` in seconds since the epoch, 0 if it is not to be told.
    """

    task: str
    state: str
    text: str = ""
    rounds: int = 0
    max_rounds: int = 0
    pull_url: str = ""
    at: float = 0.0


def status_comment(page: StatusPage, dialect: Dialect) -> str:
    """The comment: the state as a line, what is said of it, and the hidden marker at the end."""
    said = fitted(page.text[: 4 * _MAX_TEXT], _MAX_TEXT, lambda text: without_claims(clean(text, dialect)))
    parts = [f"**Task {code(page.task, dialect)} {_STATES.get(page.state, 'is in an unknown state')}.**"]
    parts += [_more(page)] if _more(page) else []
    parts += [said] if said else []
    return "\n\n".join([*parts, status_marker(page.task)])


def _more(page: StatusPage) -> str:
    facts = []
    if _ADDRESS.fullmatch(page.pull_url):
        facts.append(f"pull request {page.pull_url}")
    if page.rounds:
        facts.append(f"round {page.rounds}" + (f" of {page.max_rounds}" if page.max_rounds else ""))
    if page.at:
        facts.append(f"{datetime.fromtimestamp(page.at, UTC):%Y-%m-%d %H:%M} UTC")
    return ", ".join(facts)
