"""Runs a command of the operator's with a text on its standard input, bounded in time and output, and ends all of it.

Nothing of the broker goes along: no environment, no open file, no folder, no terminal.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from broker.errors import BrokerError

MAX_OUTPUT = 64 * 1024


@dataclass(frozen=True)
class Ended:
    """How it ended: its exit code, or minus the signal; None with the reason if it did not end by itself."""

    code: int | None
    said: bytes
    why: str = ""


def run(command: Sequence[str], text: bytes, seconds: float) -> Ended:
    """Runs it. Blocks for at most ``seconds``; whatever it started in its process group is killed at the end."""
    with tempfile.TemporaryFile() as given:  # a file, so that a command that never reads cannot hold the broker up
        given.write(text)
        given.seek(0)
        try:
            process = subprocess.Popen(
                list(command),
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            return Ended(None, b"", f"it cannot be started ({getattr(error, 'strerror', None) or 'bad arguments'})")
    with process:
        try:
            return _watched(process, _output(process), seconds)
        finally:  # before it is waited for: until then no other process can get its number
            _end(process)


def _output(process: subprocess.Popen[bytes]) -> IO[bytes]:
    if process.stdout is None:
        raise BrokerError("the hook was started without a pipe for its output")
    return process.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _watched(process: subprocess.Popen[bytes], output: IO[bytes], seconds: float) -> Ended:
    said, deadline, handle = b"", time.monotonic() + seconds, os.pidfd_open(process.pid)
    os.set_blocking(output.fileno(), False)
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(output, selectors.EVENT_READ)
            selector.register(handle, selectors.EVENT_READ)
            while ready := {key.fd for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}:
                piece = output.read(MAX_OUTPUT)
                said += piece or b""
                if len(said) > MAX_OUTPUT:
                    return Ended(None, said, f"it wrote more than {MAX_OUTPUT} bytes")
                if handle in ready:
                    return Ended(_code_of(process.pid), said)
                if piece == b"":
                    selector.unregister(output)
            return Ended(None, said, f"it took longer than {seconds:g} s")
        finally:
            os.close(handle)


def _code_of(pid: int) -> int | None:
    # Looked at, not collected: the group is killed first, while its number is still its own.
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
