"""A real vLLM server for the tests marked `vllm`: started once a session by scripts/vllm-server, ended by its group."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "vllm-server"
BLOCKED = 69
STARTING = 1500.0  # seconds; the first run installs about a gigabyte


@pytest.fixture(scope="session")
def vllm_url() -> Iterator[str]:
    """Base address of a vLLM server with the project's small model; AGENT_SWARM_VLLM_URL names one that runs already.

    Skips when the installation is blocked on this machine. Tests that use it need a timeout mark of their own.
    """
    if told := os.environ.get("AGENT_SWARM_VLLM_URL"):
        yield told
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.NamedTemporaryFile(prefix="vllm-log-") as log:
        server = subprocess.Popen(
            [SCRIPT, "serve", str(port)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _await(f"http://127.0.0.1:{port}", server, Path(log.name))
            yield f"http://127.0.0.1:{port}"
        finally:
            _end(server)


def _await(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        if (code := server.poll()) is not None:
            words = log.read_text(errors="replace")[-3000:]
            if code == BLOCKED:
                pytest.skip(words.strip().splitlines()[-1])
            pytest.fail(f"scripts/vllm-server ended with {code}:\n{words}")
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    pytest.fail(f"vLLM was not up within {STARTING:g} s:\n{log.read_text(errors='replace')[-3000:]}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """vLLM is three processes: end the whole group, and wait for it."""
    for what, patience in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        try:
            os.killpg(server.pid, what)
            server.wait(patience)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
