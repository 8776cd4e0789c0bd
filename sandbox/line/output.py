"""What a command prints, from its channel to whoever watches, until its end is told."""

from __future__ import annotations

import asyncio
import time

from sandbox.base import OnOutput
from sandbox.inside import protocol as inside
from sandbox.line.conversation import Channel


async def kept(channel: Channel, head: bytearray, on_output: OnOutput) -> None:
    """A bounded output: its head as it comes, which is kept in ``head``, then signs of life."""
    while True:
        over = channel.over
        if data := channel.take(inside.HEAD_OUTPUT):
            head += data
            on_output(data)
        elif channel.alive:
            on_output(b"")
        channel.alive = False
        if over:
            return
        await channel.news()


async def passed_on(channel: Channel, on_output: OnOutput, patience: asyncio.Timeout) -> None:
    """A whole output, no faster than it is taken; the seconds that this takes are not the supervisor's."""
    while data := await channel.read():
        began = time.monotonic()
        on_output(data)
        patience.reschedule((patience.when() or began) + time.monotonic() - began)
