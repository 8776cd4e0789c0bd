"""The tiers in front of the pool: plain names pass straight through, `auto` and virtual models are answered here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pool.config import AUTO, PoolConfig
from pool.errors import NoEndpointError, PoolConfigError, PoolError
from pool.tiers.auto import Auto, Settled
from pool.tiers.beneath import Beneath, Listener, Request
from pool.tiers.naming import misfits
from pool.tiers.virtual import answer, straight
from pool.types import ChatRequest, CompletionRequest, EndpointStatus, Reply, Traits

T = TypeVar("T")


class Tiers:
    """A pool that also knows the tier `auto` and the configured virtual models. Offers what `Beneath` asks for.

    Raises PoolConfigError for settings that cannot work together.
    """

    def __init__(self, pool: Beneath, config: PoolConfig) -> None:
        if wrong := misfits(config):
            setting, words = wrong[0]
            raise PoolConfigError(f"pool.{setting}: {words}")
        self._pool = pool
        self._config = config
        self._auto = Auto(pool, config)
        self._own = frozenset((*config.virtual, AUTO)) - frozenset(config.tiers)

    async def chat(self, request: ChatRequest) -> Reply:
        """One chat turn. The reply's ``tier`` and ``why`` tell who answered; a virtual model adds its ``report``.

        Raises PoolError: PoolConfigError for a name that is none, else as the tiers behind it do.
        """
        return await (self._answer(request) if request.tier in self._own else self._pool.chat(request))

    async def complete(self, request: CompletionRequest) -> Reply:
        """One raw completion. Raises as `chat` does."""
        return await (self._answer(request) if request.tier in self._own else self._pool.complete(request))

    async def speak(self, request: ChatRequest, listener: Listener) -> Reply:
        """As `chat` for a virtual model, heard while its last part is written. Raises PoolError, also where that part
        breaks off after a word of it was heard."""
        return await answer(self._pool, request.tier, self._config.virtual[request.tier], request, listener)

    def straight(self, request: Request) -> tuple[str, str] | None:
        """The plain tier for a request that is nothing for the virtual model that it names, and why."""
        plain = straight(self._config.virtual[request.tier], request)
        return plain and (plain[0], f"{request.tier}: {plain[1]}")

    async def native_tools(self, tier: str) -> bool:
        """Whether native tool calls may be sent to a tier: to every one that may answer for it, whoever is up.

        Raises PoolConfigError for a name that is none, NoEndpointError where nobody is up.
        """
        return all(await self._each(tier, self._pool.native_tools))

    async def traits(self, tier: str) -> Traits:
        """What all who may answer for a tier have in common, whoever is up. Raises as `native_tools` does."""
        return Traits.common(await self._each(tier, self._pool.traits))

    def is_plain(self, tier: str) -> bool:
        """Whether requests for a tier go to the pool as they are."""
        return tier not in self._own

    def names(self) -> tuple[str, ...]:
        """Every name that a request may put for a tier, the plain ones first."""
        return self._config.askable

    def settle(self, request: Request) -> Settled:
        """Choose for `auto` and let the caller send (a streaming one); `learn` is to follow once it has answered."""
        return self._auto.settle(request)

    def learn(self, settled: Settled, reply: Reply) -> None:
        """Take what the answer to a settled request showed."""
        self._auto.learn(settled, reply)

    def failed(self, settled: Settled, error: PoolError) -> Settled | None:
        """What to send instead after a settled request was refused; None where the error is the caller's."""
        return self._auto.failed(settled, error)

    def note(self, session: str, *, failed_check: bool) -> None:
        """What the orchestrator saw: a check of the session's work failed, or passed."""
        self._auto.book.note(session, failed_check=failed_check)

    def status(self) -> Sequence[EndpointStatus]:
        """Where each endpoint stands."""
        return self._pool.status()

    def estimate(self, request: ChatRequest | CompletionRequest, tier: str) -> float | None:
        """Seconds until a request's first token on a plain tier; None while nobody can tell."""
        return self._pool.estimate(request, tier)

    def acting(self, session: str, tool: str, expected: float | None = None) -> None:
        """A session runs a tool, usually for ``expected`` seconds, and will come back."""
        self._pool.acting(session, tool, expected)

    def end_session(self, session: str) -> None:
        """A session is over."""
        self._auto.book.forget(session)
        for part in ("", "~brief", "~judge") if self._config.virtual else ("",):
            self._pool.end_session(session + part)

    async def _answer(self, request: Request) -> Reply:
        if request.tier == AUTO:
            if not self._auto.ladder:
                raise PoolConfigError("the tier auto has no tier to choose from; add an endpoint to the pool")
            return await self._auto.answer(request)
        return await answer(self._pool, request.tier, self._config.virtual[request.tier], request)

    def _behind(self, name: str) -> tuple[str, ...]:
        if name == AUTO:
            return self._auto.ladder
        model = self._config.virtual[name]
        return tuple(dict.fromkeys((*model.tiers, *((model.judge,) if model.judge else ()))))

    async def _each(self, tier: str, ask: Callable[[str], Awaitable[T]]) -> list[T]:
        """What ``ask`` tells of each plain tier that may answer for this one, but for those of which nobody is up."""
        if tier not in self._own:
            return [await ask(tier)]
        found = await asyncio.gather(*(_where_up(ask, one) for one in self._behind(tier)))
        told = [one for one in found if one is not None]
        if not told:
            raise NoEndpointError(f"no endpoint of any tier behind {tier!r} is up")
        return told


async def _where_up(ask: Callable[[str], Awaitable[T]], tier: str) -> T | None:
    try:
        return await ask(tier)
    except NoEndpointError:
        return None
