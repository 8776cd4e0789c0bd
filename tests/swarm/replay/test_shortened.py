"""Conversations that outgrew their window, or that a server refused, replay to the same tree by the same requests."""

from __future__ import annotations

from typing import Any

import pytest

from pool.errors import PermanentError
from pool.testing import ScriptedPool
from pool.types import Choice, Traits
from swarm import history
from swarm.conversation.shrinking import CONDENSE
from swarm.replay.verdict import told
from swarm.types import TaskState
from tests.swarm.replay.conftest import MEND, call, finish

pytestmark = pytest.mark.slow

SAID = "I think about it at length, since it is not at all clear. " * 12


class Model:
    """Looks around at length, then mends; makes notes as it is told to, and is refused once."""

    def __init__(self, notes: str, *, refuse: int = -1) -> None:
        self.notes, self.refuse, self.asked = notes, refuse, 0

    def __call__(self, request: Any) -> Any:
        if request.session.endswith(CONDENSE):
            return Choice(content=self.notes)
        if self.asked == self.refuse:
            self.refuse = -1
            return PermanentError("400: cannot parse")
        self.asked += 1
        last = {13: call("shell", command=MEND), 14: finish(), 15: finish()}
        choice: Choice = last.get(self.asked) or call("shell", command=f"echo {'look ' * self.asked}")
        return choice.model_copy(update={"content": SAID})


async def same(bench: Any, name: str, record: Any, replay: Any) -> set[str]:
    async with bench.open():
        await bench.submit(name, strategy="agent")
        await bench.until(name, TaskState.DELIVERED)
        recorded, objects = await record(name)
    verdict = await replay(recorded, objects)
    assert (verdict.same, verdict.first, verdict.lines) == (True, None, verdict.of), "\n".join(told(verdict))
    return {str(step.data.get("about")) for step in recorded.steps}


async def test_notes_in_place_of_a_conversations_middle_replay(bench: Any, name: str, record: Any, replay: Any) -> None:
    bench.pool = ScriptedPool(Model("- clamp.py line 2 is wrong"), traits=Traits(native=True, window=5000))
    assert history.CONDENSED in await same(bench, name, record, replay)


async def test_a_conversation_that_begins_anew_replays(bench: Any, name: str, record: Any, replay: Any) -> None:
    bench.pool = ScriptedPool(Model(""), traits=Traits(native=True, window=5000))
    assert history.ANEW in await same(bench, name, record, replay)


async def test_a_request_that_was_refused_replays(bench: Any, name: str, record: Any, replay: Any) -> None:
    bench.pool = ScriptedPool(Model("", refuse=3), traits=Traits(native=True))
    assert history.QUARANTINED in await same(bench, name, record, replay)
