"""What model calls cost: the price table of the settings, and the bill of one call. Pure."""

from __future__ import annotations

from typing import Protocol

from pydantic import ConfigDict, Field

from pool.types import Report, Usage
from swarm.budgets.sums import total
from swarm.types import Frozen, Spent

MILLION = 1e6


class Price(Frozen):
    """What a model costs. Self-hosted ones cost the time of their GPUs, those of others their tokens."""

    model_config = ConfigDict(allow_inf_nan=False)

    prompt: float = Field(default=0.0, ge=0, description="of a million tokens that it reads")
    cached: float | None = Field(
        default=None, ge=0, description="of a million of these that its cache held; default: as all others"
    )
    completion: float = Field(default=0.0, ge=0, description="of a million tokens that it writes")
    gpu_second: float = Field(default=0.0, ge=0, description="of a second of one GPU")

    def of(self, usage: Usage, gpu_seconds: float) -> float:
        """What a call costs. A cache that a server does not tell of is none."""
        cached = min(usage.cached_tokens or 0, usage.prompt_tokens)
        read = (usage.prompt_tokens - cached) * self.prompt
        read += cached * (self.prompt if self.cached is None else self.cached)
        return (read + usage.completion_tokens * self.completion) / MILLION + gpu_seconds * self.gpu_second


class Prices(Frozen):
    """The price table. Of several prices the endpoint's counts, then the model's, then the tier's; else it is free."""

    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$", description="of all money here, as ISO 4217 writes it")
    endpoints: dict[str, Price] = Field(default_factory=dict, max_length=1000, description="by an endpoint's name")
    models: dict[str, Price] = Field(default_factory=dict, max_length=1000, description="by a model's name")
    tiers: dict[str, Price] = Field(default_factory=dict, max_length=1000, description="by a tier's name")

    def price(self, call: Priced) -> Price:
        """The one that counts for a call."""
        tables = ((self.endpoints, call.endpoint), (self.models, call.model), (self.tiers, call.tier))
        return next((table[name] for table, name in tables if name in table), Price())


class Priced(Protocol):
    """One request to one engine: a `Reply`, a part of a virtual model's, or what a sandbox's program asked."""

    @property
    def tier(self) -> str:
        """The tier that answered."""

    @property
    def endpoint(self) -> str:
        """Where it went."""

    @property
    def model(self) -> str:
        """The model's name there."""

    @property
    def gpu_seconds(self) -> float:
        """Seconds on the engine, times its GPUs."""


class Timed(Protocol):
    """A call with its usage, None where the server did not count, and its seconds, as `pool.types.Reply` has them."""

    @property
    def usage(self) -> Usage | None:
        """Tokens read and written."""

    @property
    def waited(self) -> float:
        """Seconds until it was sent."""

    @property
    def prefill(self) -> float | None:
        """Seconds from then to the first token."""


class Counted(Priced, Timed, Protocol):
    """A whole call."""

    @property
    def report(self) -> Report | None:
        """The parts of a virtual model's answer."""


def bill(prices: Prices, call: Counted, guess: int = 0) -> Spent:
    """What a call cost, without counting it as a step; each part of a virtual model's answer at its own price.

    ``guess`` are tokens that are taken to be spent where the server counted none.
    """
    parts = [part for part in call.report.parts if not part.failed] if call.report else []
    if parts:
        return total(_bill(prices, part, part.usage) for part in parts)
    return _bill(prices, call, call.usage or Usage(prompt_tokens=guess))


def _bill(prices: Prices, call: Priced, usage: Usage) -> Spent:
    return Spent(
        tokens=usage.prompt_tokens + usage.completion_tokens,
        gpu_seconds=call.gpu_seconds,
        money=prices.price(call).of(usage, call.gpu_seconds),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=min(usage.cached_tokens or 0, usage.prompt_tokens),
    )


def facts(call: Timed, cost: Spent, context: int | None = None) -> dict[str, float]:
    """What the journal keeps of a call's time and cost beside its tokens and seconds.

    ``context`` are the tokens that its conversation had before, as far as known: those of them that no cache held were
    computed once more.
    """
    usage = call.usage
    told: dict[str, float] = {"waited": round(call.waited, 4), "gpu_seconds": round(cost.gpu_seconds, 4)}
    told |= {} if call.prefill is None else {"prefill": round(call.prefill, 4)}
    told |= {"money": round(cost.money, 9)} if cost.money else {}
    if context is not None and usage is not None and usage.cached_tokens is not None:
        told["recomputed"] = max(0, min(context, usage.prompt_tokens) - usage.cached_tokens)
    return told
