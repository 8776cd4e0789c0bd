"""What may be asked for by name: tiers, virtual models and real ones, as far as somebody alive serves them; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pool.types import EndpointStatus


@dataclass(frozen=True, slots=True)
class Target:
    """What a request's ``model`` means. ``tier`` is empty for a real model, which any endpoint may serve."""

    kind: Literal["tier", "virtual", "model"]
    tier: str = ""
    model: str | None = None


def alive(endpoints: Sequence[EndpointStatus]) -> list[EndpointStatus]:
    """Those that may be asked: neither dead nor leaving. A suspect may only be busy."""
    return [one for one in endpoints if one.state in ("up", "suspect") and not one.draining]


def target(name: str, tiers: Collection[str], virtual: Collection[str], endpoints: Sequence[EndpointStatus]) -> Target:
    """What ``name`` means; a name that nobody knows is taken for a tier, which the pool then refuses in its own words.

    A tier goes before a virtual model, and that before a real one of the same name.
    """
    if name in tiers:
        return Target("tier", tier=name)
    if name in virtual:
        return Target("virtual", tier=name)
    if any(name in served(one) for one in endpoints):
        return Target("model", model=name)
    return Target("tier", tier=name)


def served(endpoint: EndpointStatus) -> list[str]:
    """Names of the models that an endpoint serves, adapters included."""
    names = [endpoint.model] if endpoint.model else []
    return list(dict.fromkeys(names + [card.id for card in endpoint.models]))


def cards(virtual: Collection[str], endpoints: Sequence[EndpointStatus]) -> list[dict[str, Any]]:
    """The list of models. One endpoint that is down takes nothing from it but its own (vllm-project/router#135)."""
    living = alive(endpoints)
    windows: dict[str, list[int | None]] = {}
    for one in living:
        for name in (one.tier, *served(one)):
            windows.setdefault(name, []).append(one.window)
    for name in virtual if living else ():
        windows.setdefault(name, [])
    tiers = {one.tier for one in living}
    return [
        card(name, "tier" if name in tiers else "virtual" if name in virtual else "model", found)
        for name, found in windows.items()
    ]


def card(name: str, kind: str, windows: Sequence[int | None]) -> dict[str, Any]:
    """One entry. ``max_model_len`` is the widest window, since a request goes where it fits; None where nobody told."""
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "agent-swarm",
        "kind": kind,
        "max_model_len": max((window for window in windows if window is not None), default=None),
    }
