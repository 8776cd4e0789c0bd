"""What the attack suites share: a small sandbox's limits, and how they get programs into it."""

from __future__ import annotations

import os
import textwrap
import time

from sandbox.base import Sandbox
from sandbox.types import MIB, Command, Limits, Outcome, SandboxSpec

SPEC = SandboxSpec(limits=Limits(memory=96 * MIB, processes=40, disk=8 * MIB, output=64 * 1024, wall=30))
CALLS = """
import ctypes, errno, os, socket, sys
from pathlib import Path
libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
def call(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *args)
    return errno.errorcode.get(ctypes.get_errno(), "OK") if result == -1 else "OK"
def act(work):
    try:
        work()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "OK"
"""


def mark() -> str:
    """Digits that no other process of this machine has in its command line."""
    return f"9{os.getpid()}{time.time_ns() % 10**7}"


async def sh(box: Sandbox, script: str, timeout: float = 20) -> Outcome:  # noqa: ASYNC109 - the sandbox's own
    """Run a line of shell."""
    return await box.run(Command(argv=("sh", "-c", script), timeout=timeout))


async def python(box: Sandbox, program: str, *args: str, timeout: float = 20) -> Outcome:  # noqa: ASYNC109
    """Run a program that has `CALLS` above it."""
    program = CALLS + textwrap.dedent(program)
    return await box.run(Command(argv=("/usr/bin/python3", "-c", program, *args), timeout=timeout))


async def answers(box: Sandbox, program: str, *args: str) -> dict[str, str]:
    """What a program prints as lines of a name and a word."""
    outcome = await python(box, program, *args)
    assert outcome.exit_code == 0, outcome.text
    return dict(line.rsplit(" ", 1) for line in outcome.text.splitlines())


async def usable(box: Sandbox) -> None:
    """The sandbox still does its work."""
    outcome = await sh(box, "echo alive | cat")
    assert (outcome.text, outcome.exit_code) == ("alive\n", 0)
