"""Proves a backend's claims from inside a throwaway sandbox, before anything else runs in one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from sandbox import examiner
from sandbox.base import Sandbox, SandboxBackend
from sandbox.errors import SandboxUnavailableError
from sandbox.rules.claims import KEPT_BY_GVISOR, MENDS
from sandbox.rules.profile import ENVIRONMENT, profile_of
from sandbox.types import MIB, Backend, Command, Limits, SandboxSpec, SelfTest

PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
SPEC = SandboxSpec(limits=Limits(memory=96 * MIB, processes=24, cpus=0.5, disk=4 * MIB, output=64 * 1024, wall=20))
PATIENCE = 90.0  # seconds for all of it: a runtime that hangs is no sandbox
_EXTRA = ("PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "LC_CTYPE")
_HOG = "x = bytearray(b'x') * (256 << 20); print('still here')"
_BURN = """
import time
began, used = time.monotonic(), time.process_time()
while time.monotonic() - began < 0.6: pass
print((time.process_time() - used) / 0.6)
"""
_ORPHAN = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "4321"])
    os._exit(0)
"""
_SEEK = """
import glob
mark = bytes([52, 51, 50, 49])
print([path for path in glob.glob("/proc/[0-9]*/cmdline") if mark in open(path, "rb").read()])
"""


async def prove(backend: SandboxBackend, kind: Backend, version: str, detail: dict[str, str]) -> SelfTest:
    """Open a small sandbox, attack it, and tell which claims hold.

    A ``runtime`` of ``detail`` that is runsc must be gVisor. Raises SandboxError where no sandbox can be opened, or
    SandboxUnavailableError where it does not come to an end in `PATIENCE` seconds.
    """
    gvisor = detail.get("runtime", "").startswith("runsc")
    try:
        async with asyncio.timeout(PATIENCE), backend.open(SPEC) as sandbox:
            claims, told = await _examined(sandbox, gvisor=gvisor)
            for name, check in _CHECKS.items():
                claims[name] = await check(sandbox)
    except TimeoutError:
        raise SandboxUnavailableError(
            f"the self-test of {version} did not end in {PATIENCE:g} s; mend: try `swarm sandbox shell -- true`, and "
            "use another backend or runtime where that hangs too"
        ) from None
    if gvisor:
        claims = {name: holds for name, holds in claims.items() if name not in KEPT_BY_GVISOR}
    return SelfTest(
        backend=kind,
        version=version,
        proved=tuple(name for name, holds in claims.items() if holds),
        failed=tuple(name for name, holds in claims.items() if not holds),
        detail=detail | told,
    )


class ClaimsError(SandboxUnavailableError):
    """A backend works, and does not keep all claims; ``test`` tells which."""

    def __init__(self, test: SelfTest, mend: str) -> None:
        head = f"{test.backend} {test.version} does not keep: {', '.join(test.failed)}. It is not used; mend:"
        lines = (f"    {name}: {MENDS.get(name, mend)}" for name in test.failed)
        super().__init__("\n".join((head, *lines, f"    else: {mend}")))
        self.test = test


def insist(test: SelfTest, mend: str) -> SelfTest:
    """The test when all claims hold. Raises ClaimsError naming those that do not, each with its mend."""
    if test.failed:
        raise ClaimsError(test, mend)
    return test


def source() -> str:
    """The examiner's program."""
    return Path(examiner.__file__).read_text("utf-8")


async def _examined(sandbox: Sandbox, *, gvisor: bool) -> tuple[dict[str, bool], dict[str, str]]:
    profile = profile_of(SPEC)
    given = {
        "names": [*ENVIRONMENT, *_EXTRA],
        "places": [folder.path for folder in profile.folders],
        "disk": profile.disk,
        "inodes": profile.inodes,
        "file_size": profile.file_size,
        "processes": profile.processes,
        "open_files": profile.open_files,
        "gvisor": gvisor,
    }
    outcome = await sandbox.run(Command(argv=(*PYTHON, source(), json.dumps(given))))
    try:
        told = json.loads(outcome.output)
        claims = {name: told["claims"][name] is True for name in MENDS if name in told["claims"]}
        return claims, {name: str(told["detail"][name])[:100] for name in ("kernel", "landlock")}
    except (ValueError, KeyError, TypeError):
        said = outcome.text.strip()[-300:]
        raise SandboxUnavailableError(
            f"the self-test did not run in {sandbox.name} (status {outcome.exit_code}): {said}; "
            f"mend: {PYTHON[0]} must be there"
        ) from None


async def _memory(sandbox: Sandbox) -> bool:
    outcome = await sandbox.run(Command(argv=(*PYTHON, _HOG)))
    return outcome.exit_code == 137 and outcome.out_of_memory


async def _cpu(sandbox: Sandbox) -> bool:
    outcome = await sandbox.run(Command(argv=(*PYTHON, _BURN)))
    return outcome.exit_code == 0 and float(outcome.text) < 0.8


async def _time(sandbox: Sandbox) -> bool:
    outcome = await sandbox.run(Command(argv=("sleep", "60"), timeout=0.3))
    return outcome.timed_out and outcome.seconds < 10


async def _survivors(sandbox: Sandbox) -> bool:
    await sandbox.run(Command(argv=(*PYTHON, _ORPHAN)))
    outcome = await sandbox.run(Command(argv=(*PYTHON, _SEEK)))
    return outcome.text.strip() == "[]"


_CHECKS: dict[str, Callable[[Sandbox], Awaitable[bool]]] = {
    "memory limited": _memory,
    "CPU limited": _cpu,
    "time limited": _time,
    "nothing survives a command": _survivors,
}
