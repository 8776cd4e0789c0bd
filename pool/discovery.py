"""Asks a server who it is when it joins: version, all its models, how its cache is made, what it publishes."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from pool.endpoint import Endpoint
from pool.errors import PoolError
from pool.types import Card, Served
from pool.wire.capability import Record
from pool.wire.metrics import Snapshot

log = logging.getLogger(__name__)

PATIENCE = 3.0  # seconds for one route: a server that is slow in its small talk joins with less known of it
MOST_CARDS = 256  # models of one server that are remembered


async def discover(endpoint: Endpoint, served: Served, snapshot: Snapshot | None) -> Record:
    """The record of a server that was just seen; a route that it does not have leaves its fact unknown.

    Raises nothing: whatever a server says too late or not at all is unknown.
    """
    record = with_snapshot(Record.of(served), snapshot)
    version, listed, load, events, sleep = await asyncio.gather(
        *(_told(endpoint, path) for path in ("/version", "/v1/models", "/load", "/kv_event_sources", "/is_sleeping"))
    )
    routes = {"load": load, "kv_event_sources": events, "is_sleeping": sleep}
    facts: dict[str, Any] = {
        "cards": read_cards(listed or {}),
        "events": bool(events),
        "routes": frozenset(name for name, told in routes.items() if told is not None),
    }
    if isinstance(told := (version or {}).get("version"), str):
        facts["version"] = told[:64]
    return record.model_copy(update=facts)


def with_snapshot(record: Record, snapshot: Snapshot | None) -> Record:
    """The record with what a scrape tells of the cache and of which metrics there are."""
    if snapshot is None:
        return record
    cache = snapshot.cache
    facts = {
        "block_tokens": cache.block_tokens,
        "kv_tokens": cache.tokens,
        "on_cpu": cache.on_cpu,
        "families": snapshot.families,
        "prefix_caching": cache.prefix_caching,
    }
    return record.model_copy(update={name: value for name, value in facts.items() if value is not None})


def read_cards(body: dict[str, Any]) -> tuple[Card, ...]:
    """All models on a list of models, adapters with their parents; cards that cannot be read are left out."""
    listed = body.get("data")
    found = []
    for card in listed if isinstance(listed, list) else ():
        if not isinstance(card, dict) or "id" not in card:
            continue
        meta, parent, window = card.get("meta"), card.get("parent"), card.get("max_model_len")
        if window is None and isinstance(meta, dict):
            window = meta.get("n_ctx")
        found.append(
            Card(
                id=str(card["id"]),
                parent=parent if isinstance(parent, str) else None,
                window=window if isinstance(window, int) else None,
            )
        )
    return tuple(found[:MOST_CARDS])


async def _told(endpoint: Endpoint, path: str) -> dict[str, Any] | None:
    """A small answer of one of the server's own routes; None where it has no such route or does not answer."""
    try:
        async with asyncio.timeout(PATIENCE):
            raw = await endpoint.get(path)
        body = json.loads(raw.body) if raw.status == 200 else None
    except (PoolError, TimeoutError, ValueError, RecursionError) as error:
        log.debug("endpoint %s: %s: %s", endpoint.name, path, error)
        return None
    return body if isinstance(body, dict) else None
