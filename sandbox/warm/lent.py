"""A sandbox as it is handed out: the protocol passed on, and its forks written down like itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from sandbox.base import OnOutput, Sandbox
from sandbox.register import Register
from sandbox.types import Command, Outcome


class Lent:
    """Keeps the `Sandbox` protocol over an open sandbox that holds, or will hold, work of whom ``labels`` name."""

    def __init__(self, sandbox: Sandbox, labels: Mapping[str, str], register: Register) -> None:
        self._sandbox = sandbox
        self._labels = dict(labels)
        self._register = register

    @property
    def name(self) -> str:
        """As the protocol says."""
        return self._sandbox.name

    async def run(self, command: Command, on_output: OnOutput | None = None) -> Outcome:
        """As the protocol says."""
        return await self._sandbox.run(command, on_output)

    async def ping(self) -> None:
        """As the protocol says."""
        await self._sandbox.ping()

    async def read(self, path: str, limit: int = 1_000_000) -> bytes:
        """As the protocol says."""
        return await self._sandbox.read(path, limit)

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """As the protocol says."""
        await self._sandbox.write(path, data, executable=executable)

    def export(self) -> AsyncIterator[bytes]:
        """As the protocol says."""
        return self._sandbox.export()

    async def unpack(self, stream: AsyncIterator[bytes]) -> None:
        """As the protocol says."""
        await self._sandbox.unpack(stream)

    async def adopt(self, labels: Mapping[str, str], workspace: AsyncIterator[bytes] | None = None) -> None:
        """As the protocol says."""
        await self._sandbox.adopt(labels, workspace)
        self._labels = dict(labels)
        self._register.note(self.name, labels)

    def fork(self, labels: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Lent]:
        """As the protocol says."""
        given = {**self._labels, "fork": self.name} if labels is None else dict(labels)
        return lent(self._sandbox.fork(labels), given, self._register)


@asynccontextmanager
async def lent(
    opening: AbstractAsyncContextManager[Sandbox], labels: Mapping[str, str], register: Register
) -> AsyncIterator[Lent]:
    """Open a sandbox and write down whose it is, for as long as it is open. Raises SandboxError.

    What is not written down was never used: nothing ran in it, and a later daemon may remove it unasked.
    """
    name = ""
    try:
        async with opening as sandbox:
            register.note(sandbox.name, labels)
            name = sandbox.name
            yield Lent(sandbox, labels, register)
    finally:
        if name:
            register.forget(name)
