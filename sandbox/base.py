"""The protocol that every sandbox backend keeps; `tests/contract` holds them to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from sandbox.types import Command, LeftBehind, Network, Outcome, SandboxSpec, SelfTest

OnOutput = Callable[[bytes], None]
Rescue = Callable[[LeftBehind, AsyncIterator[bytes]], Awaitable[None]]


class Exit(Protocol):
    """One way out that the host keeps: every connection made to it inside ends in ``serve``, and nowhere else.

    Inside it is a TCP port on the loopback. The bytes come out through the supervisor's own stream, so no socket, route
    or mount is shared with the host.
    """

    @property
    def port(self) -> int:
        """Port inside, on 127.0.0.1."""

    def environment(self) -> Mapping[str, str]:
        """Variables that make ordinary programs inside use it."""

    def files(self) -> Mapping[str, bytes]:
        """What those programs have to find inside: absolute path below /tmp, and content. Nothing of it is secret."""

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, labels: Mapping[str, str]
    ) -> None:
        """One connection to its end, for the sandbox with these labels. What it raises ends that connection alone."""


Exits = Mapping[Network, Exit]


class Sandbox(Protocol):
    """An open sandbox. The workspace is its only place that lasts; paths are relative to it."""

    @property
    def name(self) -> str:
        """A name that the backend knows it by (of a container or a control group)."""

    async def run(self, command: Command, on_output: OnOutput | None = None) -> Outcome:
        """Run one command to its end; commands wait for one another, and nothing of one is left after it.

        ``on_output`` is given the output that is kept, piece by piece, its head while the command runs; after that
        ``b""``, at most once a second, while it prints what is cut or kept for the end. Of a ``whole`` command it is
        given everything, and the outcome holds no output. Raises SandboxPathError for a folder or a variable that
        cannot be, SandboxError when the machinery itself is broken.
        """

    async def ping(self) -> None:
        """Have its supervisor answer, started where there is none; nothing else runs. Raises SandboxLostError."""

    async def read(self, path: str, limit: int = 1_000_000) -> bytes:
        """The first ``limit`` bytes of a file. Raises SandboxPathError where there is none or it lies outside."""

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a whole file, making its folders. Raises SandboxPathError for a path outside the workspace."""

    def export(self) -> AsyncIterator[bytes]:
        """The workspace as a tar stream, made inside, bounded by the disk limit. Links are not followed.

        It may be read while a command runs, whose end is then told when the export is over.
        """

    async def unpack(self, stream: AsyncIterator[bytes]) -> None:
        """A tar stream over what is in the workspace, as the agent. Raises SandboxError where it is none or too big.

        A file or link that is in the way is replaced, never written through.
        """

    async def adopt(self, labels: Mapping[str, str], workspace: AsyncIterator[bytes] | None = None) -> None:
        """Take an empty, unused sandbox into use: whose it is from now on, and what its workspace holds."""

    def fork(self, labels: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Sandbox]:
        """A new sandbox of the same spec whose workspace, home and session start as a copy of this one's.

        Its labels are those given, else this one's and ``fork`` with this one's name.
        """


class SandboxBackend(Protocol):
    """A way to make sandboxes."""

    async def self_test(self) -> SelfTest:
        """Prove the claims from inside a throwaway sandbox. Raises SandboxUnavailableError with the mend."""

    def open(
        self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None
    ) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox, its workspace filled from a tar stream when one is given."""

    async def left_behind(self) -> tuple[LeftBehind, ...]:
        """What earlier processes left: sandboxes whose process is gone, of this owner and of others, oldest first."""

    async def sweep(self, rescue: Rescue | None = None, only: Collection[str] | None = None) -> int:
        """Remove what earlier processes of this owner left behind, or ``only`` these; the number of sandboxes removed.

        A workspace that still lives is first given to ``rescue`` as a tar stream; where that fails it is left there.
        """

    async def close(self) -> None:
        """Let go of what the backend itself holds: connections, helpers, warm sandboxes."""
