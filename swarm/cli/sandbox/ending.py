"""Ends a command about sandboxes in order when it is told to go, so that no sandbox and no copy stays behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import typer

Result = TypeVar("Result")
_ENDS = (signal.SIGTERM, signal.SIGHUP)


async def in_order(work: Coroutine[Any, Any, Result]) -> Result:
    """Do ``work``; SIGTERM and SIGHUP (a closed terminal) cancel it, as Ctrl-C does, and let it close what it opened.

    The exit code is 128 and the signal's number then. A signal that was ignored from the start (nohup) stays ignored.
    """
    loop, task, told = asyncio.get_running_loop(), asyncio.ensure_future(work), list[int]()

    def end(number: int) -> None:
        if not told:  # a second one would cut the closing short
            task.cancel()
        told.append(number)

    heard = [number for number in _ENDS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, end, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not told:
            raise
        raise typer.Exit(128 + told[0]) from None
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
