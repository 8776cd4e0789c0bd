"""What a backend gives to a resident sandbox: one locked box in which a supervisor can be started, and restarted."""

from __future__ import annotations

from typing import Protocol


class Line(Protocol):
    """The one stream between the host and a supervisor."""

    async def receive(self) -> bytes:
        """The next bytes that the supervisor sent, at most 256 KiB; empty at the end. Raises SandboxLostError."""

    async def send(self, data: bytes) -> None:
        """Give bytes to the supervisor, waiting while it does not read. Raises SandboxLostError."""

    async def close(self) -> None:
        """Let go of it."""


class Cell(Protocol):
    """One locked box: limits, namespaces, workspace and home, without a word about what runs in it."""

    @property
    def name(self) -> str:
        """A name that the backend knows it by."""

    async def start(self) -> Line:
        """Start a supervisor inside, as the agent's user. Raises SandboxLostError where the box is gone."""

    async def clear(self) -> None:
        """Kill everything of the agent's, the supervisor included, until nothing is left, however fast it forks.

        The workspace stays. Raises SandboxLostError where something could not be killed; the box is thrown away then.
        """

    def starved(self) -> int | None:
        """How many processes the kernel killed for want of memory; None where only the supervisor can see that."""
