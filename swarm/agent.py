"""The agent's loop: ask, act, observe, until finished or out of budget. What must always happen lies outside it."""

from __future__ import annotations

from pool.errors import ContextOverflowError, PoolError
from pool.types import ChatRequest, Message, Reply
from swarm import history, prompts, recording
from swarm.budgets.prices import facts
from swarm.errors import BudgetExceededError
from swarm.speech import turn as speech
from swarm.speech.calls import Broken, Call, Turn
from swarm.speech.form import Form
from swarm.talk import Talk, begin
from swarm.tools.kit import Result, Toolkit
from swarm.tools.specs import Finish
from swarm.types import Conclusion, Ending
from swarm.work import Work

_LATE = 0.5
_IDLE = 3  # nudges in a row before giving up
_NUDGE_AT, _STUCK_AT = 3, 6  # the same call with the same result
_ANSWER, _SHORTEST = 4096, 512  # tokens of one answer
_KEPT: tuple[int | None, ...] = (None, 8, 3, 1, 0)  # results that stay in the conversation, fewer after each overflow


class _GaveUpError(Exception):
    """The model cannot go on; the message says why. Never leaves this file."""


class Agent:
    """The strategy `agent`: one model, the tools, its own judgement."""

    async def work(self, work: Work) -> Conclusion:
        """Let the model work until it finishes, gives up or has spent the budget. Raises PoolError and SandboxError."""
        talk = await begin(work)
        kit = Toolkit(work.sandbox, work.test_command)
        try:
            while True:
                await talk.listen()
                turn = await _ask(work, talk)
                done = await _act(work, talk, kit, turn)
                if done is not None and not await talk.listen():
                    ending: Ending = "finished" if talk.changed else "no_change"
                    return Conclusion(ending=ending, title=done.title, summary=done.summary, model=talk.model)
        except BudgetExceededError as error:
            await work.save()
            return Conclusion(ending="limit_hit", summary=str(error), model=talk.model, limit=error.limit)
        except _GaveUpError as error:
            await work.save()
            return Conclusion(ending="gave_up", summary=str(error), model=talk.model)


async def _ask(work: Work, talk: Talk) -> Turn:
    """One model call, recorded before it is charged, so that nothing paid for is lost. Raises BudgetExceededError."""
    work.ledger.admit()
    reply, asked = await _fitting(work, talk)
    choice, talk.turn, talk.model = reply.choices[0], talk.turn + 1, reply.model
    turn = speech.read(choice, talk.tools, Form(way="native" if talk.native else "text"), number=talk.turn)
    cost = work.ledger.bill(reply)
    data = {
        "endpoint": reply.endpoint,
        "model": reply.model,
        **reply.usage.model_dump(),
        "seconds": reply.seconds,
        **facts(reply, cost, talk.context),
        "finish_reason": choice.finish_reason,
        "reasoning": history.shorten(history.clean(choice.reasoning), 2000),
        "request": asked,
        "answer": recording.answer_of(choice, turn.message),
        **_chosen(reply),
    }
    await talk.append("model_call", turn.message, data)
    talk.context = reply.usage.prompt_tokens + reply.usage.completion_tokens
    work.ledger.charge(cost.model_copy(update={"steps": 1}))
    return turn


def _chosen(reply: Reply) -> dict[str, object]:
    """What the journal keeps of how `auto` or a virtual model came to its answer; nothing for a plain tier."""
    if not reply.why:
        return {}
    report = {"report": reply.report.model_dump(mode="json")} if reply.report else {}
    return {"tier": reply.tier, "why": reply.why, **report}


async def _fitting(work: Work, talk: Talk) -> tuple[Reply, str]:
    """The reply, and its request's digest; after an overflow older results are elided and the answer's room is halved,
    until it fits."""
    overflow, answer = "", _ANSWER
    for keep in _KEPT:
        if keep is not None:
            await talk.elide(keep)
        request = ChatRequest(
            tier=work.tier,
            messages=talk.messages,
            session=work.attempt,
            program=work.task.id,
            tools=talk.tools if talk.native else (),
            max_tokens=answer,
            deadline=_left(work),
        )
        asked = talk.digest(request)
        try:
            return await work.pool.chat(request), asked
        except ContextOverflowError as error:
            told = {"about": recording.OVERFLOW, "request": asked, "window": error.window}
            await work.record("note", {"text": f"{recording.TOO_LONG}{error}", **told})
            overflow, answer = str(error), max(_SHORTEST, min(answer // 2, (error.window or answer) // 2))
        except PoolError:
            _left(work, least=_LATE)  # a call that ran into the end of the task's time is no fault of the pool's
            raise
    raise _GaveUpError(f"the conversation does not fit the model's window any more: {overflow}")


def _left(work: Work, least: float = 0.0) -> float:
    """Seconds left of the task's wall clock. Raises BudgetExceededError where no more than ``least`` are."""
    left = work.ledger.seconds_left()
    if left <= least:
        raise work.ledger.late()
    return left


async def _act(work: Work, talk: Talk, kit: Toolkit, turn: Turn) -> Finish | None:
    """Run the calls of one answer and tell what they gave. Returns the call of finish that was accepted, if any."""
    talk.idle = talk.idle + 1 if all(isinstance(call, Broken) for call in turn.calls) else 0
    if talk.idle > _IDLE:
        raise _GaveUpError(f"{talk.idle} answers in a row held no tool call that could be run")
    if not turn.calls:
        nudge = prompts.NO_CALL_NATIVE if talk.native else prompts.NO_CALL_TEXT
        async with talk.noticing() as (left, kept):
            message = Message(role="user", content="\n\n".join(part for part in (nudge, left) if part))
            await talk.append("note", message, {"text": "a nudge: no tool was called", **kept})
    for call in turn.calls:
        result = await _run(work, talk, kit, call)
        repeats = talk.repeats(call, result) if isinstance(call, Call) else 0
        data = {"tool": call.name, "changed": result.changed, "text": result.text[:500], **result.data}
        async with talk.noticing(due=call is turn.calls[-1]) as (left, kept):
            parts = [result.text, prompts.REPEATED if repeats >= _NUDGE_AT else "", left]
            await talk.answer(result.kind, call.id, "\n\n".join(part for part in parts if part), data | kept)
        if result.changed:
            await work.save()
        if result.finish is not None:
            return result.finish
        if repeats >= _STUCK_AT:
            raise _GaveUpError(f"stuck: the same call of {call.name} gave the same result {repeats} times")
    return None


async def _run(work: Work, talk: Talk, kit: Toolkit, call: Call | Broken) -> Result:
    """One call's result. The first finish over failing tests is turned down; a second one is left to the checks."""
    if isinstance(call, Broken):
        return Result(f"error: {call.reason}", ok=False)
    left = max(1.0, work.ledger.seconds_left())
    work.pool.acting(work.attempt, _doing(call))
    result = await kit.run(call.name, call.arguments, seconds=left)
    if call.name == "run_tests":
        talk.tested = result.ok
        if talk.changed:  # before the first change failing tests say nothing about the model
            work.note(work.attempt, not result.ok)
    elif result.changed:
        talk.changed, talk.tested = True, False
    if result.finish is None or talk.tested or talk.warned or not work.test_command:
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
