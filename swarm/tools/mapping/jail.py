"""Locks a process up for good before it looks at what a stranger wrote: it may compute, read and write what is open.

A grammar is a parser in C. What a crafted file makes of it stays in a process that can open, start and reach nothing.
"""

from __future__ import annotations

import contextlib
from typing import Any

try:
    import resource
except ImportError:  # not on every platform
    resource = None  # type: ignore[assignment]
try:
    import pyseccomp
except (ImportError, RuntimeError, OSError):  # pyseccomp raises RuntimeError where the C library is absent
    pyseccomp = None

_CALLS = (
    "read", "write", "close", "brk", "munmap", "mremap", "madvise", "futex", "rt_sigreturn", "rt_sigaction",
    "rt_sigprocmask", "sigaltstack", "clock_gettime", "gettimeofday", "getrandom", "exit", "exit_group", "sched_yield",
    "fstat", "newfstatat", "lseek", "restart_syscall",
)  # fmt: skip
_NOT_RUNNABLE = ("mmap", "mprotect")
_PROT_EXEC = 0x4
MEMORY = 1 << 30
SECONDS = 60


def limit() -> None:
    """Bound memory and processor time; no core is left."""
    if resource is None:
        return
    bounds = [("RLIMIT_AS", MEMORY), ("RLIMIT_CPU", SECONDS), ("RLIMIT_CORE", 0), ("RLIMIT_FSIZE", 0)]
    for name, bound in bounds:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (bound, bound))


def lock() -> bool:
    """Allow nothing but what computing takes; whether the kernel does it. It cannot be undone."""
    if pyseccomp is None:
        return False
    try:
        _program().load()
    except (OSError, RuntimeError, ValueError):
        return False
    return True


def _program() -> Any:
    """The filter: what it does not name gets EPERM."""
    program = pyseccomp.SyscallFilter(pyseccomp.ERRNO(1))
    for name in _CALLS:
        with contextlib.suppress(ValueError):  # the architecture lacks it
            program.add_rule(pyseccomp.ALLOW, name)
    for name in _NOT_RUNNABLE:
        program.add_rule(pyseccomp.ALLOW, name, pyseccomp.Arg(2, pyseccomp.MASKED_EQ, _PROT_EXEC, 0))
    return program
