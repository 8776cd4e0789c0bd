"""A pretend sandbox for tests: a temporary folder and, unless the test scripts the answer, a real process in it.

It keeps the protocol (files, fork, export, time and output limits) and isolates nothing: for tests only, with commands
that the test wrote itself.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path

from sandbox.errors import SandboxError, SandboxLostError
from sandbox.line.inside import pack_argv, read_argv, refuse, run_argv, unpack_argv, write_argv
from sandbox.process import Finished, ProcessFailedError, Start, feed_process, run_process, stream_process
from sandbox.rules.profile import environment_of, profile_of, time_limit
from sandbox.types import Command, Outcome, SandboxSpec, SelfTest

Script = Callable[[Command, Path], Outcome | None]
"""A test's answer to a command, given the workspace's folder; None lets the command really run."""


class ScriptedSandbox:
    """Keeps the `Sandbox` protocol over a folder. ``ran`` are the commands so far."""

    def __init__(self, backend: ScriptedBackend, spec: SandboxSpec, folder: Path) -> None:
        self._backend = backend
        self._spec = spec
        self._profile = profile_of(spec)
        self.folder = folder
        self.work = folder / "work"
        self.ran: list[Command] = []
        self.closed = False

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    async def run(self, command: Command) -> Outcome:
        """The scripted answer, else what the command does in the folder."""
        self.ran.append(command)
        self._backend.ran.append(command)
        argv = run_argv(command)
        if self.closed:
            raise SandboxLostError(f"{self.name} is closed")
        scripted = self._backend.script(command, self.work) if self._backend.script else None
        if scripted is not None:
            return scripted
        limit = time_limit(self._profile, command)
        ended = await self._execute(argv, command, limit, self._profile.output)
        return Outcome(
            exit_code=ended.exit_code,
            output=ended.output,
            seconds=ended.seconds,
            timed_out=ended.timed_out,
            cut=ended.cut,
        )

    async def read(self, path: str, limit: int = 1_000_000) -> bytes:
        """As the protocol says."""
        ended = await self._execute(read_argv(path, limit), None, self._profile.wall, 2 * limit + 2, apart=True)
        refuse(path, ended.exit_code, ended.errors)
        return ended.output

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """As the protocol says."""
        argv = write_argv(path, executable=executable)
        ended = await self._execute(argv, Command(argv=("-",), stdin=data), self._profile.wall, 65536, apart=True)
        refuse(path, ended.exit_code, ended.errors)

    async def export(self) -> AsyncIterator[bytes]:
        """As the protocol says."""
        start = self._start(pack_argv(), None, apart=True)
        stream = stream_process(start, timeout=self._profile.wall, output=self._profile.export_limit)
        try:
            async with aclosing(stream):
                async for chunk in stream:
                    yield chunk
        except ProcessFailedError as error:
            raise SandboxError(f"{self.name} cannot be exported: it {error}") from error

    def fork(self) -> AbstractAsyncContextManager[ScriptedSandbox]:
        """As the protocol says."""
        return self._backend.open(self._spec, self.export())

    def _start(self, argv: list[str], command: Command | None, *, apart: bool = False) -> Start:
        env = environment_of(self._profile, command or Command(argv=("-",)))
        home = {"HOME": str(self.folder / "home")} if env["HOME"] == "/home/agent" else {}
        return Start(argv, env | home, cwd=self.work, errors_apart=apart)

    async def _execute(
        self, argv: list[str], command: Command | None, limit: float, output: int, *, apart: bool = False
    ) -> Finished:
        start = self._start(argv, command, apart=apart)
        return await run_process(start, stdin=command.stdin if command else b"", timeout=limit, output=output)


class ScriptedBackend:
    """Keeps the `SandboxBackend` protocol. ``ran`` are all commands, ``opened`` all sandboxes, forks included."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script
        self.ran: list[Command] = []
        self.opened: list[ScriptedSandbox] = []

    async def self_test(self) -> SelfTest:
        """Claims nothing, since nothing is isolated."""
        return SelfTest(backend="bwrap", version="scripted", proved=())

    @asynccontextmanager
    async def open(
        self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[ScriptedSandbox]:
        """As the protocol says."""
        folder = Path(tempfile.mkdtemp(prefix="scripted-"))
        sandbox = ScriptedSandbox(self, spec, folder)
        try:
            sandbox.work.mkdir()
            (folder / "home").mkdir()
            if workspace is not None:
                start = sandbox._start(unpack_argv(), None)  # noqa: SLF001 - the other half of this file
                await feed_process(start, workspace, timeout=spec.limits.wall)
            self.opened.append(sandbox)
            yield sandbox
        except ProcessFailedError as error:
            raise SandboxError(f"the workspace cannot be filled: tar {error}") from error
        finally:
            sandbox.closed = True
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def sweep(self) -> int:
        """Nothing is left behind."""
        return 0
