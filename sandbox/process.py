"""Runs one host process to its end under a time limit and an output cap, and leaves nothing of its group behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_CHUNK = 64 * 1024
_GRACE = 2.0


@dataclass(frozen=True)
class Finished:
    """How it ended. ``exit_code`` follows the shell: 128+n when killed by signal n."""

    exit_code: int
    output: bytes
    timed_out: bool


async def run_process(argv: Sequence[str], env: Mapping[str, str], *, timeout: float, output: int) -> Finished:  # noqa: ASYNC109
    """Run to the end, or kill at ``timeout`` seconds; keep the first ``output`` bytes. Raises OSError without a start.

    Standard output and error come interleaved. Output over the cap is read and dropped, so the process never blocks on
    it. What is left of its group is killed, and nothing that holds the output open holds us.
    """
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *argv, env=dict(env), cwd="/", stdin=null, stdout=pipe, stderr=asyncio.subprocess.STDOUT, start_new_session=True
    )
    kept, timed_out = bytearray(), False
    pump = asyncio.create_task(_pump(process.stdout, kept, output))
    try:
        await asyncio.wait_for(_ended(process), timeout)
        await asyncio.wait([pump], timeout=_GRACE)
    except TimeoutError:
        timed_out = True
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await _settle(process, pump)
    code = process.returncode if process.returncode is not None else -signal.SIGKILL
    return Finished(128 - code if code < 0 else code, bytes(kept), timed_out)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of the process itself; asyncio's own wait also waits for whoever else holds its pipes."""
    waiting = asyncio.ensure_future(process.wait())
    try:
        while process.returncode is None:
            await asyncio.wait([waiting], timeout=0.05)
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _pump(stream: asyncio.StreamReader | None, kept: bytearray, cap: int) -> None:
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        kept += chunk[: cap - len(kept)]


async def _settle(process: asyncio.subprocess.Process, pump: asyncio.Task[None]) -> None:
    """Wait for the end after a kill; what still holds a pipe after that is cut off by closing our side."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_ended(process), _GRACE)
    await asyncio.wait([pump], timeout=_GRACE)
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - the one way to let go of a held pipe
