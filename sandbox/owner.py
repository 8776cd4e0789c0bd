"""Names sandboxes so that a later process of the same daemon finds what an earlier one left behind."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"swarm-(?P<tag>[0-9a-f]{10})-(?P<pid>[0-9]+)-(?P<start>[0-9]+)-[0-9a-f]{10}\Z")


@dataclass(frozen=True)
class Owner:
    """A daemon's state folder, and this one process of it."""

    tag: str
    pid: int
    start: int

    def new_name(self) -> str:
        """A name that no other sandbox has."""
        return f"swarm-{self.tag}-{self.pid}-{self.start}-{secrets.token_hex(5)}"

    def left_behind(self, name: str) -> bool:
        """Whether ``name`` is a sandbox of the same state folder whose process is gone."""
        match = _NAME.match(name)
        return match is not None and match["tag"] == self.tag and orphaned(name)


def orphaned(name: str) -> bool:
    """Whether ``name`` is a sandbox, of whatever state folder, whose process is gone."""
    match = _NAME.match(name)
    return match is not None and _start_of(int(match["pid"])) != int(match["start"])


def owner_of(state: Path) -> Owner:
    """This process, for that state folder."""
    tag = hashlib.sha256(os.fsencode(state.absolute())).hexdigest()[:10]
    return Owner(tag, os.getpid(), _start_of(os.getpid()) or 0)


def _start_of(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; see proc(5), field 22. None where there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
