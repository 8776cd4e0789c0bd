"""What of a journal a restored workspace agrees with, and who is woken."""

from __future__ import annotations

import asyncio

from swarm.store.journal import Bell, surviving
from swarm.types import Step


def lines(*kinds: str) -> tuple[Step, ...]:
    """Lines of these kinds; one that ends in "!" changed the workspace."""
    return tuple(
        Step(task="t", attempt="a", seq=number, at=0, kind=kind.rstrip("!"), data={"changed": kind.endswith("!")})
        for number, kind in enumerate(kinds, 1)
    )


def kept(*kinds: str) -> list[int]:
    return [line.seq for line in surviving(lines(*kinds))]


def test_a_change_that_was_saved_survives_with_everything_after_it() -> None:
    assert kept("model_call", "edit!", "salvage", "model_call") == [1, 2, 3, 4]


def test_a_change_that_was_not_saved_is_cut_off_with_everything_after_it() -> None:
    assert kept("model_call", "edit!", "salvage", "model_call", "edit!", "model_call", "command") == [1, 2, 3, 4]


def test_a_change_before_any_salvage_is_cut_off() -> None:
    assert kept("model_call", "edit!", "model_call") == [1]


def test_reading_alone_survives_without_a_salvage() -> None:
    assert kept("model_call", "command", "model_call") == [1, 2, 3]


async def test_the_bell_wakes_those_who_listen_to_that_task_and_forgets_them() -> None:
    bell = Bell()
    mine, other = bell.listen("mine"), bell.listen("other")
    bell.ring("mine")
    await asyncio.wait_for(mine.wait(), 1)
    assert not other.is_set()
    bell.leave("mine", mine)
    bell.leave("other", other)
    assert bell._waiting == {}
