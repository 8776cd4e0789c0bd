"""Runs the servers of a recipe as child processes: starts, waits until they answer, and ends them.

Each has a process group, a log file and an environment of its own; vLLM is several processes, and all of them end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from pool.errors import PoolConfigError, PoolError
from pool.profiles.checking import Installed, environment
from pool.profiles.recipes import Recipe, Server

STARTING = 1800.0  # seconds; large weights take minutes to load
STOPPING = 45.0  # seconds from SIGTERM to SIGKILL: longer than the drain that the recipe gives
LOOK = 0.5  # seconds between looks at a starting server
TAIL = 12  # lines of the log shown with an error
SAID = re.compile(
    r"\b(?:INFO|WARNING|ERROR) [-\d]+ [:\d]+ \[[^]]*\] (.*\S)"
)  # a line of vLLM's log: level, time, place
KILLED = 60  # looks, 50 ms apart, at a killed group until it is gone

Progress = Callable[[str, float, str], None]
"""Told the server's name, the seconds since its start, and what its log last said, which may be nothing."""


class LaunchError(PoolError):
    """A server did not come up, or ended by itself. The message has the last lines of its log."""


class Running(NamedTuple):
    """A server that answers."""

    server: Server
    process: asyncio.subprocess.Process
    log: Path


CAUSES = (  # what a log says, and what to tell of it
    ("out of memory", "the GPU's memory did not do: a smaller --window, --kv-bits 8, or more GPUs (--count)"),
    ("is larger than the available KV cache memory", "the KV cache holds no whole window: a smaller --window"),
    (
        "No available memory for the cache blocks",
        "the weights leave no room for KV: more GPUs (--count), or fewer bits",
    ),
    (
        "less than desired GPU memory utilization",
        "something else holds this GPU's memory: free it, or name another GPU",
    ),
    ("Address already in use", "its port is taken: name another with --port"),
    ("No module named 'vllm'", "vLLM is not installed for that Python: name the right one with --python"),
    (
        "unrecognized arguments",
        "this vLLM does not know a flag: `swarm pool recipe` with the same --python tells which",
    ),
    ("Repository Not Found", "no such model on the hub, or it asks for a login: name a folder with the weights"),
    ("does not appear to have a file named", "the folder is no complete model"),
    ("Failed to infer device type", "vLLM found no device that it was built for"),
)


def cause(log: str) -> str | None:
    """What a log of a failed start tells, in words that mend; None where nothing known is in it."""
    return next((told for mark, told in CAUSES if mark.lower() in log.lower()), None)


def command(server: Server, python: str, *, renamed: bool) -> list[str]:
    """The words that start a server. ``renamed``: the distribution is not called vllm, which stops `vllm serve`."""
    if renamed:
        return [python, "-m", "vllm.entrypoints.openai.api_server", *server.options]
    return [python, "-m", "vllm.entrypoints.cli.main", "serve", *server.words]


async def refusals(recipe: Recipe, found: Installed) -> list[str]:
    """What the installed vLLM refuses in a recipe; empty where it takes every command."""
    said = [f"{' '.join(doubt.words)}: {doubt.why}" for doubt in recipe.unconfirmed]
    said += [f"its Python has no module {name}: {mend}" for name, mend in recipe.modules if name not in found.modules]
    judged = [(server.name, await found.refuses(server.options)) for server in recipe.servers]
    return said + [f"{name}: {why}" for name, why in judged if why]


@asynccontextmanager
async def run(
    recipe: Recipe,
    python: str,
    *,
    logs: Path,
    environ: Mapping[str, str],
    devices: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> AsyncIterator[tuple[Running, ...]]:
    """The servers of a recipe, for as long as the block runs; they are started together and all answer inside it.

    ``devices`` are CUDA_VISIBLE_DEVICES, one for each server in turn. Raises LaunchError, and PoolConfigError for a
    port that is taken.
    """
    ports = [_port(server) for server in recipe.servers]
    for port in ports:
        _free(port)
    for folder in {logs, *(home for server in recipe.servers for home in _homes(server))}:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True, mode=0o700)
    async with AsyncExitStack() as stack:
        started = []
        for number, server in enumerate(recipe.servers):
            device = {"CUDA_VISIBLE_DEVICES": devices[number]} if number < len(devices) else {}
            more = {variable.name: variable.value for variable in server.env}
            child = _child(server, python, logs, environment(environ, more) | device)
            started.append(await stack.enter_async_context(child))
        began = time.monotonic()
        await asyncio.gather(
            *(_answering(one, port, began, progress) for one, port in zip(started, ports, strict=True))
        )
        yield tuple(started)


async def ended(running: tuple[Running, ...]) -> Running:
    """Wait until one of the servers ends by itself; gives that one."""
    waits = {asyncio.ensure_future(one.process.wait()): one for one in running}
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return waits[next(iter(done))]
    finally:
        for wait in waits:
            wait.cancel()


def gone(one: Running) -> LaunchError:
    """The error for a server that ended: what its log tells, and the log's last lines."""
    words = tail(one.log)
    told = cause("\n".join(words))
    last = "\n  ".join(words) or "(it said nothing)"
    why = f": {told}" if told else ""
    return LaunchError(
        f"{one.server.name} ended with {one.process.returncode}{why}; its log, {one.log}, ends:\n  {last}"
    )


def tail(log: Path, lines: int = TAIL) -> list[str]:
    """The last lines of a log that say something; errors before its last lines are looked for and come first."""
    try:
        text = log.read_bytes()[-200_000:].decode("utf-8", "replace")
    except OSError:
        return []
    said = [line.rstrip() for line in text.splitlines() if line.strip()]
    errors = [line for line in said[:-lines] if "Error" in line and "Traceback" not in line]
    return [line[-400:] for line in (*errors[-3:], *said[-lines:])]


def latest(log: Path) -> str:
    """The last line of vLLM's own in a log, without its place; empty where its end is words of libraries."""
    found = (SAID.search(line) for line in reversed(tail(log)))
    return next((match[1] for match in found if match), "")


@asynccontextmanager
async def _child(server: Server, python: str, logs: Path, env: dict[str, str]) -> AsyncIterator[Running]:
    log = logs / f"{server.name}.log"
    words = command(server, python, renamed=_renamed(python))
    with log.open("wb") as into:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=into, stderr=into, env=env, start_new_session=True
        )
    try:
        yield Running(server, process, log)
    finally:
        await asyncio.shield(_end(process))


def _renamed(python: str) -> bool:
    """Whether the installation of a Python has vLLM under another distribution's name."""
    home = Path(python).parent.parent
    return not any(home.glob("lib/python3*/site-packages/vllm-*.dist-info"))


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM to the group, then SIGKILL to whoever of it is left: engine and workers are processes of their own."""
    group = process.pid
    if process.returncode is None:
        _signal(group, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOPPING):
                await process.wait()
    for _ in range(KILLED):
        if not _signal(group, signal.SIGKILL):
            break
        await asyncio.sleep(0.05)
    await process.wait()


def _signal(group: int, what: signal.Signals) -> bool:
    """Send a signal to a group; False where nobody is left in it."""
    try:
        os.killpg(group, what)
    except ProcessLookupError:
        return False
    return True


async def _answering(one: Running, port: int, began: float, progress: Progress | None) -> None:
    """Wait until a server is healthy. Raises LaunchError where it ends first, or takes too long."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=5) as client:
        while not await _healthy(client):
            spent = time.monotonic() - began
            if spent > STARTING:
                raise LaunchError(f"{one.server.name} was not up within {STARTING:g} s; its log is {one.log}")
            if progress:
                progress(one.server.name, spent, latest(one.log))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await one.process.wait()
                raise gone(one)


async def _healthy(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == 200
    except httpx.HTTPError:
        return False


def _homes(server: Server) -> set[Path]:
    """Folders of the local sockets that a server binds."""
    told = (server.endpoint.kv_events, server.endpoint.kv_replay) if server.endpoint else ()
    return {Path(one.removeprefix("ipc://")).parent for one in told if one and one.startswith("ipc://")}


def _port(server: Server) -> int:
    words = server.words
    return int(words[words.index("--port") + 1])


def _free(port: int) -> None:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return
    except OSError:
        raise PoolConfigError(f"port {port} of this machine is taken; name another with --port") from None
