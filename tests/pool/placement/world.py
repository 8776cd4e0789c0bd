"""A small world for the tests of placement: a clock that is set, endpoints, and sessions that grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from pool.placement.placer import Placer
from pool.placement.reservation import Reservation
from pool.placement.settings import Settings
from pool.placement.view import Ask, Decision, Prompt, Site
from pool.types import Usage

BLOCK = 16
NUMBERS = count()


def chain(*parts: str | int) -> tuple[int, ...]:
    """Keys of blocks that are named by letters or numbers: equal for equal beginnings, else different."""
    keys: list[int] = []
    key = 1
    for part in parts:
        key = hash((key, part)) % 2**64
        keys.append(key)
    return tuple(keys)


def prompt(session: str, blocks: int, shared: int = 0) -> Prompt:
    """A prompt of so many whole blocks, the first ``shared`` of them the same for every session."""
    parts = [f"shared-{i}" for i in range(shared)] + [f"{session}-{i}" for i in range(blocks - shared)]
    return Prompt(tokens=blocks * BLOCK, chain=chain(*parts), block_tokens=BLOCK)


class World:
    """A placer, its clock and its endpoints, all up and idle unless said otherwise."""

    def __init__(self, *names: str, settings: Settings | None = None, **fields: Any) -> None:
        self.now = 1000.0
        self.placer = Placer(settings, clock=lambda: self.now)
        self.sites = {name: Site(name, "t", "up", **{"room": 64, "block_tokens": BLOCK, **fields}) for name in names}

    def change(self, name: str, **fields: Any) -> None:
        """What the roster knows of an endpoint is different from now on."""
        self.sites[name] = replace(self.sites[name], **fields)

    def ask(self, session: str, blocks: int = 100, shared: int = 0, **fields: Any) -> Ask:
        """A request of a session whose context is so many blocks."""
        told = {"prompt": prompt(session, blocks, shared), "arrived": self.now, "deadline": self.now + 600, **fields}
        return Ask(f"r{next(NUMBERS)}", "t", session, **told)

    def choose(self, ask: Ask, **more: Any) -> Decision:
        """Where it should go."""
        return self.placer.choose(ask, self.listed, **more)

    def take(self, ask: Ask, **more: Any) -> Reservation:
        """Choose and reserve."""
        return self.placer.reserve(ask, self.choose(ask, **more))

    def turn(
        self,
        session: str,
        blocks: int = 100,
        cached: int | str | None = "foreseen",
        ttft: float | None = None,
        **more: Any,
    ) -> Decision:
        """One whole turn, answered as foreseen unless said otherwise. The decision is told."""
        ask = self.ask(session, blocks, **more)
        decision = self.choose(ask)
        place = self.placer.reserve(ask, decision)
        self.now += (decision.expected_ttft or 0.0) if ttft is None else ttft
        place.first_token()
        self.now += 1.0
        told = decision.expected_hit if cached == "foreseen" else cached
        place.finish(Usage(prompt_tokens=ask.prompt.tokens, completion_tokens=40, cached_tokens=told))
        return decision

    @property
    def listed(self) -> Sequence[Site]:
        """The endpoints as they are now."""
        return tuple(self.sites.values())
