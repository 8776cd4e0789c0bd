"""Characters that a reader sees: one form for each, nothing hidden, nothing that only looks like a letter. Pure."""

from __future__ import annotations

import itertools
import re
import unicodedata

_FOLDED = ("<wide>", "<narrow>", "<small>", "<font>", "<circle>", "<square>", "<compat>")
"""Decompositions that are the same to a reader and not to a filter; superscripts and fractions keep their meaning."""
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u2800\u3164\uffa0")
_MOST_MARKS = 4  # on one letter; more are drawn over the lines around it

# Unicode TR 39's confusables, those that stand for one ASCII letter in the scripts that are used to deceive.
_LOOKALIKES = str.maketrans(
    "АВЕКМНОРСТУХаеорсухіјѕԁԛԝһӏ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧοαρν" + "օոսցհ",  # noqa: RUF001 - the point
    "ABEKMHOPCTYXaeopcyxijsdqwhl" + "ABEZHIKMNOPTYXoapv" + "onugh",
)
_SMALL_CAPITALS = str.maketrans("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢɑɡıɩ", "abcdefghijklmnoprstuvwyzagii")
_NO_LETTER = re.compile(r"[^a-z]+")
_WORD = re.compile(r"[^\W\d_]+")
_LATIN = re.compile(r"[A-Za-z]")


def visible(text: str) -> str:
    """The text as it looks: line ends as newlines, other white space as spaces, hidden characters gone."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    shown = (" " if unicodedata.category(char) == "Zs" else char for char in unicodedata.normalize("NFC", lines))
    return _few_marks("".join(char for char in shown if char in "\n\t" or _is_seen(char)))


def folded(text: str) -> str:
    """Full-width, styled and circled signs as plain ones, and none of another alphabet in a Latin word."""
    if text.isascii():
        return text
    plain = "".join(unicodedata.normalize("NFKC", char) if _is_variant(char) else char for char in text)
    return _WORD.sub(lambda found: _one_script(found.group()), plain)


def letters(text: str) -> str:
    """What it spells to a reader who looks past marks, markup, case and alphabets: a to z alone. To compare by."""
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text).translate(_LOOKALIKES).translate(_SMALL_CAPITALS)
    return _NO_LETTER.sub("", text.lower())


def _is_variant(char: str) -> bool:
    return unicodedata.decomposition(char).startswith(_FOLDED)


def _one_script(word: str) -> str:
    return word.translate(_LOOKALIKES) if not word.isascii() and _LATIN.search(word) else word


def _is_seen(char: str) -> bool:
    return char.isprintable() and char not in _BLANK and not _selects(char)


def _selects(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _few_marks(text: str) -> str:
    if text.isascii():
        return text
    groups = itertools.groupby(text, key=lambda char: unicodedata.category(char) in {"Mn", "Me"})
    return "".join("".join(itertools.islice(group, _MOST_MARKS) if marks else group) for marks, group in groups)
