"""The small model that ships with the project, served by llama.cpp in a child process and joined like any endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import platformdirs
from pydantic import SecretStr

from pool import llama_child
from pool.config import EMBEDDED, EmbeddedConfig, EndpointConfig
from pool.errors import EmbeddedError

logger = logging.getLogger(__name__)

MODEL = "SmolLM2-135M-Instruct"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SYSTEM_WIDE = (Path("/var/cache/agent-swarm/weights"), Path("/var/lib/agent-swarm/weights"))
STARTING = 120.0  # seconds until the server must listen; a second or two on an idle machine
STOPPING = 5.0  # seconds between the request to stop and the kill
INSTALL = "pip install 'agent-swarm[embedded]'"
FETCH = "scripts/fetch-weights"


def find_weights(config: EmbeddedConfig, environ: Mapping[str, str] | None = None) -> Path:
    """The weights to serve: as configured, else $AGENT_SWARM_WEIGHTS, else from the project's cache folders.

    ``environ`` is what the door read of the environment. Raises EmbeddedError, naming the mend, where there are none,
    where the file is no GGUF, or where our own file does not have the sha256 that it must have.
    """
    environ = environ or {}
    told = config.weights or environ.get("AGENT_SWARM_WEIGHTS")
    if told:
        return _checked(Path(told).expanduser())
    folders = _folders(environ)
    for folder in folders:
        if (folder / WEIGHTS).is_file():
            return _checked(folder / WEIGHTS)
    looked = ", ".join(map(str, folders))
    raise EmbeddedError(f"the embedded model's weights are in none of {looked}; fetch them with {FETCH}")


def shortage(config: EmbeddedConfig, environ: Mapping[str, str] | None = None) -> tuple[str, str] | None:
    """What is missing here to serve the embedded model, and the mend; None where nothing is."""
    if find_spec("xllamacpp") is None:
        return "its server, xllamacpp, is not installed", INSTALL
    try:
        find_weights(config, environ)
    except EmbeddedError as error:
        return str(error), FETCH
    return None


@asynccontextmanager
async def serve_embedded(
    config: EmbeddedConfig,
    *,
    log: Path,
    environ: Mapping[str, str] | None = None,
    ended: Callable[[EmbeddedError], None] | None = None,
) -> AsyncIterator[EndpointConfig]:
    """Serve the embedded model for as long as the block runs; gives the endpoint to put into a PoolConfig.

    The child has its own process group, an empty environment, a key that nobody else knows, and ends with this process.
    Its words go to ``log``. Where it ends by itself that is logged and ``ended`` is called. Raises EmbeddedError when
    xllamacpp or the weights are missing, or it does not start.
    """
    weights = await asyncio.to_thread(find_weights, config, environ)
    key = secrets.token_urlsafe(24)
    told = {
        "weights": str(weights),
        "model": MODEL if weights.name == WEIGHTS else weights.stem,
        "parallel": config.parallel,
        "window": config.window,
        "threads": config.threads,
        "key": key,
        "parent": os.getpid(),
    }
    async with _child(told, log, ended or _unheard) as url:
        yield EndpointConfig(
            name=EMBEDDED,
            url=url,
            tier=config.tier,
            api_key=SecretStr(key),
            tools="text",  # seen: the model's template shows it no tools, and it answers in plain text
            max_in_flight=config.parallel,  # more would wait inside it, where the pool cannot order them
        )


def _folders(environ: Mapping[str, str]) -> list[Path]:
    cache = environ.get("AGENT_SWARM_CACHE")
    own = Path(cache) / "weights" if cache else platformdirs.user_cache_path("agent-swarm") / "weights"
    return [own, *SYSTEM_WIDE]


def _checked(path: Path) -> Path:
    """The path, once it is sure to be weights. Only our own file has a known sum; others are the operator's choice."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            file.seek(0)
            found = hashlib.file_digest(file, "sha256").hexdigest() if path.name == WEIGHTS else SHA256
    except OSError as error:
        reason = error.strerror or str(error)
        raise EmbeddedError(
            f"the embedded model's weights {path} cannot be read ({reason}); fetch them: {FETCH}"
        ) from error
    if magic != b"GGUF":
        raise EmbeddedError(f"{path} is not a GGUF file; fetch the embedded model's weights with {FETCH}")
    if found != SHA256:
        raise EmbeddedError(f"{path} has the sha256 {found}, not {SHA256}: remove it and fetch it again with {FETCH}")
    return path


@asynccontextmanager
async def _child(told: dict[str, Any], log: Path, ended: Callable[[EmbeddedError], None]) -> AsyncIterator[str]:
    """The child process and the address that it listens at; watched once it does."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        sink = log.open("ab")
    except OSError as error:
        raise EmbeddedError(f"the embedded model's log {log} cannot be written: {error.strerror}") from error
    with sink:
        process = await _spawn(sink)
        try:
            url = await _address(process, told, log)
            watch = asyncio.create_task(_watch(process, log, ended))
            try:
                yield url
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
        finally:
            await _stop(process)


async def _watch(process: asyncio.subprocess.Process, log: Path, ended: Callable[[EmbeddedError], None]) -> None:
    code = await process.wait()
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended by itself with exit code {code}"
    error = EmbeddedError(f"the embedded model's process {how}; start it again; its log is {log}")
    logger.error("%s", error)
    ended(error)


def _unheard(_: EmbeddedError) -> None:
    """Nobody waits for the end: the log tells it, and so does the endpoint's state."""


async def _spawn(sink: IO[bytes]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(llama_child.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=sink,
        env={},
        start_new_session=True,
    )


async def _address(process: asyncio.subprocess.Process, told: dict[str, Any], log: Path) -> str:
    started = time.monotonic()
    try:
        async with asyncio.timeout(STARTING):
            line, _ = await asyncio.gather(_first_line(process), _tell(process, told))
    except TimeoutError as error:
        raise EmbeddedError(f"the embedded model did not start within {STARTING:g} s; its log is {log}") from error
    said = json.loads(line) if line.startswith(b"{") else {}
    if "missing" in said:
        raise EmbeddedError(f"xllamacpp is not installed ({said['missing']}); install it with {INSTALL}")
    if "url" not in said:
        reason = said.get("error") or f"its process ended after {time.monotonic() - started:.1f} s"
        raise EmbeddedError(f"the embedded model could not be served: {reason}; its log is {log}")
    return str(said["url"])


async def _first_line(process: asyncio.subprocess.Process) -> bytes:
    """What the child answers; anything else on its standard output is native code talking out of turn."""
    assert process.stdout is not None  # noqa: S101  it was asked for
    async for line in process.stdout:
        if line.startswith(b"{"):
            return line
    return b""


async def _tell(process: asyncio.subprocess.Process, told: dict[str, Any]) -> None:
    assert process.stdin is not None  # noqa: S101  it was asked for
    process.stdin.write(json.dumps(told).encode())
    with contextlib.suppress(ConnectionError):
        await process.stdin.drain()
    process.stdin.close()
    # Waited for from beside: where asyncio's own wait is cancelled, a callback of its fails once the pipe closes.
    closing = asyncio.ensure_future(process.stdin.wait_closed())
    closing.add_done_callback(lambda one: one.cancelled() or one.exception())
    await asyncio.wait([closing])


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the child's whole group: politely, then not."""
    for what in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, what)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOPPING):
                await process.wait()
                return
