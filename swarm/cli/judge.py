"""What the doctor's facts mean: pure, a finding or two for each."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from swarm.cli.clean import one_line
from swarm.config import RepositoryConfig
from swarm.shown import EndpointView, SandboxView
from swarm.types import Frozen

GIB = 1024**3
GIT = (2, 30)  # Debian 11's; older ones lack index-pack and rev-list options that the workspace uses
Level = Literal["ok", "warn", "fail"]


class Finding(Frozen):
    """One line of the doctor's report."""

    subject: str
    level: Level
    text: str
    mend: str = ""


def git(said: str) -> Finding:
    """What ``git --version`` said."""
    found = re.search(r"(\d+)\.(\d+)[.\w]*", said)
    if not found:
        return Finding(
            subject="git", level="warn", text=f"says no version: {one_line(said)}", mend="install git 2.30 or later"
        )
    old = (int(found[1]), int(found[2])) < GIT
    mend = "install git 2.30 or later" if old else ""
    return Finding(subject="git", level="warn" if old else "ok", text=found[0], mend=mend)


def disk(free: int, folder: Path) -> Finding:
    """Whether that many free bytes do; a run takes some hundred megabytes."""
    level: Level = "fail" if free < GIB // 2 else "warn" if free < 5 * GIB else "ok"
    mend = "" if level == "ok" else "free some, or set daemon.state to a folder on another disk"
    return Finding(subject="disk", level=level, text=f"{free / GIB:.1f} GiB free at {folder}", mend=mend)


def users(broker_uid: int, daemon_uid: int | None, own_uid: int) -> Finding:
    """The broker's key is only safe from the daemon when another user holds it; None where no daemon answers."""
    if broker_uid == (own_uid if daemon_uid is None else daemon_uid):
        whose = "you" if daemon_uid is None else "the daemon"
        mend = "run the broker as a user of its own: useradd --system swarm-broker"
        return Finding(subject="users", level="warn", text=f"the broker runs as the same user as {whose}", mend=mend)
    if daemon_uid == 0:
        mend = "run the daemon as a user of its own: useradd --system swarm"
        return Finding(
            subject="users", level="warn", text="the daemon runs as root, which reads the broker's key", mend=mend
        )
    return Finding(subject="users", level="ok", text="the broker runs as a user of its own")


def names(known: Sequence[str], configured: Sequence[str]) -> list[Finding]:
    """Repositories that the settings speak of and the broker does not know."""
    missing = [name for name in configured if name not in known]
    if not missing:
        return []
    text = f"the broker does not know {', '.join(missing)}"
    mend = f"add them to broker.toml, or correct the names; it knows: {', '.join(known) or 'none'}"
    return [Finding(subject="repositories", level="warn", text=text, mend=mend)]


def untested(known: Sequence[str], configured: Mapping[str, RepositoryConfig]) -> list[Finding]:
    """Repositories that the broker knows and whose tests nobody has named: no task on them is accepted as it is."""
    missing = [name for name in known if name not in configured or configured[name].test_command is None]
    if not missing:
        return []
    text = f"no test command is known for {', '.join(missing)}: a task must name one with --test-command"
    mend = f"set repositories.{missing[0]}.test_command in swarm.toml; swarm repository examine DIR finds it out"
    return [Finding(subject="tests", level="warn", text=text, mend=mend)]


def may_write(there: os.stat_result, uid: int, groups: Sequence[int]) -> bool:
    """Whether a user may write to a file, by its mode."""
    if uid == 0:
        return True
    if there.st_uid == uid:
        return bool(there.st_mode & stat.S_IWUSR)
    return bool(there.st_mode & (stat.S_IWGRP if there.st_gid in groups else stat.S_IWOTH))


def endpoints(seen: Sequence[EndpointView]) -> list[Finding]:
    """A server that is down is a warning while another of its tier is up, and a fault when none is."""
    alive = {view.tier for view in seen if view.up}
    found: list[Finding] = []
    for view in seen:
        text = f"tier {view.tier}, {view.url}: " + one_line(view.detail or ("up" if view.up else "down"), 200)
        level: Level = "ok" if view.up else "warn" if view.tier in alive else "fail"
        mend = "" if view.up else "start it, or correct its url in swarm.toml; swarm init finds servers on this machine"
        found.append(Finding(subject=f"endpoint {view.name}", level=level, text=text, mend=mend))
    return found


def sandbox(view: SandboxView, whose: str = "") -> Finding:
    """A backend that does not keep every claim is not used."""
    text = f"{view.backend} ({view.version}), {len(view.proved)} claims proved{whose}"
    if view.failed:
        mend = "sandboxes stay closed until these hold; see docs on the sandbox"
        return Finding(subject="sandbox", level="fail", text=f"{text}, not kept: {', '.join(view.failed)}", mend=mend)
    return Finding(subject="sandbox", level="ok", text=text)
