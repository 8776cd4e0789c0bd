"""A pretend sandbox for tests: a temporary folder and, unless the test scripts the answer, real processes in it.

It keeps the protocol by the same means as the real ones, a supervisor over a stream, and isolates nothing: for tests
only, with commands that the test wrote itself. Nothing is swept, since all processes of this machine are in sight.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox.base import Exits, OnOutput, Rescue
from sandbox.errors import SandboxLostError
from sandbox.line.launch import Start, bootstrap_argv
from sandbox.line.resident import ResidentSandbox, Setting, exits_of
from sandbox.rules.profile import profile_of
from sandbox.types import Command, LeftBehind, Outcome, SandboxSpec, SelfTest

Script = Callable[[Command, Path], Outcome | None]
"""A test's answer to a command, given the workspace's folder; None lets the command really run."""

_PIECE = 256 * 1024


class PipeLine:
    """A supervisor's two pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def receive(self) -> bytes:
        """As `Line` says."""
        assert self._process.stdout is not None  # noqa: S101 - PIPE was asked for
        return await self._process.stdout.read(_PIECE)

    async def send(self, data: bytes) -> None:
        """As `Line` says."""
        assert self._process.stdin is not None  # noqa: S101 - PIPE was asked for
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise SandboxLostError("the supervisor does not listen any more") from error

    async def close(self) -> None:
        """As `Line` says. The supervisor ends what it runs, and itself."""
        assert self._process.stdin is not None  # noqa: S101 - PIPE was asked for
        self._process.stdin.close()


class ProcessCell:
    """A folder with a supervisor that runs as a plain process. Only its own process group is ever killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self._folder.name

    async def start(self) -> PipeLine:
        """As `Cell` says."""
        self._process = await asyncio.create_subprocess_exec(
            *bootstrap_argv((sys.executable,)),
            env={"PATH": os.defpath},
            cwd=self._folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=2 * _PIECE,
        )
        return PipeLine(self._process)

    async def clear(self) -> None:
        """As `Cell` says, for what is in the supervisor's group; its command dies with it."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 0.2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - what escaped may hold the pipes open

    def starved(self) -> int | None:
        """Nothing limits its memory."""
        return 0


class ScriptedSandbox(ResidentSandbox):
    """``ran`` are the commands so far."""

    def __init__(self, backend: ScriptedBackend, folder: Path, spec: SandboxSpec, setting: Setting) -> None:
        super().__init__(ProcessCell(folder), spec, setting)
        self._backend = backend
        self.folder = folder
        self.work = folder / "work"
        self.ran: list[Command] = []

    async def run(self, command: Command, on_output: OnOutput | None = None) -> Outcome:
        """The scripted answer, else what the command does in the folder."""
        self.ran.append(command)
        self._backend.ran.append(command)
        scripted = self._backend.script(command, self.work) if self._backend.script else None
        if scripted is not None:
            return scripted
        return await super().run(command, on_output)


class ScriptedBackend:
    """Keeps the `SandboxBackend` protocol. ``ran`` are all commands, ``opened`` all sandboxes, forks included."""

    def __init__(self, script: Script | None = None, exits: Exits | None = None, *, grace: float = 5.0) -> None:
        self.script = script
        self.ran: list[Command] = []
        self.opened: list[ScriptedSandbox] = []
        self._exits: Exits = exits or {}
        self._grace = grace

    async def self_test(self) -> SelfTest:
        """Claims nothing, since nothing is isolated."""
        return SelfTest(backend="bwrap", version="scripted", proved=())

    @asynccontextmanager
    async def open(
        self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[ScriptedSandbox]:
        """As the protocol says."""
        exits = exits_of(spec, self._exits)
        folder = Path(tempfile.mkdtemp(prefix="scripted-"))
        start = Start(work=str(folder / "work"), home=str(folder / "home"), sweep=False)
        setting = Setting(profile_of(spec), start, self._fork, exits, self._grace)
        sandbox = ScriptedSandbox(self, folder, spec, setting)
        try:
            (folder / "work").mkdir()
            (folder / "home").mkdir()
            await sandbox.adopt(spec.labels, workspace)
            self.opened.append(sandbox)
            yield sandbox
        finally:
            await sandbox.close()
            await sandbox.cell.clear()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def left_behind(self) -> tuple[LeftBehind, ...]:
        """Nothing is left behind."""
        return ()

    async def sweep(self, rescue: Rescue | None = None, only: Collection[str] | None = None) -> int:  # noqa: ARG002
        """Nothing is left behind."""
        return 0

    async def close(self) -> None:
        """Nothing is held."""

    @asynccontextmanager
    async def _fork(self, origin: ResidentSandbox, spec: SandboxSpec) -> AsyncIterator[ScriptedSandbox]:
        async with self.open(spec) as sandbox:
            await origin.copy_to(sandbox)
            yield sandbox
