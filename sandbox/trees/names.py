"""Judges path names that come out of a workspace. Pure."""

from __future__ import annotations

from collections.abc import Iterator

# Code points that some file systems ignore in names, so that ".g<U+200C>it" opens ".git" there (CVE-2014-9390).
_IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])
_IGNORED_BEGINS = (b"\xe2\x80", b"\xe2\x81", b"\xef\xbb")  # their first bytes in UTF-8
_LONGEST = 4096


def normal(name: bytes) -> bytes | None:
    """A tar name as a plain relative path; None where it is absolute, climbs, is empty or too long."""
    if name.startswith(b"/") or len(name) > _LONGEST or b"\0" in name:
        return None
    parts = [part for part in name.split(b"/") if part not in {b"", b"."}]
    if not parts or b".." in parts:
        return None
    return b"/".join(parts)


def above(path: bytes) -> Iterator[bytes]:
    """The folders above a path, the nearest first."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def names_git(part: bytes) -> bool:
    """Whether a path component is ``.git`` to git or to a file system that folds names or parts them at backslashes."""
    if part.isascii() and b"git" not in part.lower():
        return False  # nearly all of them, without taking them apart
    return _may_spell(part, b"git") and any(piece in {".git", "git~1"} for piece in _folded(part).split("\\"))


def git_among(parts: list[bytes]) -> int | None:
    """Which component of a path is the first that names git; None where none does."""
    whole = b"/".join(parts)
    if not _may_spell(whole, b"git"):
        return None
    return next((at for at, part in enumerate(parts) if names_git(part)), None)


def names_gitmodules(part: bytes) -> bool:
    """Whether it is ``.gitmodules`` in the same sense; git takes no symbolic link of that name."""
    return _may_spell(part, b"gitmod") and _folded(part) in {".gitmodules", "gitmod~1"}


def _may_spell(name: bytes, letters: bytes) -> bool:
    """Whether letters could stand there once what is ignored is taken out. Cheap: an agent chooses how often we ask."""
    return letters in name.lower() or any(begin in name for begin in _IGNORED_BEGINS)


def _folded(part: bytes) -> str:
    text = part.decode("utf-8", "replace").translate(_IGNORED).casefold()
    return "\\".join(piece.split(":", 1)[0].rstrip(" .") for piece in text.split("\\"))


def shown(path: bytes) -> str:
    """A path for people and JSON; undecodable bytes become ``\\xNN``."""
    return path.decode("utf-8", "backslashreplace")
