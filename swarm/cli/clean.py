"""Makes foreign text safe to print: what models, repositories and servers say must not steer a terminal."""

from __future__ import annotations

import re

# An escape sequence goes as a whole (ECMA-48: CSI, then OSC and its kin up to their terminator, then two-character
# ones), so that no stray "31m" stays behind.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"
    r"|\x1b[ -/]*[0-~]?"
)
# C0 and C1 controls but tab and newline; then marks that reorder or hide text (Unicode TR 36: bidi, zero width, tags).
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# Surrogates come from undecodable bytes and cannot be written out again.
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text without escape sequences, control characters and hidden marks; newlines and tabs stay."""
    plain = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", plain))


def one_line(text: str, width: int = 100) -> str:
    """The text on one line, cut to ``width`` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"
