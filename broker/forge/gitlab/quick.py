"""The last door before GitLab: no text leaves in which a line begins with a slash and a word. Pure.

GitLab executes such lines in descriptions and notes (quick actions: `/merge`, `/approve`, `/label`), with the rights of
the token's account, and takes them out of the text. The words are cleaned long before; this holds if that ever fails.
"""

from __future__ import annotations

import re

from broker.errors import ForgeError
from broker.forge.rest.problems import Reason

# GitLab wants the slash at the very begin of a line and the word ended by a space or the line's end. What may stand
# before it where a later version looks deeper (spaces, quote and list marks) is refused too; a path is not (/usr/bin).
# A line ends at whatever anybody takes for an end of line.
_LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_ACTION = re.compile(r"(?:[\s>*+\-\u200b-\u200d\u2060\ufeff]|\d{1,3}[.)][ \t]){0,40}/[A-Za-z]\w*(?!/|\w)")


def quick_actions(text: str) -> tuple[str, ...]:
    """The lines of a text that GitLab could take for commands."""
    return tuple(line for line in _LINE_ENDS.split(text) if _ACTION.match(line))


def without_actions(text: str, what: str) -> str:
    """The text as it is. Raises ForgeError if a line of it could be a command; ``what`` names the text."""
    if found := quick_actions(text):
        shown = " ".join(found[0].split())[:60]
        raise ForgeError(
            f"{what} holds a line that GitLab would execute: {shown!r}; nothing was sent",
            "this is a fault of the broker's cleaning of words: report it",
            reason=Reason.INVALID,
        )
    return text


def titled(title: str) -> str:
    """A title on one line. GitLab looks for no command in titles, but for a draft's mark."""
    return " ".join(title.split())
