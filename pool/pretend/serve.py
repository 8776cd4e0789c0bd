"""Pretend vLLM servers as a program of their own: `python -m pool.pretend.serve --port 9000 --engines 4`.

For benchmarks: each engine has its own port, from the first one on, and all run in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields

import uvloop

from pool.pretend.engine import EngineSettings, Policy
from pool.pretend.publisher import KvEvents
from pool.pretend.server import PretendServer

SIZES = ("block_size", "num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens", "max_num_queued_reqs")
SPEEDS = ("step_base", "step_per_sequence", "prefill_per_token", "prefill_quadratic")
READY = "ready"
LAST_PORT, MOST_ENGINES = 65_535, 1024
ANY = float("inf")
BOUNDS = (  # what each number may be at least, and at most
    ("port", 0, LAST_PORT), ("engines", 1, MOST_ENGINES), ("window", 1, ANY), ("stream_interval", 1, ANY),
    *((name, 1, ANY) for name in SIZES), *((name, 0, ANY) for name in SPEEDS),
)  # fmt: skip


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The program's arguments. Ends the program with 2 when they are wrong."""
    defaults = {one.name: one.default for one in fields(EngineSettings)}
    parser = argparse.ArgumentParser(prog="python -m pool.pretend.serve", description="pretend vLLM servers")
    parser.add_argument("--port", type=int, default=0, help="port of the first engine; 0 takes free ones")
    parser.add_argument("--engines", type=int, default=1, help="how many, one a port")
    parser.add_argument("--model", default="pretend", help="the model's name")
    parser.add_argument("--window", type=int, default=131_072, help="longest context in tokens")
    parser.add_argument("--stream-interval", type=int, default=1, help="tokens of one streamed event")
    parser.add_argument("--priorities", action="store_true", help="heed priorities")
    parser.add_argument("--kv-events", action="store_true", help="publish KV events, on free ports")
    for name in SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=defaults[name])
    for name in SPEEDS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=defaults[name], help="seconds")
    told = parser.parse_args(argv)
    for name, least, most in BOUNDS:
        value = getattr(told, name)
        if value is not None and not least <= value <= most:
            upto = "on" if most == ANY else f"to {most}"
            parser.error(f"--{name.replace('_', '-')}: {value} is none of those from {least} {upto}")
    if told.port and told.port + told.engines - 1 > LAST_PORT:
        parser.error(f"--port {told.port}: {told.engines} engines need ports beyond {LAST_PORT}")
    return told


def servers(told: argparse.Namespace) -> list[PretendServer]:
    """The servers that the arguments ask for."""
    policy: Policy = "priority" if told.priorities else "fcfs"
    engine = EngineSettings(scheduling_policy=policy, **{name: getattr(told, name) for name in (*SIZES, *SPEEDS)})
    return [
        PretendServer(
            model=told.model,
            window=told.window,
            engine=engine,
            port=told.port + index if told.port else 0,
            kv_events=KvEvents() if told.kv_events else None,
            stream_interval=told.stream_interval,
            dev_mode=True,
            record=False,
        )
        for index in range(told.engines)
    ]


async def serve(told: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT; says the addresses on one line when all are up."""
    ending = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ending.set)
    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for server in servers(told):
            try:
                await server.start()
            except OSError as error:
                raise SystemExit(
                    f"cannot listen on port {server.port}: {os.strerror(error.errno or 0)}; take another --port"
                ) from None
            stack.push_async_callback(server.stop)
            urls.append(server.url)
        sys.stdout.write(f"{READY} {' '.join(urls)}\n")
        sys.stdout.flush()
        await ending.wait()


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program."""
    uvloop.run(serve(arguments(sys.argv[1:] if argv is None else argv)))


if __name__ == "__main__":
    main()
