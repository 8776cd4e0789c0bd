"""The journal of one task as the hall writes it, shortened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from swarm.types import Step

MakeLine = Callable[..., Step]


@pytest.fixture
def line() -> MakeLine:
    numbers: Iterator[int] = count(1)

    def make(kind: str, at: float, attempt: str | None = None, task: str = "t1", **data: Any) -> Step:
        return Step(task=task, attempt=attempt, seq=next(numbers), at=at, kind=kind, data=data)

    return make


@pytest.fixture
def story(line: MakeLine) -> tuple[Step, ...]:
    """Submitted at 100, claimed at 104, delivered at 130."""
    a = "t1-1-aa"
    moved = {"reason": ""}
    call = {"endpoint": "gpu1", "model": "qwen", "prompt_tokens": 900, "completion_tokens": 50, "cached_tokens": 800}
    return (
        line("state", 100, None, **{"from": None, "to": "queued"}, **moved),
        line("attempt", 104, a, number=1, tier="small", strategy="agent"),
        line("state", 104, None, **{"from": "queued", "to": "running"}, **moved),
        line("phase_started", 105, a, phase="work"),
        line("model_call", 110, a, seconds=4.0, message={"content": "private words"}, **call),
        line("command", 113, a, seconds=2.0, tool="run", exit_code=1),
        line("phase_ended", 120, a, phase="work", seconds=15.0, ok=True),
        line("state", 121, a, **{"from": "running", "to": "delivering"}, **moved),
        line("state", 130, a, **{"from": "delivering", "to": "delivered"}, **moved),
    )
