"""Proves a backend's claims from inside a throwaway sandbox, before anything else runs in one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from sandbox.base import Sandbox, SandboxBackend
from sandbox.errors import SandboxUnavailableError
from sandbox.rules.profile import ENVIRONMENT
from sandbox.types import MIB, Backend, Command, Limits, SandboxSpec, SelfTest

PYTHON = "/usr/bin/python3"
SPEC = SandboxSpec(limits=Limits(memory=64 * MIB, processes=24, cpus=0.5, disk=4 * MIB, output=64 * 1024, wall=20))
_EXTRA = ("PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "LC_CTYPE")

_INSIDE = r"""
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    return libc.syscall(number, *args), ctypes.get_errno()
def refused(act):
    try:
        act()
    except OSError:
        return True
    return False
def alone(check):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if check() else 1)
    return os.waitpid(pid, 0)[1] == 0
def status(name):
    for line in open("/proc/self/status"):
        if line.startswith(name + ":"):
            return line.split()[1]
def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        s.connect(address)
def family(number):
    return refused(lambda: socket.socket(number, socket.SOCK_RAW if number in (16, 17) else socket.SOCK_STREAM).close())
def fill():
    size = 0
    try:
        with open("/work/.probe", "wb", buffering=0) as f:
            while size <= 4 * limit_disk:
                size += f.write(bytes(65536))
    except OSError:
        pass
    os.unlink("/work/.probe")
    return size
def forks():
    count, children = 0, []
    r, w = os.pipe()
    try:
        while count <= 4 * limit_processes:
            pid = os.fork()
            if pid == 0:
                os.close(w); os.read(r, 1); os._exit(0)
            children.append(pid); count += 1
    except OSError:
        pass
    os.close(w)
    for pid in children:
        os.waitpid(pid, 0)
    return count
limit_disk, limit_processes, names = int(sys.argv[1]), int(sys.argv[2]), set(sys.argv[3].split(","))
socket_number, ptrace_number = {"x86_64": (41, 101), "aarch64": (198, 117)}.get(os.uname().machine, (-1, -1))
held = [fd for fd in range(3, 256) if not refused(lambda: os.fstat(fd))]
facts = {
    "no capability": all(int(status(n), 16) == 0 for n in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")),
    "no new privileges": status("NoNewPrivs") == "1",
    "system calls filtered": status("Seccomp") == "2",
    "unprivileged user": 0 not in (os.getuid(), os.geteuid(), os.getgid()),
    "no network device but lo": [l.split(":")[0].strip() for l in open("/proc/net/dev") if ":" in l] == ["lo"],
    "no route out": refused(lambda: connect(socket.AF_INET, ("192.0.2.1", 80)))
        and refused(lambda: connect(socket.AF_INET6, ("2001:db8::1", 80))),
    "no socket family but unix and inet": all(family(n) for n in (9, 16, 17, 38, 40))
        and call(socket_number, ctypes.c_long((1 << 32) + 40), 1, 0)[0] == -1,
    "no io_uring": call(425, 1, ctypes.create_string_buffer(256)) == (-1, errno.EPERM),
    "no ptrace": call(ptrace_number, 16, 1 << 30, 0, 0) == (-1, errno.EPERM),  # of nobody: ESRCH where it is allowed
    "no new user namespace": alone(lambda: libc.unshare(0x10000000) == -1),
    "read-only system": all(refused(lambda p=p: open(p, "w")) for p in ("/x", "/usr/x", "/etc/x", "/dev/x", "/bin/x")),
    "no process of the host in sight": len([p for p in os.listdir("/proc") if p.isdigit()]) < 10,
    "no variable of the daemon": not [n for n in os.environ if n not in names],
    "no open file of the daemon": not held,
    "disk limited": limit_disk // 2 < fill() <= limit_disk,
    "processes limited": 0 < forks() < limit_processes,
}
print(json.dumps(facts))
"""
_HOG = "x = bytearray(256 << 20); print('still here')"
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
    """Open a small sandbox, attack it, and tell which claims hold. Raises SandboxError where none can be opened."""
    proved: list[str] = []
    failed: list[str] = []
    async with backend.open(SPEC) as sandbox:
        for name, holds in (await _facts(sandbox)).items():
            (proved if holds else failed).append(name)
        for name, check in _CHECKS.items():
            (proved if await check(sandbox) else failed).append(name)
    return SelfTest(backend=kind, version=version, proved=tuple(proved), failed=tuple(failed), detail=detail)


def insist(test: SelfTest, mend: str) -> SelfTest:
    """The test when all claims hold. Raises SandboxUnavailableError naming those that do not."""
    if test.failed:
        raise SandboxUnavailableError(
            f"{test.backend} {test.version} does not keep: {', '.join(test.failed)}. It is not used; mend: {mend}"
        )
    return test


async def _facts(sandbox: Sandbox) -> dict[str, bool]:
    names = ",".join([*ENVIRONMENT, *_EXTRA])
    limits = SPEC.limits
    argv = (PYTHON, "-I", "-S", "-c", _INSIDE, str(limits.disk), str(limits.processes), names)
    outcome = await sandbox.run(Command(argv=argv))
    try:
        return dict(json.loads(outcome.output))
    except ValueError:
        said = outcome.text.strip()[-300:]
        raise SandboxUnavailableError(
            f"the self-test did not run in {sandbox.name} (status {outcome.exit_code}): {said}; "
            f"mend: {PYTHON} must be there"
        ) from None


async def _memory(sandbox: Sandbox) -> bool:
    outcome = await sandbox.run(Command(argv=(PYTHON, "-I", "-S", "-c", _HOG)))
    return outcome.exit_code == 137 and outcome.out_of_memory


async def _cpu(sandbox: Sandbox) -> bool:
    outcome = await sandbox.run(Command(argv=(PYTHON, "-I", "-S", "-c", _BURN)))
    return outcome.exit_code == 0 and float(outcome.text) < 0.8


async def _time(sandbox: Sandbox) -> bool:
    outcome = await sandbox.run(Command(argv=("sleep", "60"), timeout=0.3))
    return outcome.timed_out and outcome.seconds < 10


async def _survivors(sandbox: Sandbox) -> bool:
    await sandbox.run(Command(argv=(PYTHON, "-I", "-S", "-c", _ORPHAN)))
    outcome = await sandbox.run(Command(argv=(PYTHON, "-I", "-S", "-c", _SEEK)))
    return outcome.text.strip() == "[]"


_CHECKS: dict[str, Callable[[Sandbox], Awaitable[bool]]] = {
    "memory limited": _memory,
    "CPU limited": _cpu,
    "time limited": _time,
    "nothing survives a command": _survivors,
}
