"""Houses whose forge is the pretend one, and updates of their pull requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.gitdir import GitDir
from broker.testing import PretendForge, copy
from broker.wire import Receipt, Refusal


@pytest.fixture
def forged(build_house) -> Callable[..., tuple[Any, PretendForge]]:
    """A house and its pretend forge, which knows the main branch."""

    def make(**more: object) -> tuple[Any, PretendForge]:
        forges: list[PretendForge] = []

        def forge_of(origin: Any) -> PretendForge:
            forge = PretendForge("demo", origin.path.parent / "pretend.git")
            main = origin.git("rev-parse", "main")
            copy(GitDir(origin.path), forge.git, main)
            forge.branches["main"] = main
            forges.append(forge)
            return forge

        house = build_house(forge=forge_of, **more)
        return house, forges[0]

    return make


@pytest.fixture
def updates() -> Callable[..., Receipt | Refusal]:
    """Offers a change on top of a commit of the task's own branch, as the forge has it."""

    def offer(house: Any, forge: PretendForge, changes: dict[str, bytes], on: str, **more: Any) -> Receipt | Refusal:
        house.agent.git("fetch", "-q", str(forge.git.path), on)
        tree = house.agent.tree(on, changes)
        words = {"id": "t1-u", "update": True, "base_commit": on, **more}
        return house.service.proposals.propose(house.proposal(tree, **words), house.agent.pack(tree, on))

    return offer
