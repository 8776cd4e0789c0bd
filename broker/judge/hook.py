"""The operator's own judge: a command that gets the facts on its standard input and answers by its exit code.

The contract of git-proxy's external hooks: 0 approves, 1 refuses, 2 asks a person. Whatever else happens refuses.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict

from broker.config import ground
from broker.config.policy import Policy
from broker.errors import BrokerError
from broker.judge.facts import Change
from broker.judge.names import printable
from broker.wire import Finding, Severity

_MAX_OUTPUT = 64 * 1024
_MAX_REASON = 300


class HookFile(BaseModel):
    """One changed file; modes as git writes them, None where there is none; the new size in bytes."""

    model_config = ConfigDict(frozen=True)

    path: str
    kind: str
    old_mode: str | None
    new_mode: str | None
    old_id: str | None
    new_id: str | None
    size: int


class HookFacts(BaseModel):
    """What the command reads, as one JSON object. Title, body and paths are an agent's words: data, not to be trusted.

    ``findings`` are all that the broker found itself; the command cannot take one of them back.
    """

    model_config = ConfigDict(frozen=True)

    version: int = 1
    repository: str
    base: str
    base_commit: str
    tree: str
    task: str
    title: str
    body: str
    files: tuple[HookFile, ...]
    findings: tuple[Finding, ...]


def files_of(changes: Sequence[Change], sizes: Mapping[str, int]) -> tuple[HookFile, ...]:
    """The changed files as a hook sees them."""
    return tuple(
        HookFile(
            path=change.path,
            kind=change.kind,
            old_mode=change.old_mode,
            new_mode=change.new_mode,
            old_id=change.old_oid,
            new_id=change.new_oid,
            size=sizes.get(change.new_oid or "", 0),
        )
        for change in changes
    )


@dataclass(frozen=True)
class _Ended:
    code: int | None  # None: it did not end by itself
    said: bytes
    why: str = ""


def ask(policy: Policy, facts: HookFacts) -> Finding | None:
    """None if there is no hook or it approves. Blocks for at most ``hook_seconds``."""
    if not policy.hook:
        return None
    if problem := ground.program(Path(policy.hook[0]), os.geteuid()):
        return _failed(f"it {problem}")
    ended = _run(policy.hook, facts.model_dump_json().encode(), policy.hook_seconds)
    if ended.code == 0:
        return None
    if ended.code in {1, 2}:
        reason = _first_line(ended.said)
        severity: Severity = "block" if ended.code == 1 else "ask"
        default = "it refuses the proposal" if ended.code == 1 else "it wants a person to look"
        return Finding(rule="hook", severity=severity, message=f"the operator's hook: {reason or default}", mend=_MEND)
    return _failed(ended.why or f"it ended with {_code(ended.code)}")


def _failed(why: str) -> Finding:
    return Finding(rule="hook-failed", message=f"the operator's hook gave no verdict: {why}", mend=_MEND_IT)


_MEND = "propose what it accepts, or a person approves it"
_MEND_IT = "the operator mends the command that policy.hook names, or raises hook_seconds"


def _run(command: Sequence[str], text: bytes, seconds: float) -> _Ended:
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
            return _Ended(None, b"", f"it cannot be started ({getattr(error, 'strerror', None) or 'bad arguments'})")
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


def _watched(process: subprocess.Popen[bytes], output: IO[bytes], seconds: float) -> _Ended:
    said, deadline, handle = b"", time.monotonic() + seconds, os.pidfd_open(process.pid)
    os.set_blocking(output.fileno(), False)
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(output, selectors.EVENT_READ)
            selector.register(handle, selectors.EVENT_READ)
            while ready := {key.fd for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}:
                piece = output.read(_MAX_OUTPUT)
                said += piece or b""
                if len(said) > _MAX_OUTPUT:
                    return _Ended(None, said, f"it wrote more than {_MAX_OUTPUT} bytes")
                if handle in ready:
                    return _Ended(_code_of(process.pid), said)
                if piece == b"":
                    selector.unregister(output)
            return _Ended(None, said, f"it took longer than {seconds:g} s")
        finally:
            os.close(handle)


def _code_of(pid: int) -> int | None:
    # Looked at, not collected: the group is killed first, while its number is still its own.
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _code(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _first_line(said: bytes) -> str:
    line = next((line for line in said.splitlines() if line.strip()), b"")
    return printable(line.strip())[:_MAX_REASON]
