"""What is wrong with one path component: what is never good (fatal), and what merely trips other systems."""

from __future__ import annotations

import re
import unicodedata

MAX_NAME = 255
_SHORT_NAME = re.compile(r"~\d+(?:\.|$)")
_DEVICES = {
    "con", "prn", "aux", "nul", "conin$", "conout$",
    *(f"{name}{digit}" for name in ("com", "lpt") for digit in "0123456789\u00b9\u00b2\u00b3"),
}  # fmt: skip
# What git itself reads in a work tree: none may be smuggled in under a name that a file system takes for it.
_OBEYED = {".git", ".gitmodules", ".gitattributes", ".gitignore", ".mailmap"}
_EIGHT_THREE = re.compile(r"(?:git|gitmod|gitatt|gitign|mailma|gi[0-9a-f]{4})~\d+")


def name_faults(name: bytes) -> list[str]:
    """What no person may approve: not a name, a way out of the folder, a look-alike, something unseen."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return ["has a name that is not UTF-8"]
    problems = []
    if text in {"", ".", ".."} or "/" in text:
        problems.append("has a name that leaves its folder")
    if _is_look_alike(text):
        problems.append("is a name that some file systems take for one that git obeys")
    if ":" in text or "\\" in text:
        problems.append("has a name that is a stream or a path on Windows")
    if _SHORT_NAME.search(text):
        problems.append("has a name that opens another file on Windows")  # GITHUB~1 opens .github
    if len(name) > MAX_NAME:
        problems.append(f"has a name longer than {MAX_NAME} bytes")
    if any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} for char in text):
        problems.append("has control or invisible characters in its name")
    return problems


def name_oddities(name: bytes) -> list[str]:
    """What a person may know better: names that other systems or careless programs read in another way."""
    text = name.decode("utf-8", "replace")
    problems = []
    device = text.split(".", maxsplit=1)[0].rstrip(" ").casefold() in _DEVICES
    if device or any(c in text for c in '"<>|?*') or text.endswith((" ", ".")):
        problems.append("has a name that means something else on other systems")
    if text.startswith("-"):
        problems.append("has a name that programs take for an option")
    return problems


def _is_look_alike(text: str) -> bool:
    # HFS+ ignores these, NTFS drops trailing dots and spaces, cuts at a stream colon, and knows an 8.3 name.
    seen = "".join(char for char in text if unicodedata.category(char) != "Cf")
    seen = unicodedata.normalize("NFKC", seen).casefold().split(":")[0].split("\\")[0].rstrip(" .")
    if seen == ".git" or _EIGHT_THREE.fullmatch(seen):
        return True
    return seen in _OBEYED and text.casefold() not in _OBEYED


def folded(name: bytes) -> str:
    """The name as a file system reads it that knows neither case nor Unicode's forms."""
    if name.isascii():
        return name.decode("ascii").lower()
    return unicodedata.normalize("NFKC", name.decode("utf-8", "surrogateescape")).casefold()


def printable(name: bytes) -> str:
    """A component for messages and policy: escapes what does not decode or would move a terminal."""
    text = name.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
