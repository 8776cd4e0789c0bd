"""What scripts/forge-parts installed, and how one of its programs is started and ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

_SCRIPT = Path(__file__).parents[2] / "scripts" / "forge-parts"


@pytest.fixture(scope="session")
def forge_parts() -> Path:
    """The folder of the parts; skips with the mend where they are not installed."""
    told = subprocess.run([_SCRIPT, "where"], capture_output=True, text=True, check=True).stdout.strip()
    for part in ("venv", "prism"):
        if not (Path(told) / part / ".installed").exists():
            pytest.skip(f"needs {told}/{part}: scripts/forge-parts prepare")
    return Path(told)


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(log: Path, *command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program as a group of its own, which is ended as one."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"PATH": os.environ["PATH"], "HOME": str(log.parent), "NO_UPDATE_NOTIFIER": "1"},
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """Until something answers there, with whatever status."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            pytest.fail(f"it ended with {process.returncode}:\n{log.read_text(errors='replace')[-3000:]}")
        try:
            httpx.get(url, timeout=5)
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"it did not answer within {seconds:g} s:\n{log.read_text(errors='replace')[-3000:]}")
