"""Host processes under a limit: nothing hangs, nothing is left, nothing grows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.process import HeadTail, ProcessFailedError, Start, feed_process, run_process, stream_process

ENV = {"PATH": "/usr/bin:/bin"}


def sh(script: str, **fields: object) -> Start:
    return Start(["/bin/sh", "-c", script], ENV, **fields)


@given(st.lists(st.binary(max_size=40)), st.integers(min_value=1, max_value=60))
def test_head_and_tail_are_kept_and_the_rest_is_counted(pieces: list[bytes], limit: int) -> None:
    kept = HeadTail(limit)
    for piece in pieces:
        kept.add(piece)
    whole = b"".join(pieces)
    got, cut = kept.result()
    assert len(got) + cut == len(whole)
    if len(whole) <= limit:
        assert (got, cut) == (whole, 0)
    else:
        assert len(got) == limit
        assert got[: limit // 2] == whole[: limit // 2]
        assert whole.endswith(got[limit // 2 :])


def test_head_and_tail_of_tiny_pieces_stays_small() -> None:
    kept = HeadTail(100)
    for _ in range(10_000):
        kept.add(b"xy")
    assert len(kept._tail) <= 60


async def test_what_it_says_and_how_it_ends() -> None:
    ended = await run_process(sh("echo out; echo err >&2; exit 3"), timeout=10, output=1000)
    assert (ended.exit_code, ended.output, ended.cut, ended.timed_out) == (3, b"out\nerr\n", 0, False)
    ended = await run_process(sh("echo out; echo err >&2", errors_apart=True), timeout=10, output=1000)
    assert (ended.output, ended.errors) == (b"out\n", b"err\n")


async def test_a_process_in_a_session_of_its_own_that_holds_the_output_does_not_hold_us() -> None:
    began = time.monotonic()
    ended = await run_process(sh("setsid sleep 30 & echo done"), timeout=20, output=1000)
    assert ended.output == b"done\n"
    assert time.monotonic() - began < 10


async def test_the_callers_own_kill_is_called_too() -> None:
    calls: list[int] = []
    await run_process(sh("sleep 30", kill=lambda: calls.append(1)), timeout=0.2, output=10)
    assert calls == [1]


async def test_a_program_that_is_not_there_is_an_error_of_the_machinery() -> None:
    with pytest.raises(FileNotFoundError):
        await run_process(Start(["/no/such"], ENV), timeout=1, output=10)


async def test_a_stream_tells_a_bad_end_too_much_and_too_long() -> None:
    async def drained(script: str, **limits: float) -> bytes:
        stream = stream_process(sh(script, errors_apart=True), timeout=limits.get("t", 10), output=100_000)
        return b"".join([chunk async for chunk in stream])

    assert await drained("echo fine; echo ignored >&2") == b"fine\n"
    with pytest.raises(ProcessFailedError, match="status 4: reason"):
        await drained("echo part; echo reason >&2; exit 4")
    with pytest.raises(ProcessFailedError, match="more than 100000 bytes"):
        await drained("yes")
    with pytest.raises(ProcessFailedError, match="longer than"):
        await drained("sleep 20", t=0.2)


async def test_a_stream_that_is_dropped_ends_its_process() -> None:
    stream = stream_process(sh("echo $$; exec sleep 77", errors_apart=True), timeout=10, output=1000)
    pid = int(await anext(stream))
    await stream.aclose()
    assert not Path(f"/proc/{pid}").exists()  # noqa: ASYNC240


async def test_feeding_tells_a_bad_end_and_a_broken_source() -> None:
    async def source(*chunks: bytes) -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise ZeroDivisionError

    await feed_process(sh("cat >/dev/null"), source(b"a" * 100_000, b"b"), timeout=10)
    await feed_process(sh("head -c 1 >/dev/null"), source(*[b"a" * 100_000] * 20), timeout=10)
    with pytest.raises(ProcessFailedError, match="status 2: bad"):
        await feed_process(sh("cat >/dev/null; echo bad; exit 2"), source(b"a"), timeout=10)
    with pytest.raises(ProcessFailedError, match="longer"):
        await feed_process(sh("sleep 20"), source(b"a" * 1_000_000), timeout=0.2)
    with pytest.raises(ZeroDivisionError):
        await feed_process(sh("cat"), broken(), timeout=10)


async def test_many_at_once_do_not_mix() -> None:
    ended = await asyncio.gather(*(run_process(sh(f"echo {n}"), timeout=20, output=100) for n in range(20)))
    assert [int(one.output) for one in ended] == list(range(20))
