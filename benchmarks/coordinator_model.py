"""The pretend model of the coordinator's benchmark, a process of its own so that its processor time is not counted.

    python -m benchmarks.coordinator_model SERVERS

A task that says "take N turns of S seconds each" is answered with one tool call a turn, S seconds (from half to one and
a half times as long) after it was asked, and then with the tool or command that ends the agent: ours, or
mini-swe-agent's where that one asks. Prints the servers' addresses on one line when all are up.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from contextlib import AsyncExitStack
from random import Random

import uvloop

from pool.pretend.script import Recorded, Scripted, Slow, call
from pool.testing import pretend_vllm

READY = "ready"
_CHANCE = Random(1)  # noqa: S311 - a benchmark's
_ASKED = re.compile(r"take (\d+) turns of ([0-9.]+) seconds each")
_ENOUGH = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def instructions(turns: int, seconds: float) -> str:
    """What a task says that is to go on for so many turns."""
    return f"Please take {turns} turns of {seconds} seconds each, then stop."


def answer(asked: Recorded) -> Scripted | None:
    """The next turn of whoever asks."""
    found = _ASKED.search(asked.prompt)
    if found is None:
        return None
    turns, seconds = int(found[1]), float(found[2])
    turn = sum(1 for message in asked.body["messages"] if message.get("role") == "assistant")
    mini = any(tool["function"]["name"] == "bash" for tool in asked.body.get("tools", ()))
    if turn < turns:
        reply = call("bash", command=f"cat {turn}.py") if mini else call("view", path=f"lines/40/{turn}.py")
    else:
        reply = call("bash", command=_ENOUGH) if mini else call("finish", title="Nothing to change", summary="")
    # Each its own call id, as every real server has it.
    reply = reply.model_copy(
        update={
            "tool_calls": (reply.tool_calls[0].model_copy(update={"id": f"call-{turn}-{_CHANCE.getrandbits(32):x}"}),)
        }
    )
    return Slow(seconds * _CHANCE.uniform(0.5, 1.5), reply) if seconds else reply


async def serve(servers: int) -> None:
    """Serve until this process is ended."""
    async with AsyncExitStack() as stack:
        each = [
            await stack.enter_async_context(pretend_vllm(answer, window=200_000, record=False, details=False))
            for _ in range(servers)
        ]
        sys.stdout.write(f"{READY} {' '.join(server.url for server in each)}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("servers", type=int)
    uvloop.run(serve(parser.parse_args().servers))


if __name__ == "__main__":
    main()
