"""Ways of working one after the other, as long as each gives up; none begins in the rubble of the one before it.

What a way that gave up had changed is taken back, unless tests moved for the better or none speaks against it: then the
next one is told. Where the daemon died while it worked, its beginning is gone and nothing is taken back: it is told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from sandbox.base import Sandbox
from sandbox.errors import WorkspaceError
from swarm.budgets.share import spent_in
from swarm.strategies import carry, change
from swarm.strategies.change import Told
from swarm.strategies.parts import concluded, conclusion_of, instructed, of_whole, share_spent, shared_out
from swarm.strategies.trial import UNKNOWN, Verdict, beginning, tests_of, tried
from swarm.types import Conclusion, Frozen
from swarm.work import Strategy, Work

WAY = "way"
"""``about`` of the note that tells what a way that is over left: whether another one follows, and what it is told."""
_FIRST = 0.4  # of what is left, for a way that another one may follow
_DIFF = 12_000  # characters
_AGAIN = """{task}

Another way of working on this was tried before and did not get it done. What it changed is in the repository; it may be
wrong, so judge it yourself. Its change:

{diff}"""


class _Left(Frozen):
    """What a way that is over left. ``why`` another one follows; empty where none does. ``diff`` is what it is told."""

    why: str = ""
    diff: str = ""
    proved: bool = False


async def in_turn(work: Work, names: Sequence[str], strategy: Callable[[str], Strategy]) -> Conclusion:
    """Try strategies one after the other, as long as each gives up. Raises PoolError and SandboxError.

    Several are parts, each with a conversation of its own; each but the last may spend a share of what is left. One
    that finds nothing to do while tests fail has given up as well.
    """
    spent: dict[str, int] = {}
    diffs: list[str] = []
    for number, name in enumerate(names, 1):
        before, last = work.ledger.spent().tokens, number == len(names)
        part = work if len(names) == 1 else shared_out(work, f"way-{number}", 1.0 if last else _FIRST)
        ended, left = await _way(work, _told(part, diffs), name, strategy(name), last=last)
        spent[name] = work.ledger.spent().tokens - before + spent_in(part.past).tokens
        if not left.why:
            break
        diffs += [left.diff] if left.diff else []
    conclusion = ended.model_copy(update={"strategy": name, "tried": spent})
    return of_whole(conclusion, proved=left.proved, changed=bool(diffs))


def _told(part: Work, diffs: Sequence[str]) -> Work:
    """A way's work with what the ones before it left."""
    if not diffs:
        return part
    task = part.task.request.instructions
    return instructed(part, _AGAIN.format(task=task, diff="\n".join(diffs)))


async def _way(work: Work, part: Work, name: str, way: Strategy, *, last: bool) -> tuple[Conclusion, _Left]:
    """How a way ended, and what it left where another one may follow; the only one is no part."""
    if last:
        return await (concluded(part, way) if part.name != work.name else way.work(work)), _Left()
    own = (line.data for line in part.past if line.data.get("part") == part.name)
    known = next((data["left"] for data in own if data.get("about") == WAY), None)
    if known is not None and (ended := conclusion_of(part)) is not None:
        return ended, _Left.model_validate(known)
    async with _beginning(work, part) as first:
        ended = await concluded(part, way)
        why = await _why(work, ended)
        if not why:
            return ended, _Left()
        left, more = await _left(work, part, first, why)
        text = f"{name} {why}: {ended.summary}{more}"
        await part.record("note", {"text": text, "about": WAY, "left": left.model_dump(mode="json")})
        return ended, left


@asynccontextmanager
async def _beginning(work: Work, part: Work) -> AsyncIterator[Sandbox]:
    """The workspace as it is before a way; as it was before all of them where that way began in an earlier life."""
    async with beginning(work) if part.past else work.sandbox.fork() as first:
        yield first


async def _why(work: Work, ended: Conclusion) -> str:
    """Why another way follows one that ended so; empty where none does."""
    if ended.ending == "gave_up":
        return "gave up"
    if share_spent(ended):
        return "spent its share"
    if ended.ending == "no_change":
        run = await tests_of(work, work.sandbox)
        return "found nothing to do, while tests fail" if run is not None and run.exit_code != 0 else ""
    return ""


async def _left(work: Work, part: Work, first: Sandbox, why: str) -> tuple[_Left, str]:
    """What a way that gave up leaves to the next one, and how that came, in words."""
    told = await change.told(first, work.sandbox, limit=_DIFF)
    if not told.paths:
        return _Left(why=why), ""
    verdict = await tried(work, await tests_of(work, first), work.sandbox, first, told.paths)
    if verdict.proved:
        return _Left(proved=True), "; but its change passes tests that had failed"
    better = verdict.passed or (verdict.fixed and not verdict.broken)
    if verdict == UNKNOWN or better or part.past or not await _taken_back(work, first, part.name, verdict, told):
        return _Left(why=why, diff=told.diff), "; what it changed is left to the next one"
    return _Left(why=why), "; what it changed was taken back"


async def _taken_back(work: Work, first: Sandbox, name: str, verdict: Verdict, told: Told) -> bool:
    """Bring the workspace back to what it was at first; whether that was done."""
    try:
        back = await carry.change(first, await carry.index(work.sandbox))
    except WorkspaceError:  # more than a change may hold
        return False
    await carry.apply(work.sandbox, back)
    text = f"{name}: taken back: {verdict.reason}"
    await work.record("edit", {"path": told.paths[0], "text": text, "changed": True})
    await work.save()
    return True
