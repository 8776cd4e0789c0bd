"""Looks at files that the settings name: whether another user could change what the broker runs, reads or trusts."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def program(path: Path, uid: int) -> str | None:
    """Why the broker, run as ``uid``, must not run this file; None if it may."""
    try:
        info = path.stat()
    except OSError as error:
        return f"cannot be found ({error.strerror})"
    if not stat.S_ISREG(info.st_mode):
        return "is no file"
    if not info.st_mode & 0o111:
        return f"is not executable: chmod +x {path}"
    return _changeable(path.resolve(), uid)


def secret(path: Path, uid: int) -> str | None:
    """Why the broker, run as ``uid``, would not read a secret from this file; None if it would."""
    try:
        info = path.lstat()
    except OSError as error:
        return f"cannot be found ({error.strerror})"
    if not stat.S_ISREG(info.st_mode):
        return "is not a plain file"
    handed = handed_over(path)
    if info.st_uid != uid and not (handed and info.st_uid == 0):
        return f"belongs to uid {info.st_uid}: chown {uid} {path}"
    if info.st_mode & (0o007 if handed else 0o077):
        return f"can be read by other users: chmod 600 {path}"
    return _open_to_others(path.parent.resolve())  # its owner is looked at once more when it is read


def handed_over(path: Path) -> bool:
    """Whether systemd's LoadCredential= put it there: root's own, made readable for this one service by an ACL.

    Its mode may therefore show a group's right to read. Source: systemd.exec(5), Credentials.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    return bool(folder) and path.parent == Path(folder or "")


def trusted(path: Path, uid: int) -> str | None:
    """Why the broker, run as ``uid``, must not trust this file's content; None if it may."""
    if not path.is_file() or not os.access(path, os.R_OK):
        return "is no file that can be read"
    return _changeable(path.resolve(), uid)


def folder(path: Path, uid: int) -> str | None:
    """Why the broker, run as ``uid``, must not put a socket into this folder; None if it may."""
    return _changeable(path.resolve(), uid)


def _changeable(path: Path, uid: int) -> str | None:
    for place in (path, *path.parents):
        info = place.stat()
        if info.st_uid not in {0, uid}:
            return f"can be changed by uid {info.st_uid}, who owns {place}: chown root {place}"
    return _open_to_others(path)


def _open_to_others(path: Path) -> str | None:
    for place in (path, *path.parents):
        mode = place.stat().st_mode
        sticky = stat.S_ISDIR(mode) and mode & stat.S_ISVTX  # others may add to it, not replace what is in it
        if mode & 0o022 and not sticky:
            return f"can be changed by other users, who may write to {place}: chmod go-w {place}"
    return None
