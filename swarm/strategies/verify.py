"""Draft and verify: a small tier drafts on the full context, a large one judges a compressed view of the whole change.

The view is the task, the diff, the functions that it is in and the test result: a few thousand tokens of the large
tier's, whatever the draft read and tried. The pool's `draft-verify` tier does the like for one answer
(`pool/tiers/verify.py`), after speculative decoding (Leviathan et al., 2023); this does it for one change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, ValidationError

from sandbox.base import Sandbox
from sandbox.errors import SandboxPathError, WorkspaceError
from sandbox.types import Command
from swarm import history
from swarm.errors import BudgetExceededError
from swarm.strategies import carry, change, tiers
from swarm.strategies.change import Told
from swarm.strategies.parts import concluded, instructed, of_whole, shared_out
from swarm.strategies.question import ask, read_object
from swarm.strategies.trial import Verdict, tests_of, tried
from swarm.tools.editing import edit as editing
from swarm.types import Conclusion, Frozen, TestRun
from swarm.work import Strategy, Work, nothing_said

_FILE = 4_000_000
_SYSTEM = """\
You verify a change that a smaller model drafted. You see the task, the diff, the functions that it is in and the test
result. Decide:
- "accept": it does what the task asks.
- "amend": it is nearly right; give the edits that make it right, each with text that occurs once in the file as it is
  after the draft, and what takes its place.
- "reject": it is the wrong way; say in a few sentences what is wrong and where the right place is.

Answer with one JSON object and nothing else:
{"verdict": "accept", "reason": "...", "edits": [{"file": "path", "search": "text", "replace": "text"}]}"""
_VIEW = """\
The task:

{task}

The draft's diff:

{diff}

The code around it, as it is after the draft:

{pieces}

The tests: {tests}"""
_AGAIN = """{task}

An earlier draft was turned down; it is not in the repository any more. What was said of it:

{reason}"""


class Amendment(Frozen):
    """Text of a file, and what takes its place."""

    file: str = Field(min_length=1, max_length=1000)
    search: str = Field(min_length=1, max_length=20_000)
    replace: str = Field(max_length=20_000)


class Judgement(Frozen):
    """What the verifier says of a draft."""

    verdict: Literal["accept", "amend", "reject"]
    reason: str = Field(default="", max_length=8000)
    edits: tuple[Amendment, ...] = Field(default=(), max_length=12)


_EDIT = {
    "type": "object",
    "properties": {"file": {"type": "string"}, "search": {"type": "string"}, "replace": {"type": "string"}},
    "required": ["file", "search", "replace"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "verdict": {"enum": ["accept", "amend", "reject"]},
        "reason": {"type": "string", "maxLength": 2000},
        "edits": {"type": "array", "maxItems": 8, "items": _EDIT},
    },
    "required": ["verdict", "reason", "edits"],
}


class DraftVerify:
    """``drafter`` drafts on the weakest tier (or ``draft_tier``), the strongest (``tier``) verifies.

    At most ``drafts`` are made, each after the first told why the last one was turned down.

    A draft is made in a fork, so that one which is turned down leaves nothing behind.
    """

    def __init__(
        self, drafter: Strategy, *, drafts: int = 2, tier: str | None = None, draft_tier: str | None = None
    ) -> None:
        self._drafter = drafter
        self._drafts = drafts
        self._tier = tier
        self._draft_tier = draft_tier

    async def work(self, work: Work) -> Conclusion:
        """Draft and verify. Raises PoolError and SandboxError."""
        await tiers.told(work)
        base = await tests_of(work, work.sandbox)
        before = await carry.index(work.sandbox)
        reason = ""
        for number in range(1, self._drafts + 1):
            async with work.sandbox.fork() as fork:
                ended = await self._draft(work, fork, number, reason)
                left = await carry.change(fork, before)
                if not left.work:
                    return of_whole(ended)
                told = await change.told(work.sandbox, fork, paths=left.work, context=10)
                verdict = await tried(work, base, fork, work.sandbox, told.paths)
                judged = await self._verify(work, number, told, verdict)
                if judged.verdict == "amend":
                    await _amend(work, base, fork, (verdict, judged))
                if judged.verdict != "reject" or number == self._drafts:
                    return await _kept(work, await carry.change(fork, before), ended, judged)
            reason = judged.reason or "it does not do what the task asks"
        raise AssertionError("at least one draft is made")

    async def _draft(self, work: Work, fork: Sandbox, number: int, reason: str) -> Conclusion:
        """A draft in a fork. One that was under way when the daemon died begins anew: its fork is gone."""
        left = self._drafts + 1 - number
        tier = self._draft_tier or tiers.weakest(work)
        part = shared_out(work, f"draft-{number}", 0.7 / left if left > 1 else 0.8, tier=tier, sandbox=fork)
        words = work.task.request.instructions
        part = instructed(part, _AGAIN.format(task=words, reason=reason) if reason else words)
        return await concluded(replace(part, past=(), ladder=(), inbox=nothing_said), self._drafter)

    async def _verify(self, work: Work, number: int, told: Told, verdict: Verdict) -> Judgement:
        """The verifier's judgement. Where it says nothing, or there is nothing left to ask it with, the tests judge."""
        part = shared_out(work, f"verify-{number}", 0.5, tier=self._tier or tiers.strongest(work))
        task = work.task.request.instructions
        view = _VIEW.format(task=task, diff=told.diff, pieces=told.pieces(8000), tests=verdict.told())
        try:
            judged = read(await ask(part, _SYSTEM, history.shorten(view, 60_000), SCHEMA))
        except BudgetExceededError as error:
            await work.record("note", {"text": f"nobody verifies any more: {error}"})
            judged = None
        if judged is None:
            judged = Judgement(
                verdict="reject" if verdict.known and not verdict.passed else "accept", reason=verdict.reason
            )
        words = f"{part.name}: {judged.verdict}" + (f": {judged.reason[:300]}" if judged.reason else "")
        await part.record("note", {"text": words, "about": "judgement", "judgement": judged.model_dump(mode="json")})
        return judged


def read(answer: str) -> Judgement | None:
    """The judgement in an answer; None where it holds none. Pure."""
    found = read_object(answer)
    if found is None:
        return None
    known = {key: found[key] for key in Judgement.model_fields if found.get(key) is not None}
    try:
        return Judgement.model_validate(known)
    except ValidationError:
        pass
    try:
        return Judgement.model_validate({key: value for key, value in known.items() if key != "edits"})
    except ValidationError:
        return None


async def _amend(work: Work, base: TestRun | None, fork: Sandbox, found: tuple[Verdict, Judgement]) -> None:
    """Make the verifier's edits to a draft, unless they cannot be made or make the tests worse."""
    verdict, judged = found
    async with fork.fork() as trial:
        for one in judged.edits:
            why = await _edited(trial, one)
            if why:
                await work.record("note", {"text": f"an amendment of {one.file} was left out: {why}"})
        made = await carry.change(trial, await carry.index(fork))
        if not made.work:
            return
        told = await change.told(work.sandbox, trial)
        after = await tried(work, base, trial, work.sandbox, told.paths)
    if verdict.passed and not after.passed:
        await work.record(
            "note", {"text": f"the amendment was left out, since the tests passed before: {after.reason}"}
        )
        return
    await carry.apply(fork, made)


async def _edited(sandbox: Sandbox, one: Amendment) -> str:
    """Why an edit could not be made; empty where it was."""
    try:
        data = await sandbox.read(one.file, limit=_FILE + 1)
        if len(data) > _FILE:
            return "the file is too large"
        edited = editing.replace(data, one.search, one.replace)
        if isinstance(edited, editing.Missed):
            return history.shorten(edited.reason, 300)
        mode = await sandbox.run(Command(argv=("test", "-x", one.file)))
        await sandbox.write(one.file, edited.data, executable=mode.exit_code == 0)
    except SandboxPathError as error:
        return str(error)
    return ""


async def _kept(work: Work, left: carry.Change, ended: Conclusion, judged: Judgement) -> Conclusion:
    """Take a draft over. One that was rejected to the end is kept as well, as what was given up."""
    if not left.work:
        raise WorkspaceError("the draft that was to be kept holds no change any more")
    await carry.apply(work.sandbox, left)
    await work.record("edit", {"path": left.work[0], "text": ", ".join(left.work[:20]), "changed": True})
    await work.save()
    said = f"[verified: {judged.verdict}" + (f": {judged.reason}" if judged.reason else "") + "]"
    if judged.verdict == "reject":
        told = {"ending": "gave_up", "summary": f"the last draft was turned down: {judged.reason}"}
        return of_whole(ended.model_copy(update=told))
    return of_whole(ended.model_copy(update={"summary": f"{ended.summary}\n\n{said}".strip()}), proved=True)
