"""A pretend model server in a thread of its own, for stacks whose tests are about everything but the model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pool.pretend.script import Recorded, Script, Scripted
from pool.testing import PretendServer, pretend_vllm

WRONG = "\n\nWrong line: return low\nCorrect line:"  # the end of a prompt of sampled repair, see swarm/prompts.py


@contextmanager
def scripted(script: Script, **settings: Any) -> Iterator[PretendServer]:
    """The server, up; ``settings`` are those of `pretend_vllm`."""
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Event, PretendServer]] = []
    started = threading.Event()

    async def serve() -> None:
        async with pretend_vllm(script, **settings) as server:
            stop = asyncio.Event()
            running.append((asyncio.get_running_loop(), stop, server))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(30)
        yield running[0][2]
    finally:
        for loop, stop, _ in running:
            loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def mends_the_sample(recorded: Recorded) -> Scripted:
    """What a model says that knows the fault of examples/sample-repository, and nothing else."""
    return " return high" if str(recorded.body.get("prompt", "")).endswith(WRONG) else " no idea ("


def pool_of(server: PretendServer) -> str:
    """The pool's part of a swarm.toml: this server alone, which is no agent and so is asked for single lines."""
    return f'[[pool.endpoints]]\nname = "scripted"\nurl = "{server.url}"\ntier = "small"\ntools = "text"\n'
