"""What the sandbox benchmarks share: the backends of this machine, a workspace, raw starts to compare with, figures."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox.base import SandboxBackend
from sandbox.config import SandboxConfig, WarmConfig
from sandbox.errors import SandboxUnavailableError
from sandbox.factory import choose_backend
from sandbox.rules.profile import AGENT_UID
from sandbox.trees.tarball import END, header, padding
from sandbox.types import MIB, Command, Limits, SandboxSpec

KINDS = ("bwrap", "docker")
IMAGE = SandboxConfig().image
SPEC = SandboxSpec(limits=Limits(memory=512 * MIB, processes=128, cpus=1.0, disk=256 * MIB, wall=120.0))
TRUE = Command(argv=("true",))


def quiet_config(kind: str, *, warm: int = 0) -> SandboxConfig:
    """One backend and no other, with so many sandboxes held ready."""
    return SandboxConfig.model_validate({"backend": kind, "warm": WarmConfig(max=warm)})


@asynccontextmanager
async def backends(*, warm: int = 0) -> AsyncIterator[dict[str, SandboxBackend]]:
    """Every backend that proves its claims here, by name; the others are told, with the reason."""
    found: dict[str, SandboxBackend] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as state:
        for kind in KINDS:
            try:
                found[kind] = await choose_backend(quiet_config(kind, warm=warm), state=Path(state))
            except SandboxUnavailableError as error:
                print(f"{kind} is not here: {error}")
        try:
            yield found
        finally:
            for backend in found.values():
                await backend.close()


async def workspace(files: int, size: int = 10_000) -> AsyncIterator[bytes]:
    """A workspace of so many files of ``size`` bytes, a hundred a folder, as a tar stream."""
    content = (b"x = 1  # a line of a program\n" * (size // 28 + 1))[:size]
    for number in range(files):
        name = f"package{number // 100:03}/module{number:05}.py".encode()
        yield header(name, 0o644, size, 1_700_000_000) + content + padding(size)
    yield END


def raw_bwrap(folder: Path, *words: str) -> list[str]:
    """What a careful person would type: all namespaces, the system read-only, a folder to work in, another user."""
    drop = ["setpriv", f"--reuid={AGENT_UID}", f"--regid={AGENT_UID}", "--clear-groups", "--"]
    links = [part for name in ("bin", "lib", "lib64") for part in ("--symlink", f"usr/{name}", f"/{name}")]
    return [
        *(drop if os.geteuid() == 0 else []),
        *("bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv"),
        *("--setenv", "PATH", "/usr/bin", "--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev", "/dev"),
        *("--tmpfs", "/tmp", "--bind", str(folder), "/work", "--chdir", "/work", "--", *words),  # noqa: S108 - inside
    ]


def raw_docker(*words: str) -> list[str]:
    """The plainest run of the same image."""
    return ["docker", "run", "--rm", "--network", "none", IMAGE, *words]


@asynccontextmanager
async def scratch() -> AsyncIterator[Path]:
    """A folder that a sandbox's user may write."""
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="bench-"))
    await asyncio.to_thread(folder.chmod, 0o777)
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def spent(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds that it took."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


async def ran(argv: list[str]) -> float:
    """Milliseconds of one run of a program. Raises CalledProcessError where it fails."""

    async def run() -> None:
        null = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*argv, stdin=null, stdout=null, stderr=asyncio.subprocess.PIPE)
        _, said = await process.communicate()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, argv[:2], stderr=said)

    return await spent(run)


def p50(values: Iterable[float]) -> float:
    """The median, rounded."""
    return round(statistics.median(values), 2)


def p95(values: Iterable[float]) -> float:
    """The value that 95 of 100 stay under."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 2)
