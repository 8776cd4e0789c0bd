"""`swarm pool status`: each model server with its life, load, cache and abilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from pool.config import EMBEDDED, EmbeddedConfig
from pool.errors import NoEndpointError
from pool.types import Capability, EndpointStatus
from swarm.cli import door, screen
from swarm.cli.clean import one_line
from swarm.cli.door import ConfigOption, JsonOption
from swarm.cli.pool import live

HEADERS = (
    "endpoint", "tier", "state", "model", "window", "in flight", "run/wait", "KV", "hits", "can", "remark",
)  # fmt: skip
SHORT: dict[Capability, str] = {
    "tools": "tools", "forced_tools": "force", "reasoning": "think", "json_schema": "json", "stream_usage": "usage",
    "cached_tokens": "cache", "priority": "prio", "logprobs": "logp",
}  # fmt: skip
MARK = {"yes": "+", "no": "-", "unknown": "?"}
UNKNOWN = "?"
STARTS_IT = "swarm pool serve or swarm daemon starts it; status finds a gateway by [pool.gateway] socket"


def status(
    ctx: typer.Context,
    direct: Annotated[bool, typer.Option("--direct", help="Look from here, not through a running pool.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="What each can do, on what evidence, and which flag enables the rest."),
    ] = False,
    socket: live.SocketOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show each model server; exit code 8 when a tier that has servers has none alive.

    Asks a running gateway or daemon, and looks from here when none answers. In "can", + is what was seen to work,
    - what was seen not to, ? what was not tried.
    """
    settings = live.running(ctx, config, socket)
    seen = None if direct else door.run(live.from_running(settings, needed=socket is not None))
    whose, found = seen or ("here", door.run(live.from_here(settings.pool, examine=verbose)))
    resting = _resting(settings.pool.embedded, found, whose)
    if json:
        told = {"seen_from": whose, "endpoints": [one.model_dump(mode="json") for one in found]}
        screen.document(told | ({"not_started": [EMBEDDED]} if resting else {}))
    else:
        _print(found, verbose=verbose)
        screen.hint(f"as seen from {whose}")
        if resting:
            screen.hint(f'the embedded model (tier "{resting}") is not started: {STARTS_IT}')
    tiers = settings.pool.tiers if whose == "here" else tuple(one.tier for one in found)
    _judge(tiers, found, started_elsewhere=resting if found else None)


def _print(found: Sequence[EndpointStatus], *, verbose: bool) -> None:
    if found:
        screen.table(HEADERS, [row(one) for one in found])
    else:
        screen.say("no model server is in the pool now")
    if found and verbose:
        screen.say("\n".join(line for one in found for line in abilities(one)))


def row(one: EndpointStatus) -> tuple[str, ...]:
    """One line under HEADERS. What is unknown is a question mark, never a zero."""
    gone = one.state == "down"  # what it last said of its load is no longer so
    running, waiting = (UNKNOWN if count is None or gone else str(count) for count in (one.running, one.waiting))
    return (
        one.name,
        one.tier,
        _state(one),
        one_line(one.model or UNKNOWN, 40),
        UNKNOWN if one.window is None else str(one.window),
        str(one.in_flight),
        f"{running}/{waiting}",
        _share(None if gone else one.kv_usage),
        _share(one.hit_rate),
        " ".join(f"{MARK[one.traits[name].verdict]}{word}" for name, word in SHORT.items() if name in one.traits),
        one_line((one.last_error if one.state != "up" else one.misfit).removeprefix(f"endpoint {one.name}: "), 300),
    )


def abilities(one: EndpointStatus) -> Iterator[str]:
    """What one endpoint can do, and on what evidence, in lines."""
    size = f", KV cache of {one.kv_tokens} tokens" if one.kv_tokens else ""
    size += f" in blocks of {one.block_tokens}" if one.block_tokens else ""
    yield f"\n{one.name}: {one.kind or 'unknown server'} {one.version or ''} at {one.url}{size}".replace("  ", " ")
    adapters = [f"{card.id} (adapter of {card.parent})" if card.parent else card.id for card in one.models]
    if adapters:
        yield f"  models        {one_line(', '.join(adapters), 200)}"
    if one.restarts:
        yield f"  restarts      {one.restarts} seen"
    for name, trait in one.traits.items():
        yield f"  {name:<13} {trait.verdict:<8} {one_line(trait.evidence, 160)}"
        if trait.mend:
            yield f"  {'':<13} {'enable:':<8} {trait.mend}"


def _state(one: EndpointStatus) -> str:
    words: list[str] = [one.state, *([one.phase] if one.phase != one.state else [])]
    words += ["draining"] if one.draining else []
    words += [f"cooling {one.cooling:.0f}s"] if one.cooling >= 1 else []
    return " ".join(words)


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0%}"


def _resting(config: EmbeddedConfig, found: Sequence[EndpointStatus], whose: str) -> str | None:
    """The embedded model's tier, where only a running gateway or daemon would have started it and none answers."""
    there = whose != "here" or any(one.name == EMBEDDED for one in found)
    return config.tier if config.enabled and not there else None


def _judge(tiers: Sequence[str], found: Sequence[EndpointStatus], *, started_elsewhere: str | None) -> None:
    """Raises NoEndpointError for a tier in which nobody lives."""
    alive = {one.tier for one in found if one.state in ("up", "suspect") and one.phase not in ("asleep", "wedged")}
    if dead := set(tiers) - alive - {started_elsewhere}:
        raise NoEndpointError(f"no model server is alive in: {', '.join(sorted(dead))}")
