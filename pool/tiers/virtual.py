"""Virtual models by name: which kind answers which request, and what goes straight to a plain tier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from pool.config import VirtualConfig
from pool.tiers.beneath import Beneath, Listener, Request, ask
from pool.tiers.confidence import cascade
from pool.tiers.fuse import fuse
from pool.tiers.naming import judge_of
from pool.tiers.run import Run
from pool.tiers.verify import draft_and_verify
from pool.tiers.vote import vote
from pool.types import ChatRequest, Reply

KINDS: Mapping[str, Callable[[Run], Awaitable[Reply]]] = {
    "confidence": cascade,
    "vote": vote,
    "fuse": fuse,
    "draft-verify": draft_and_verify,
}
RAW = {"confidence", "vote"}  # kinds that a raw completion can be asked of


async def answer(
    pool: Beneath, name: str, model: VirtualConfig, request: Request, listener: Listener | None = None
) -> Reply:
    """The virtual model's answer, whose last part a listener hears. Raises PoolError where no part gives one."""
    if plain := straight(model, request):
        tier, why = plain
        reply = await ask(pool, request.model_copy(update={"tier": tier}))
        return reply.model_copy(update={"tier": tier, "why": f"{name}: {why}"})
    return await KINDS[model.kind](Run(pool, name, model, request, listener=listener))


def straight(model: VirtualConfig, request: Request) -> tuple[str, str] | None:
    """The plain tier for a request that is nothing for this kind, and why; None for all others."""
    main = judge_of(model) if model.kind in {"fuse", "draft-verify"} else model.tiers[0]
    if request.n > 1:
        return main, f"{request.n} samples are wanted, so {main} gives them as they are"
    if model.kind not in RAW and not isinstance(request, ChatRequest):
        return main, f"a raw completion has no conversation for {model.kind}, so {main} answers"
    return None
