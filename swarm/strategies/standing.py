"""How the workspace stands after a part: looked at once, and kept in the journal.

The next part works in the same place, so that what this one left cannot be seen there any more in a later life.
"""

from __future__ import annotations

from sandbox.base import Sandbox
from swarm.strategies import change
from swarm.strategies.trial import Verdict, tried
from swarm.types import Frozen, TestRun
from swarm.work import Work

STANDING = "standing"
"""``about`` of the note that tells it."""
_DIFF = 12_000  # characters


class Standing(Frozen):
    """What tests say of the workspace, and what it became since the beginning."""

    verdict: Verdict
    diff: str = ""
    changed: bool = False


async def standing(work: Work, part: Work, base: TestRun | None, first: Sandbox) -> Standing:
    """How a part that is over left the workspace of the whole, as the journal has it from an earlier life, else as it
    is now; ``base`` are the tests of the ``first`` one. Raises SandboxError."""
    own = (line.data for line in part.past if line.data.get("part") == part.name)
    known = next((data["left"] for data in own if data.get("about") == STANDING), None)
    if known is not None:
        return Standing.model_validate(known)
    told = await change.told(first, work.sandbox, limit=_DIFF)
    verdict = await tried(work, base, work.sandbox, first, told.paths)
    found = Standing(verdict=verdict, diff=told.diff, changed=bool(told.paths))
    words = "passes the tests" if verdict.passed else verdict.reason or "nothing vouches for it"
    left = found.model_dump(mode="json")
    await part.record("note", {"text": f"{part.name}: {words}", "about": STANDING, "left": left})
    return found
