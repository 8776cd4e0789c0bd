"""The concurrency sweep: at each level so many clients ask one after the other, for one shape of request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated

from pydantic import Field

from pool.bench.figures import Outcome, summary
from pool.bench.meters import watching
from pool.bench.target import Target, Turn
from pool.bench.verdict import Level
from pool.bench.words import text
from pool.types import Frozen


class Shape(Frozen):
    """The requests of a sweep: lengths in tokens, ``shared`` of the prompt's being the same in all of them.

    Every level sends ``each`` requests a client, and all of them within ``deadline`` seconds.
    """

    prompt: Annotated[int, Field(gt=0)] = 256
    shared: Annotated[int, Field(ge=0)] = 0
    output: Annotated[int, Field(gt=0)] = 64
    each: Annotated[int, Field(gt=0)] = 3
    deadline: Annotated[float, Field(gt=0)] = 600.0


def levels_to(most: int) -> tuple[int, ...]:
    """Concurrencies by doubling, ending with the asked one."""
    found = [1]
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return tuple(found) if most == 1 else (*found, most)


async def sweep(target: Target, levels: tuple[int, ...], shape: Shape, run: str) -> AsyncIterator[Level]:
    """The levels as they are done. A short request first, which is not counted, wakes the server up."""
    await target.ask(Turn("", _messages(f"{run}-warm", 8, 0), 4, shape.deadline))
    for concurrency in levels:
        yield await _level(target, concurrency, shape, f"{run}-{concurrency}")


async def _level(target: Target, concurrency: int, shape: Shape, run: str) -> Level:
    outcomes: list[Outcome] = []

    async def client(number: int) -> None:
        for turn in range(shape.each):
            name = f"{run}-{number}-{turn}"
            messages = _messages(name, shape.prompt - shape.shared, shape.shared)
            outcomes.append(await target.ask(Turn("", messages, shape.output, shape.deadline)))

    async with watching(target) as watch:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(concurrency):
                group.create_task(client(number))
        seconds = time.perf_counter() - began
        strain = watch.strain()
    return Level(concurrency=concurrency, summary=summary(outcomes, seconds), strain=strain)


def _messages(name: str, own: int, shared: int) -> list[dict[str, object]]:
    """A prompt: what all share comes first, as a prefix cache wants it."""
    content = (text("shared", shared) + "\n" if shared > 0 else "") + text(name, max(1, own))
    return [{"role": "user", "content": content}]
