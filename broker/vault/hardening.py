"""This process closed to its own user's other processes: no core, no ptrace, no new rights; proven afterwards."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

from broker.errors import ConfigError

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 38, 39
_OPEN_FILES = 4096
_FEWEST_FILES = 1024  # of all sockets with every place taken, threads with a git each, and room to spare


def harden_process() -> None:
    """No core, not dumpable, no new privileges, files for the owner alone, a bounded number of open ones.

    A process that is not dumpable cannot be traced by its own user, and its /proc/PID/{mem,environ,maps,fd} are root's.
    Raises ConfigError where the kernel does not do it, where too few files may be open, and where somebody traces this
    process already: better no broker than an open one. Source: prctl(2), ptrace(2), proc(5).
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _OPEN_FILES if most == resource.RLIM_INFINITY else min(_OPEN_FILES, most)
    if allowed < _FEWEST_FILES:
        mend = "raise the limit: LimitNOFILE= of the service, or ulimit -n"
        raise ConfigError(f"the broker may open {allowed} files and needs {_FEWEST_FILES}", mend)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    libc = ctypes.CDLL(None, use_errno=True)
    for number, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_NO_NEW_PRIVS, 1)):
        libc.prctl(number, value, 0, 0, 0)
    _prove(libc, Path("/proc/self/status"))


def _prove(libc: ctypes.CDLL, status: Path) -> None:
    """Looks at what the kernel made of it."""
    if libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise ConfigError("the kernel did not make this process undumpable", "run on Linux")
    if libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
        raise ConfigError("the kernel did not bar this process from new privileges", "run on Linux")
    if resource.getrlimit(resource.RLIMIT_CORE) != (0, 0):
        raise ConfigError("this process could leave a core", "run on Linux")
    if tracer := _tracer(status):
        raise ConfigError(f"process {tracer} traces this one and can read every secret in it", "start it untraced")


def _tracer(status: Path) -> int:
    try:
        lines = status.read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"{status} cannot be read: {error.strerror}", "mount /proc for the broker") from None
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(found.get("TracerPid", "0"))
