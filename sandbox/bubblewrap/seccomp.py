"""Compiles the profile's seccomp rules to the bytes that bubblewrap installs, with libseccomp."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from typing import Any

from sandbox.errors import SandboxUnavailableError
from sandbox.rules.calls import RULES, Condition, Rule

try:
    import pyseccomp
except (ImportError, RuntimeError, OSError) as _error:  # pyseccomp raises RuntimeError where the C library is absent
    pyseccomp = None
    _reason = str(_error)


def compile_filter(rules: Iterable[Rule] = RULES) -> bytes:
    """A BPF program for this machine's own architecture; every other one is killed.

    Raises SandboxUnavailableError where libseccomp is absent.
    """
    if pyseccomp is None:
        raise SandboxUnavailableError(f"libseccomp cannot be loaded ({_reason}); mend: apt-get install libseccomp2")
    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for rule in rules:
        conditions = [_argument(rule.condition)] if rule.condition else []
        for name in rule.names:
            if _known(name):
                program.add_rule(pyseccomp.ERRNO(rule.errno), name, *conditions)
    with tempfile.TemporaryFile() as file:
        program.export_bpf(file)
        return os.pread(file.fileno(), 1 << 20, 0)


def _known(name: str) -> bool:
    """Whether libseccomp knows the call here; one that the architecture lacks cannot be called either."""
    try:
        return int(pyseccomp.resolve_syscall(pyseccomp.system_arch(), name)) >= 0
    except (ValueError, OSError, RuntimeError):
        return False


def _argument(condition: Condition) -> Any:
    compare = getattr(pyseccomp, condition.compare)
    if condition.compare == "MASKED_EQ":
        return pyseccomp.Arg(condition.argument, compare, condition.mask, condition.value)
    return pyseccomp.Arg(condition.argument, compare, condition.value)
