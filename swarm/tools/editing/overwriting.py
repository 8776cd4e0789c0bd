"""Whether a whole file may be written over one that is there, and what of the old one's form the new one keeps. Pure.

Nothing is written back from a part: of what lies under a new content, all must be known to whoever wrote it.
"""

from __future__ import annotations

from swarm.history import plain
from swarm.tools.editing import elided
from swarm.tools.editing.seen import Shown
from swarm.tools.files import LIMIT, Content
from swarm.tools.pages import LINES, ROOM, decode, split
from swarm.tools.text import crlf, unix

_BOM = b"\xef\xbb\xbf"


def objection(path: str, old: Content | None, shown: Shown | None, content: str) -> str:
    """Why ``content`` is not written over ``old``, of which ``shown`` is known; empty where it may be."""
    former = decode(old.data) if old else ""
    if line := elided.stand_in(unix(content), former):
        return elided.refusal(line)
    if old is None or not old.data:
        return ""
    gone = f"remove it first (rm {path}) if you mean to replace it"
    if not old.whole:
        return f"it is larger than {LIMIT} bytes, so you cannot know all of it: change it with shell"
    return _unreadable(old.data, former, gone) or _unknown(former, shown, gone)


def _unreadable(data: bytes, former: str, gone: str) -> str:
    if b"\0" in data[:8192]:
        return f"it is a binary file; {gone}"
    if any("\udc80" <= char <= "\udcff" for char in former):
        return f"it holds bytes that are no UTF-8 and would be lost: use edit or edit_lines, or {gone}"
    return ""


def _unknown(former: str, shown: Shown | None, gone: str) -> str:
    """A short file of which nothing was shown may be known from a command's output, which shows it whole."""
    if (shown is None and _fits(former)) or (shown is not None and shown.whole):
        return ""
    what = "only a part" if shown else "nothing"
    return (
        f"of its {len(split(former))} lines you have seen {what} as they are now, and the rest would be lost: view all "
        f"of it first, use edit or edit_lines, or {gone}"
    )


def _fits(text: str) -> bool:
    """Whether any one view or command would have shown it whole."""
    return len(text) <= ROOM // 2 and text.count("\n") <= LINES // 2


def kept(content: str, old: bytes) -> tuple[bytes, str]:
    """The new content with the line ends, the byte order mark and the last newline of the file in its place, and in
    words which of these were put back."""
    text, ways = plain(content), []
    windows = crlf(decode(old))
    if windows and "\r\n" not in text and "\n" in text:
        text = text.replace("\n", "\r\n")
        ways.append("line ends CRLF")
    if old.endswith(b"\n") and text and not text.endswith("\n"):
        text += "\r\n" if windows else "\n"
        ways.append("last newline")
    data = text.encode()
    if old.startswith(_BOM) and not data.startswith(_BOM):
        data = _BOM + data
        ways.append("byte order mark")
    return data, f" (kept: {', '.join(ways)})" if ways else ""
