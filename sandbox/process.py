"""Runs one host process to its end under a time limit and an output cap, and leaves nothing of its group behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 64 * 1024
_GRACE = 2.0


class HeadTail:
    """Keeps the first and last half of an endless output; memory is bounded by ``limit`` plus one chunk."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._limit = limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._seen = 0

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        self._seen += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail_size - len(self._tail[0]) >= self._limit - self._half:
                self._tail_size -= len(self._tail.popleft())

    def result(self) -> tuple[bytes, int]:
        """What is kept, and how many bytes are missing from its middle."""
        room = self._limit - self._half
        tail = b"".join(self._tail)[-room:]
        cut = self._seen - len(self._head) - len(tail)
        return bytes(self._head) + tail, cut


@dataclass(frozen=True)
class Start:
    """How to start a process. ``kill`` ends everything it started, where its process group is not the whole of it."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path = Path("/")
    pass_fds: tuple[int, ...] = ()
    kill: Callable[[], None] | None = None
    errors_apart: bool = False


@dataclass(frozen=True)
class Finished:
    """How it ended. ``exit_code`` follows the shell: 128+n when killed by signal n."""

    exit_code: int
    output: bytes
    errors: bytes
    cut: int
    seconds: float
    timed_out: bool


async def run_process(start: Start, *, stdin: bytes = b"", timeout: float, output: int) -> Finished:  # noqa: ASYNC109
    """Run to the end, or kill at ``timeout`` seconds; keep ``output`` bytes. Raises OSError when it cannot start.

    Standard output and error come interleaved unless ``errors_apart``. Output over the cap is read and dropped, so the
    process never blocks on it. What is left of its group is killed, and nothing that holds the output open holds us.
    """
    began = time.monotonic()
    process = await _spawn(start, stdin=bool(stdin))
    kept, errors = HeadTail(output), HeadTail(64 * 1024)
    pumps = [asyncio.create_task(_pump(process.stdout, kept))]
    if start.errors_apart:
        pumps.append(asyncio.create_task(_pump(process.stderr, errors)))
    feeding = asyncio.create_task(_feed(process.stdin, stdin))
    timed_out = False
    try:
        try:
            await asyncio.wait_for(_ended(process), timeout)
            await asyncio.wait(pumps, timeout=_GRACE)
        except TimeoutError:
            timed_out = True
    finally:
        kill_group(process.pid, start.kill)
        feeding.cancel()
        await _settle(process, [*pumps, feeding])
    text, cut = kept.result()
    code = process.returncode if process.returncode is not None else -signal.SIGKILL
    return Finished(
        exit_code=128 - code if code < 0 else code,
        output=text,
        errors=errors.result()[0],
        cut=cut,
        seconds=time.monotonic() - began,
        timed_out=timed_out,
    )


async def stream_process(start: Start, *, timeout: float, output: int) -> AsyncGenerator[bytes, None]:  # noqa: ASYNC109
    """Standard output in pieces. Raises ProcessFailedError at a bad end, time-out, or more than ``output`` bytes."""
    process = await _spawn(start, stdin=False)
    errors = HeadTail(64 * 1024)
    listening = asyncio.create_task(_pump(process.stderr, errors))
    out = process.stdout
    assert out is not None  # noqa: S101 - PIPE was asked for; this tells mypy
    seen, deadline = 0, time.monotonic() + timeout
    try:
        while chunk := await asyncio.wait_for(out.read(_CHUNK), max(0.01, deadline - time.monotonic())):
            seen += len(chunk)
            if seen > output:
                raise ProcessFailedError(f"gave more than {output} bytes")
            yield chunk
        code = await asyncio.wait_for(_ended(process), _GRACE)
        await asyncio.wait([listening], timeout=_GRACE)
        if code:
            said = errors.result()[0].decode("utf-8", "replace").strip()[-500:]
            raise ProcessFailedError(f"ended with status {code}: {said}")
    except TimeoutError as error:
        raise ProcessFailedError(f"took longer than {timeout:g} s") from error
    finally:
        kill_group(process.pid, start.kill)
        await _settle(process, [listening])


async def feed_process(start: Start, stream: AsyncIterator[bytes], *, timeout: float) -> None:  # noqa: ASYNC109
    """Give a stream to standard input and wait for the end. Raises ProcessFailedError at a bad end or time-out."""
    process = await _spawn(start, stdin=True)
    errors = HeadTail(64 * 1024)
    pumps = [asyncio.create_task(_pump(process.stdout, errors))]
    if start.errors_apart:
        pumps.append(asyncio.create_task(_pump(process.stderr, errors)))
    try:
        async with asyncio.timeout(timeout):
            await _feed_stream(process.stdin, stream)
            code = await _ended(process)
            await asyncio.wait(pumps, timeout=_GRACE)
        if code:
            said = errors.result()[0].decode("utf-8", "replace").strip()[-500:]
            raise ProcessFailedError(f"ended with status {code}: {said}")
    except TimeoutError as error:
        raise ProcessFailedError(f"took longer than {timeout:g} s") from error
    finally:
        kill_group(process.pid, start.kill)
        await _settle(process, pumps)


class ProcessFailedError(Exception):
    """A helper process did not do its work."""


def kill_group(pid: int, more: Callable[[], None] | None = None) -> None:
    """SIGKILL to a process group made by `run_process`, then whatever else the caller knows of."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if more is not None:
        more()


async def _spawn(start: Start, *, stdin: bool) -> asyncio.subprocess.Process:
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *start.argv,
        env=dict(start.env),
        cwd=start.cwd,
        stdin=pipe if stdin else null,
        stdout=pipe,
        stderr=pipe if start.errors_apart else asyncio.subprocess.STDOUT,
        pass_fds=start.pass_fds,
        start_new_session=True,
    )


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Wait for the end of the process itself; asyncio's own wait also waits for whoever else holds its pipes."""
    waiting = asyncio.ensure_future(process.wait())
    try:
        while process.returncode is None:
            await asyncio.wait([waiting], timeout=0.05)
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    return process.returncode


async def _pump(stream: asyncio.StreamReader | None, kept: HeadTail) -> None:
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        kept.add(chunk)


async def _feed(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    async def once() -> AsyncIterator[bytes]:
        yield data

    await _feed_stream(stream, once())


async def _feed_stream(stream: asyncio.StreamWriter | None, source: AsyncIterator[bytes]) -> None:
    if stream is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        async for chunk in source:
            stream.write(chunk)
            await stream.drain()
    stream.close()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await stream.wait_closed()


async def _settle(process: asyncio.subprocess.Process, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for the end after a kill; what still holds a pipe after that is cut off by closing our side."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_ended(process), _GRACE)
    await asyncio.wait(tasks, timeout=_GRACE)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - the one way to let go of a held pipe
