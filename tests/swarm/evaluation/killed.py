"""The run that a test kills: its own process, so that nothing of it is left to tidy up after itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from swarm.evaluation.results import Folder
from swarm.evaluation.runner import Bounds, Runner
from swarm.evaluation.trying import Means
from tests.swarm.evaluation.conftest import case, means_over, plan_of


async def main(path: Path) -> None:
    """Four cases in two ways, two at a time."""
    cases = {one.id: one for one in (case(str(number)) for number in range(4))}
    made = path.with_name("made")
    await asyncio.to_thread(made.mkdir, exist_ok=True)
    means: Means = means_over(made)
    await Runner(plan_of(cases.values(), "reference", "nothing"), cases, means, Folder(path), Bounds(jobs=2)).run()
