"""Asks the jailed reader about many files, within bounds of time; a file that kills it is passed over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from swarm.tools.mapping.definitions import NAME, SIGNATURE, Definition, Source, language_of

SECONDS = 20.0  # for all files
ONE = 2.0  # for one of them; no file that people wrote takes a tenth of it
_START = 5.0  # for a process to load its grammars
_LINE = 8_000_000  # bytes of one answer
_TRIES = 8
_AT_ONCE = 2  # processes of this one, see `_readers`
_LIMITER: RunVar[CapacityLimiter] = RunVar("readers")
Found = dict[str, Source]


async def read(files: Mapping[str, bytes], seconds: float = SECONDS) -> Found:
    """By path, small files first. One that the reader died or hung over is left out, and so are those that there was no
    time for."""
    left = sorted((path for path in files if language_of(path)), key=lambda path: (len(files[path]), path))
    found: Found = {}
    async with _readers():
        until = time.monotonic() + seconds
        for _ in range(_TRIES):
            if not left or time.monotonic() >= until:
                break
            answered = await _answers(left, files, until, found)
            left = left[answered + 1 :]  # whatever it stopped at is not tried again
    return found


def _readers() -> CapacityLimiter:
    """However many agents ask for a map at once, few processes parse."""
    try:
        return _LIMITER.get()
    except LookupError:
        _LIMITER.set(CapacityLimiter(_AT_ONCE))
        return _LIMITER.get()


async def _answers(paths: Sequence[str], files: Mapping[str, bytes], until: float, found: Found) -> int:
    """Have one reader read files, in order; how many it answered for."""
    languages = sorted({language for path in paths if (language := language_of(path))})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "swarm.tools.mapping.reader", *languages),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={}, cwd="/", limit=_LINE, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018  PIPE was asked for
    feeding = asyncio.create_task(_feed(process.stdin, paths, files))
    answered = 0
    try:
        for path in paths:
            patience = min(ONE if answered else ONE + _START, until - time.monotonic())
            line = await asyncio.wait_for(process.stdout.readline(), max(0.0, patience))
            if not line:
                break
            found[path] = _source(path, line)
            answered += 1
    except (TimeoutError, ValueError, TypeError, AttributeError):  # ValueError: an answer that is too long or no JSON
        pass
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(ConnectionError):
            process.stdin.close()
            await process.stdin.wait_closed()
        await process.wait()
    return answered


async def _feed(stdin: asyncio.StreamWriter, paths: Sequence[str], files: Mapping[str, bytes]) -> None:
    with contextlib.suppress(ConnectionError):
        for path in paths:
            data = files[path]
            stdin.write(json.dumps({"language": language_of(path), "size": len(data)}).encode() + b"\n" + data)
            await stdin.drain()
        stdin.close()


def _source(path: str, line: bytes) -> Source:
    """What an answer holds, checked: it comes from a process that a stranger's file was given to."""
    told, said = json.loads(line)
    definitions = tuple(
        Definition(str(name)[:NAME], max(1, int(first)), max(1, int(last)), " ".join(str(text).split())[:SIGNATURE])
        for name, first, last, text in told
    )
    return Source(path, definitions, {str(name)[:NAME]: max(1, int(times)) for name, times in said.items()})
