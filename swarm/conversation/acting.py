"""The calls of one answer, run in order, and what the model is told of each.

A call that fails does not stop the others, only those that build on it: after an edit that missed, further edits of
that file, commands, test runs and finish would act on files that are not as the model believes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pool.types import Message
from swarm import prompts
from swarm.conversation import events, progress
from swarm.conversation.asking import GaveUpError
from swarm.conversation.events import Event, Silence
from swarm.conversation.measures import EDITING, minded
from swarm.conversation.progress import Stuck
from swarm.conversation.talk import Talk
from swarm.history import ENDS
from swarm.recording import fingerprint
from swarm.speech.calls import Broken, Call, Turn
from swarm.speech.told import nudge
from swarm.tools.kit import Result, Toolkit
from swarm.tools.specs import Finish
from swarm.work import Work

MOST = 24  # calls of one answer that are run
OVER = "not run: the call before it ended the work."
_LOOKING = {"view", "grep", "glob", "repo_map", "task_list", "ask"}
_NOTHING = fingerprint(b"")
_SILENCES: dict[str, Silence] = {"words": "words", "cut": "words", "thought": "reasoning", "nothing": "empty"}


@dataclass(frozen=True)
class Done:
    """Why the work ends with this answer: it is ``finish``ed, or a person is ``ask``ed."""

    finish: Finish | None = None
    ask: str = ""


async def act(work: Work, talk: Talk, kit: Toolkit, turn: Turn) -> Done | None:
    """Run the calls of one answer and tell what they gave; what ends the work, if any does. Raises GaveUpError."""
    if not turn.calls:
        await nudged(talk, turn)
    missed: list[str] = []
    failed = False
    done: Done | None = None
    for number, call in enumerate(turn.calls):
        held = _held_back(call, missed, number, over=done is not None) or _too_soon(call, failed)
        result = held or await _run(work, talk, kit, call, alone=len(turn.calls) == 1)
        failed = failed or not result.ok
        await _tell(work, talk, call, result, due=call is turn.calls[-1], ran=held is None)
        if isinstance(call, Broken) or (not result.ok and call.name in EDITING):
            missed.append(str(call.arguments.get("path", "")) if isinstance(call, Call) else "")
        if result.finish is not None or result.ask:
            done = Done(finish=result.finish, ask=result.ask or "")
    return done


async def nudged(talk: Talk, turn: Turn) -> None:
    """Tell a model that called nothing what is wanted of it. Raises GaveUpError once that was of no use."""
    silence = _SILENCES.get(turn.said, "words")
    event = events.silent(talk.turn, silence, turn.message.content)
    over = progress.stuck(talk.progress.after(event))
    async with talk.noticing() as (left, kept):
        message = Message(
            role="user", content="\n\n".join(part for part in (nudge(turn.said, talk.form), _next(talk), left) if part)
        )
        await talk.append("note", message, {"text": "a nudge: no tool was called", **kept}, event)
    _give_up_if(over)


def _next(talk: Talk) -> str:
    """What a model that called nothing several times could call now; nothing at first."""
    if not progress.idle(talk.progress):
        return ""
    files = [path for path in (*talk.work.task.request.paths, *talk.trail.files) if path]
    if talk.changed:
        return prompts.NEXT.format("run_tests" if talk.work.test_command and not talk.tested else "finish")
    return prompts.NEXT.format(f"view of {files[0]}" if files else "run_tests" if talk.work.test_command else "shell")


def _held_back(call: Call | Broken, missed: list[str], number: int, *, over: bool) -> Result | None:
    """The result of a call that is not run, since it builds on one in the same answer that failed or ended the work."""
    if over:
        return Result(OVER, ok=False)
    if isinstance(call, Broken):
        return None
    if number >= MOST:
        return Result(f"not run: {MOST} calls are the most of one answer. Make it again.", ok=False)
    if not missed or call.name in _LOOKING:
        return None
    path = str(call.arguments.get("path", ""))
    if call.name in EDITING and path and path not in missed and "" not in missed:
        return None
    return Result("not run: a call before it in the same answer failed. Mend that first.", ok=False)


def _too_soon(call: Call | Broken, failed: bool) -> Result | None:  # noqa: FBT001
    """The result of a finish that was written before it was known that a call of the same answer failed."""
    if not failed or call.name != "finish":
        return None
    return Result("not run: a call before it in the same answer failed. See to that, then finish.", ok=False)


async def _tell(work: Work, talk: Talk, call: Call | Broken, result: Result, *, due: bool, ran: bool) -> None:
    """Put a result into the conversation, with a hint where the agent goes in circles. Raises GaveUpError."""
    event = _event(talk, call, result) if ran else None
    stuck = progress.stuck(talk.progress.after(event)) if event else None
    data = {"tool": call.name, "changed": result.changed, "text": result.text[:500], **result.data}
    if result.finish is not None or result.ask:
        data[ENDS] = True
    if stuck is not None and stuck.pattern != "monologue":
        data["stuck"] = {"pattern": stuck.pattern, "count": stuck.count}
        work.note(work.attempt, True)  # noqa: FBT003  whoever chooses the model may take a stronger one
    hint = stuck.text if stuck is not None and stuck.pattern != "monologue" else ""
    async with talk.noticing(due=due) as (left, kept):
        parts = [result.text, hint, left]
        await talk.answer(result.kind, call.id, "\n\n".join(part for part in parts if part), data | kept, event)
    if result.changed:
        await work.save()
    if result.finish is None:
        _give_up_if(stuck)


def _event(talk: Talk, call: Call | Broken, result: Result) -> Event | None:
    if isinstance(call, Broken):
        return events.silent(talk.turn, "broken", _last_words(talk))
    change = result.kind == "edit" and result.ok
    event = events.called(talk.turn, call.name, call.arguments, result.text, ok=result.ok, change=change)
    if change:
        event = events.left(event, result.data.get("shown"))
    if _mute(result):
        event = events.mute(event)
    if call.name != "run_tests":
        return event
    tests = result.data.get("tests", {})
    names = [f"{tests.get('only', '')} {name}" for name in tests.get("failed", ())]
    return events.tested(event, names, result.text, passed=result.ok)


def _mute(result: Result) -> bool:
    """Whether a command failed by its exit code alone, without a word."""
    killed = result.data.get("timed_out") or result.data.get("out_of_memory")
    return not result.ok and not killed and result.data.get("output") == _NOTHING


def _last_words(talk: Talk) -> str:
    """What the model said last, calls included."""
    last = next(message for message in reversed(talk.messages) if message.role == "assistant")
    return "\n".join([last.content, *(f"{call.name} {call.arguments}" for call in last.tool_calls)])


def _give_up_if(stuck: Stuck | None) -> None:
    if stuck is not None and stuck.over:
        raise GaveUpError(f"stuck ({stuck.pattern}): {stuck.text.strip('[]')}")


async def _run(work: Work, talk: Talk, kit: Toolkit, call: Call | Broken, *, alone: bool) -> Result:
    """One call's result. A finish over failing tests is turned down; a second one that is an answer of its own, and so
    knows of the first, is left to the checks."""
    if isinstance(call, Broken):
        return Result(f"error: {call.reason}", ok=False)
    if measures := await minded(talk, call, alone=alone):
        return Result(prompts.MEASURE.format(", ".join(measures)), ok=False)
    left = max(1.0, work.ledger.seconds_left())
    work.pool.acting(work.attempt, _doing(call))
    result = await kit.run(call.name, call.arguments, seconds=left)
    if call.name == "run_tests":
        talk.tested = result.ok
        if talk.changed:  # before the first change failing tests say nothing about the model
            work.note(work.attempt, not result.ok)
    elif result.changed:
        talk.changed, talk.tested = True, False
    if result.finish is None or talk.tested or (talk.warned and alone) or not work.test_command:
        return result
    work.pool.acting(work.attempt, "run_tests")
    tests = await kit.tests(left)
    talk.tested, talk.warned = tests.ok, True
    work.note(work.attempt, not tests.ok)
    if tests.ok:
        return result
    told = f"{prompts.UNTESTED}{tests.text}"
    return Result(told, kind="command", data=tests.data, changed=tests.changed, ok=False)


def _doing(call: Call) -> str:
    """What a call runs, as far as it tells how long that takes: a shell's command by its first word."""
    words = str(call.arguments.get("command", "")).split(maxsplit=1) if call.name == "shell" else []
    return f"shell {words[0][:32]}" if words else call.name
