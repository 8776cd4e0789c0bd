"""One container as a locked box: a supervisor is started in it with a single engine exec, over the exec's raw stream.

A process of another uid holds the container open, so that all of the agent's can be killed and it cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Mapping

from sandbox.container.engine import Engine
from sandbox.container.frames import OUTPUT, Unframer
from sandbox.errors import SandboxError, SandboxLostError
from sandbox.line.cell import Line
from sandbox.line.launch import bootstrap_argv
from sandbox.line.programs import argv_of
from sandbox.types import Frozen

_CHUNK = 256 * 1024
_WORDS = 2000  # bytes of standard error kept, to say why a supervisor ended
_GOODBYE = 2.0
_PATIENCE = 12.0  # seconds that killing all processes of an agent may take before its container goes
_HASTE = 4  # times the CPU quota while killing: a throttled fork bomb holds the kernel's locks and starves the killer
# The shell's kill needs no process of its own, so it works in a container that is full.
_SWEEP = ("-c", "kill -9 -1 2>/dev/null; exit 0")
_NOT_STARTED = b"OCI runtime exec failed"  # where a runtime cannot start a process, the engine says so on its output


class Tools(Frozen):
    """Where our own programs are in a container: its own ``/usr``, or a borrowed one; of which machine."""

    usr: str = "/usr"
    machine: str = "x86_64"

    def argv(self, program: str, *words: str) -> list[str]:
        """How to start one."""
        return argv_of(program, words, usr=self.usr, machine=self.machine)


class Box(Frozen):
    """A started container: its full id, its agent's uid, its CPU quota in microseconds per period, its tools."""

    name: str
    id: str
    uid: int
    quota: int
    tools: Tools


class ContainerCell:
    """Keeps the `Cell` protocol over a started container."""

    def __init__(self, engine: Engine, box: Box) -> None:
        self.id = box.id
        self.tools = box.tools
        self.user = f"{box.uid}:{box.uid}"
        self._engine = engine
        self._name = box.name
        self._quota = box.quota
        self._keeper: int | None = None
        self._lost = False

    @property
    def name(self) -> str:
        """Name of the container."""
        return self._name

    async def start(self) -> Line:
        """One engine exec, as the agent's user. The supervisor keeps silent until it is spoken to."""
        if self._lost:
            raise SandboxLostError(f"the container {self._name} is gone")
        argv = bootstrap_argv(tuple(self.tools.argv("python3")))
        raw = await self._engine.start_exec(self._name, argv, self.user, {})
        try:
            reader, writer = await asyncio.open_unix_connection(sock=raw, limit=_CHUNK)
        except BaseException:
            raw.close()
            raise
        return ExecLine(self._name, reader, writer)

    def starved(self) -> None:
        """The supervisor reads the container's own control group; the engine's machine may be another one."""

    async def clear(self) -> None:
        """Kill everything of the agent's until the engine says that nothing is left, else give up the container."""
        if not self._lost and await self.emptied():
            return
        self._lost = True
        with contextlib.suppress(SandboxError):
            await self._engine.kill(self._name)
        raise SandboxLostError(f"processes in {self._name} could not be killed, so the container was thrown away")

    async def emptied(self) -> bool:
        """Kill everything of the agent's; whether the engine says that nothing is left. The container stays."""
        until, attempt = time.monotonic() + _PATIENCE, 0
        try:
            await self._allow(self._quota * _HASTE)
            while time.monotonic() < until:
                if attempt and not await self._agents():
                    await self._allow(self._quota)
                    return True
                await self._engine.shoot(self._name, self.tools.argv("sh", *_SWEEP), self.user)
                await asyncio.sleep(min(0.02 * attempt, 0.2))
                attempt += 1
        except SandboxError:
            pass  # the engine cannot get in: an agent stops whatever it starts there
        return False

    async def _agents(self) -> int:
        """How many processes there are that are not the keeper's.

        The engine tells uids as its own machine counts them, which differ where it maps users; so the keeper is known
        by its first process, which the agent can neither be nor end.
        """
        found = await self._engine.processes(self._name)
        if self._keeper is None:
            self._keeper = found[await self._first(found)]
        return sum(1 for uid in found.values() if uid != self._keeper)

    async def _first(self, found: Mapping[int, int]) -> int:
        pid = await self._engine.first_process(self._name)
        if pid not in found:
            raise SandboxLostError(f"the container {self._name} has ended")
        return pid

    async def _allow(self, quota: int) -> None:
        """Set the CPU quota, where the engine lets it be set on a running container."""
        with contextlib.suppress(SandboxError):
            await self._engine.allow(self._name, quota)


class ExecLine:
    """Keeps the `Line` protocol over an exec's hijacked connection. Not reading it holds the supervisor back."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._name = name
        self._reader = reader
        self._writer = writer
        self._frames = Unframer()
        self._pieces: deque[bytes] = deque()
        self._errors = b""
        self._heard = False

    async def receive(self) -> bytes:
        """As the protocol says."""
        while not self._pieces:
            try:
                data = await self._reader.read(_CHUNK)
            except ConnectionError:
                data = b""  # the engine lets go without ceremony
            if not data:
                return self._end()
            for kind, piece in self._frames.feed(data):
                if kind == OUTPUT:
                    self._pieces.append(piece)
                else:
                    self._errors = (self._errors + piece)[-_WORDS:]
        piece = b"".join(self._pieces)
        self._pieces.clear()
        if not self._heard and piece.startswith(_NOT_STARTED):
            raise SandboxLostError(f"{self._name} did not start a supervisor: {_words(piece)}")
        self._heard = True
        return piece

    def _end(self) -> bytes:
        if not self._heard and self._errors:
            raise SandboxLostError(f"the supervisor of {self._name} did not start: {_words(self._errors)}")
        return b""

    async def send(self, data: bytes) -> None:
        """As the protocol says."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError as error:
            raise SandboxLostError(f"the supervisor of {self._name} has hung up") from error

    async def close(self) -> None:
        """Let go of it; the supervisor sees the end of its input. What it does not read in time is dropped."""
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), _GOODBYE)
        except (OSError, TimeoutError):
            self._writer.transport.abort()


def _words(data: bytes) -> str:
    return " ".join(data.decode("utf-8", "replace").split())[-500:]
