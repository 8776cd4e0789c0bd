"""What is wrong with one row ends no loop beside the coordinator, and keeps no other row waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.errors import SandboxError
from swarm.apart import apart
from swarm.awaiting import Awaiting
from swarm.daemon import _lasting
from swarm.errors import BrokerUnreachableError, IllegalMoveError, StoreAwayError, StoreError
from swarm.store.rows import Held


@pytest.mark.parametrize(
    "error", [IllegalMoveError("x"), StoreError("x"), SandboxError("x"), OSError("x"), KeyError(1)]
)
def test_what_is_one_rows_own_is_logged_with_its_name(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with apart("row 7"):
        raise error
    assert "row 7" in caplog.text


@pytest.mark.parametrize("error", [BrokerUnreachableError("x"), StoreAwayError("x")])
def test_what_every_row_would_meet_goes_through(error: Exception) -> None:
    with pytest.raises(type(error)), apart("row 7"):
        raise error


class Word:
    kind = "delivered"

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {}


class Others:
    """A store, a broker and a coordinator of which one task moved on by itself."""

    def __init__(self) -> None:
        self.moved: list[str] = []
        self.all = asyncio.Event()

    async def held(self, _since: float, _most: int) -> tuple[Held, ...]:
        return tuple(Held(name, f"{name}-1", f"p-{name}", "waiting", 0.0) for name in ("bad", "good"))

    async def proposal(self, _: str) -> Word:
        return Word()

    async def redeem(self, held: Held, _: dict[str, Any]) -> None:
        if held.task == "bad":
            raise IllegalMoveError("it is cancelled by now")
        self.moved.append(held.task)
        self.all.set()


async def test_a_proposal_whose_task_moved_on_holds_up_no_other() -> None:
    others: Any = Others()
    looking = asyncio.create_task(Awaiting(others, others, others).run())
    async with asyncio.timeout(5):
        await others.all.wait()
    assert (others.moved, looking.done()) == (["good"], False)
    looking.cancel()


async def test_what_broke_beside_the_coordinator_begins_again() -> None:
    lives = []

    async def run() -> None:
        lives.append(1)
        if len(lives) < 3:
            raise KeyError("a fault of ours")

    await _lasting("schedules", run, 0.0)
    assert len(lives) == 3
