"""What the tiers need of the pool beneath them: protocols only, no behaviour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pool.types import ChatRequest, CompletionRequest, EndpointStatus, Reply, Traits, Usage

Request = ChatRequest | CompletionRequest
Quietly = Callable[[ChatRequest], Awaitable[Reply]]


class Beneath(Protocol):
    """The part of `pool.router.Pool` that is stood upon. Every tier that it is asked for is a plain one."""

    async def chat(self, request: ChatRequest) -> Reply:
        """One chat turn. Raises PoolError."""

    async def complete(self, request: CompletionRequest) -> Reply:
        """One raw completion. Raises PoolError."""

    async def native_tools(self, tier: str) -> bool:
        """Whether the tier's endpoints speak native tool calls. Raises PoolError."""

    async def traits(self, tier: str) -> Traits:
        """What the tier's endpoints have in common. Raises PoolError."""

    def status(self) -> Sequence[EndpointStatus]:
        """Where each endpoint stands."""

    def estimate(self, request: ChatRequest | CompletionRequest, tier: str) -> float | None:
        """Seconds until a request's first token, were it sent to ``tier`` now; None while nobody can tell."""

    def acting(self, session: str, tool: str, expected: float | None = None) -> None:
        """A session runs a tool, usually for ``expected`` seconds, and will come back."""

    def end_session(self, session: str) -> None:
        """A session is over: whatever is kept for it may go."""


class Listener(Protocol):
    """Somebody who hears a virtual model's answer while it is written, and is told what the way to it cost."""

    @property
    def heard(self) -> bool:
        """Whether a word of an answer was heard, which then stands whatever comes."""

    async def hear(self, request: ChatRequest, quietly: Quietly) -> Reply:
        """Have a plain tier answer and hear it as it comes, or have it answered ``quietly``. Raises PoolError."""

    def paid(self, usage: Usage) -> None:
        """A part is over and cost so much."""


async def ask(pool: Beneath, request: Request) -> Reply:
    """The request, by whichever door is its own. Raises PoolError."""
    if isinstance(request, ChatRequest):
        return await pool.chat(request)
    return await pool.complete(request)
