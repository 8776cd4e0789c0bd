"""The protocol that every sandbox backend keeps; `tests/contract` holds them to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from sandbox.types import Command, Outcome, SandboxSpec, SelfTest


class Sandbox(Protocol):
    """An open sandbox. The workspace is its only place that lasts; paths are relative to it."""

    @property
    def name(self) -> str:
        """A name that the backend knows it by (of a container or a control group)."""

    async def run(self, command: Command) -> Outcome:
        """Run one command to its end. Raises SandboxError only when the machinery itself is broken."""

    async def read(self, path: str, limit: int = 1_000_000) -> bytes:
        """The first ``limit`` bytes of a file. Raises SandboxPathError where there is none or it lies outside."""

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a whole file, making its folders. Raises SandboxPathError for a path outside the workspace."""

    def export(self) -> AsyncIterator[bytes]:
        """The workspace as a tar stream, made inside, bounded by the disk limit. Links are not followed."""

    def fork(self) -> AbstractAsyncContextManager[Sandbox]:
        """A new sandbox of the same spec whose workspace starts as a copy of this one."""


class SandboxBackend(Protocol):
    """A way to make sandboxes."""

    async def self_test(self) -> SelfTest:
        """Prove the claims from inside a throwaway sandbox. Raises SandboxUnavailableError with the mend."""

    def open(
        self, spec: SandboxSpec, workspace: AsyncIterator[bytes] | None = None
    ) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox, its workspace filled from a tar stream when one is given."""

    async def sweep(self) -> int:
        """Remove what an earlier process of this owner left behind; the number of sandboxes removed."""
