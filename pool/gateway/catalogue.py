"""What may be asked for by name: tiers, virtual models and real ones, as far as somebody alive serves them; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pool.config import AUTO, PoolConfig
from pool.gateway.replies import Refusal, RefusedError
from pool.types import Card, EndpointStatus

Kind = Literal["tier", "virtual", "model"]
LISTED = 20  # names that a refusal lists
LONGEST = 200  # characters of a name that a refusal repeats
SOON = 1.0  # seconds after which an endpoint that nobody looked at yet is known


@dataclass(frozen=True, slots=True)
class Target:
    """What a request's ``model`` means. ``tier`` is empty for a real model, which any endpoint may serve."""

    kind: Kind
    tier: str = ""
    model: str | None = None


def alive(endpoints: Sequence[EndpointStatus]) -> list[EndpointStatus]:
    """Those that may be asked: neither dead nor leaving. A suspect may only be busy."""
    return [one for one in endpoints if one.state in ("up", "suspect") and not one.draining]


def target(name: str, tiers: Collection[str], virtual: Collection[str], endpoints: Sequence[EndpointStatus]) -> Target:
    """What ``name`` means: a tier goes before a virtual model, and that before a real one of the same name.

    Raises RefusedError for a name that is none: 404, or 503 while some endpoint was not looked at yet.
    """
    if name in tiers:
        return Target("tier", tier=name)
    if name in virtual:
        return Target("virtual", tier=name)
    if any(name in served(one) for one in endpoints):
        return Target("model", model=name)
    if fresh := [one.name for one in endpoints if one.state == "unknown"]:
        words = f"{_quoted(name)} is not known yet: {_listed(fresh)} was not looked at so far"
        raise RefusedError(Refusal(503, words, "no_endpoint", "model", retry_after=SOON))
    raise no_such_model(name, (*tiers, *virtual, *(model for one in alive(endpoints) for model in served(one))))


def no_such_model(name: str, known: Iterable[str]) -> RefusedError:
    """A name that nobody answers to (404), with those that there are."""
    words = f"there is no model {_quoted(name)}; there are: {_listed(known) or 'none that is alive'}"
    return RefusedError(Refusal(404, words, "model_not_found", "model"))


def served(endpoint: EndpointStatus) -> list[str]:
    """Names of the models that an endpoint serves, adapters included."""
    return [card.id for card in _models(endpoint)]


def cards(config: PoolConfig, endpoints: Sequence[EndpointStatus]) -> list[dict[str, Any]]:
    """The list of models. One endpoint that is down takes nothing from it but its own (vllm-project/router#135)."""
    living = alive(endpoints)
    tiers: dict[str, list[EndpointStatus]] = {}
    models: dict[str, list[tuple[EndpointStatus, Card]]] = {}
    for one in living:
        tiers.setdefault(one.tier, []).append(one)
        for model in _models(one):
            models.setdefault(model.id, []).append((one, model))
    found = {
        name: _entry(name, "tier", (one.window for one in group), group) | {"tiers": [name]}
        for name, group in tiers.items()
    }
    for name, rows in models.items():
        windows = (model.window or one.window for one, model in rows)
        entry = _entry(name, "model", windows, [one for one, _ in rows])
        parent = next((model.parent for _, model in rows if model.parent), None)
        found.setdefault(name, entry | {"tiers": sorted({one.tier for one, _ in rows}), "parent": parent})
    for entry in _virtual(config, tiers):
        found[entry["id"]] = entry  # a virtual model goes before a real one of its name
    return list(found.values())


def _virtual(config: PoolConfig, tiers: dict[str, list[EndpointStatus]]) -> Iterator[dict[str, Any]]:
    """The names that the pool answers itself, as far as a tier behind them lives.

    A prompt must fit the widest window behind the name, since a part that overflows leaves the answer to the others,
    and the budget of tokens. All tiers behind it must be able to do what it is said to be.
    """
    for name in config.askable:
        if name in config.tiers:
            continue
        model = config.virtual.get(name)
        behind = (*model.tiers, *filter(None, (model.judge,))) if model else config.auto.tiers or config.ladder
        groups = [tiers[tier] for tier in dict.fromkeys(behind) if tier in tiers]
        if groups:
            windows = [one.window for group in groups for one in group]
            entry = _entry(name, "virtual", windows, *groups)
            if model and entry["max_model_len"]:
                entry["max_model_len"] = min(entry["max_model_len"], model.budget)
            yield entry | {"tiers": list(dict.fromkeys(behind)), "does": model.kind if model else AUTO}


def _entry(name: str, kind: Kind, windows: Iterable[int | None], *groups: Sequence[EndpointStatus]) -> dict[str, Any]:
    """One entry. ``max_model_len`` is the widest window, since a request goes where it fits; None where nobody told.

    ``capabilities`` are those that were seen to work somewhere in each of the groups.
    """
    able = [{trait for one in group for trait, told in one.traits.items() if told.verdict == "yes"} for group in groups]
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "agent-swarm",
        "kind": kind,
        "max_model_len": max((window for window in windows if window is not None), default=None),
        "capabilities": sorted(set.intersection(*able)),
    }


def _models(endpoint: EndpointStatus) -> list[Card]:
    own = [Card(id=endpoint.model, window=endpoint.window)] if endpoint.model else []
    return list({card.id: card for card in (*own, *endpoint.models)}.values())


def _quoted(name: str) -> str:
    return repr(name[:LONGEST])


def _listed(names: Iterable[str]) -> str:
    known = list(dict.fromkeys(names))
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    return ", ".join(name[:LONGEST] for name in known[:LISTED]) + more
