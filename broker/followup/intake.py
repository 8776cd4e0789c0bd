"""What on a forge asks for a task, and who may ask: decisions alone. Pure.

A payload, a comment or an issue never says what somebody may do: that is asked of the forge, now, and judged here.
"""

from __future__ import annotations

import re

from broker.config.repository import Intake
from broker.followup.plain import plain
from broker.forge.base import Permission
from broker.wire import Comment, Thread

MAX_TEXT = 48_000  # characters of an issue and what was said to it
MAX_WORDS = 8_000  # of one comment
DAY = 86_400.0
AT_ONCE = 2.0  # seconds: forges write one act down at more than one time
MARKER = "<!-- swarm:"  # begins every hidden line of the broker's own comments

_RANKS: tuple[Permission, ...] = ("none", "read", "triage", "write", "maintain", "admin")
_LOGIN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_])?(?:\[bot\])?")


def command_in(text: str, command: str | None) -> str | None:
    """What follows the command in a comment that begins with it; None for any other comment.

    Nothing may stand before it, not even a blank: a quote, a list, a code block or an answer to someone is no command.
    """
    if command is None or not text.startswith(command):
        return None
    rest = text[len(command) :]
    return plain(rest, MAX_WORDS).strip() if not rest or rest[0] in " \t\r\n" else None


def is_login(login: str) -> bool:
    """Whether it looks like a login of any forge: it goes into records and addresses."""
    return bool(_LOGIN.fullmatch(login))


def no_person(login: str, me: str | None, comment: Comment | None = None) -> str:
    """Why whoever wrote or labelled counts as no person; empty if they do. The broker never talks to itself."""
    if not is_login(login):
        return "the login is none"
    if me is not None and login.casefold() == me.casefold():
        return "the broker's own account"
    if login.casefold().endswith("[bot]") or (comment is not None and comment.bot):
        return "a bot"
    if comment is not None and MARKER in comment.text:
        return "a comment of the broker's own"
    return ""


def may(permission: Permission, needed: str) -> bool:
    """Whether a permission is enough."""
    return _RANKS.index(permission) >= _RANKS.index(_known(needed))


def _known(needed: str) -> Permission:
    return next(rank for rank in _RANKS if rank == needed)


def borne(thread: Thread, label: str | None) -> str | None:
    """The label as an issue bears it, None if it does not; forges do not tell upper case from lower."""
    return next((one for one in thread.labels if label is not None and one.casefold() == label.casefold()), None)


def not_now(thread: Thread, open_task: str | None, today: int, intake: Intake) -> str:
    """Why a permitted person's wish starts nothing; empty if it does."""
    if thread.pull:
        return "it is a pull request, not an issue"
    if thread.state != "open":
        return "the issue is closed"
    if open_task is not None:
        return f"task {open_task} is at it already"
    if today >= intake.max_per_day:
        return f"{today} tasks were started in a day, as many as the settings allow"
    return ""


def is_other(thread: Thread, sender: str, asked: float) -> bool:
    """Whether an issue was changed after the sender last did or said something there, by the forge's own clock.

    Its words may then be none that they have seen. What it was that changed, no forge tells for certain.
    """
    said = (one.at for one in thread.comments if one.author.casefold() == sender.casefold())
    return thread.updated > max([asked, *said]) + AT_ONCE


def told(thread: Thread, sender: str, words: str) -> str:
    """The text of an intake event: the issue's words and, after them, what the sender said with the command."""
    said = f"\n\n{sender} adds:\n{words}" if words else ""
    return plain(thread.text, MAX_TEXT - len(said)).strip() + said
