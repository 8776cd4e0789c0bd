"""One turn of a model: asked until it fits, recorded before it is charged, so that nothing paid for is lost."""

from __future__ import annotations

from pool.errors import (
    CapabilityError,
    ContextOverflowError,
    MisconfiguredError,
    ModelMissingError,
    PermanentError,
    PoolError,
)
from pool.types import ChatRequest, Reply
from swarm import history, recording
from swarm.budgets.prices import facts
from swarm.conversation import progress, room
from swarm.conversation.shrinking import make_room
from swarm.conversation.talk import Talk, dump
from swarm.speech.calls import Turn
from swarm.speech.layout import lay
from swarm.speech.quarantine import quarantine
from swarm.speech.turn import read
from swarm.work import Work

_LATE = 0.5
_USUAL, _HOTTER, _HOTTEST = 0.2, 0.25, 1.0  # temperature, and what is added after each answer without a call
_TRIES = 14  # of one turn: every remedy there is, and a few refusals
_CURES = 2  # of a conversation that a server refuses, for each answer
_NOT_FOR_ITS_WORDS = (CapabilityError, MisconfiguredError, ModelMissingError)


class GaveUpError(Exception):
    """The model cannot go on; the message says why. Never leaves the agent's loop."""


async def ask(work: Work, talk: Talk) -> Turn:
    """One model call. Raises BudgetExceededError, GaveUpError and PoolError."""
    work.ledger.admit()
    reply, asked = await _fitting(work, talk)
    weight = talk.weight
    choice, talk.turn, talk.model = reply.choices[0], talk.turn + 1, reply.model
    turn = read(choice, talk.tools, talk.form, number=talk.turn)
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
        "weight": weight,
        "answer": recording.answer_of(choice, turn.message),
        **({"mended": list(turn.mended)} if turn.mended else {}),
        **_chosen(reply, talk.tier if talk.tier != work.tier else ""),
    }
    await talk.append("model_call", turn.message, data)
    talk.counted(data)
    talk.refused = 0
    if turn.garbled:
        await talk.loosen("the server does not keep to the schema: the model is held to none from now on")
    work.ledger.charge(cost.model_copy(update={"steps": 1}))
    return turn


def _chosen(reply: Reply, tier: str) -> dict[str, object]:
    """What the journal keeps of how `auto` or a virtual model came to its answer, or that another ``tier`` than the
    attempt's gave it; nothing for a plain one."""
    if not reply.why:
        return {"tier": tier} if tier else {}
    report = {"report": reply.report.model_dump(mode="json")} if reply.report else {}
    return {"tier": reply.tier, "why": reply.why, **report}


async def _fitting(work: Work, talk: Talk) -> tuple[Reply, str]:
    """The reply, and its request's digest. What does not fit is made to, see `shrinking`; what a server refuses for its
    words is asked once more without the last answer's."""
    most, why = room.ANSWER, "its opening alone is too long"
    for _ in range(_TRIES):
        if not room.fits(talk.traits.window, talk.tokens):
            if not await make_room(talk):
                break
            continue
        request = _request(work, talk, most)
        asked = recording.digest(request)
        try:
            return await work.pool.chat(request), asked
        except ContextOverflowError as error:
            why = str(error)
            await talk.overflown(asked, error)
            most = max(room.SHORTEST, min(most // 2, (error.window or most) // 2))
            less = talk.traits.window is not None and _request(work, talk, most).max_tokens < request.max_tokens
            fits = less and room.fits(talk.traits.window, talk.tokens)
            if not fits and not await make_room(talk) and request.max_tokens <= room.SHORTEST:
                break
        except PermanentError as error:
            if not await _eased(talk, asked, error):
                raise
        except PoolError:
            _left(work, least=_LATE)  # a call that ran into the end of the task's time is no fault of the pool's
            raise
    raise GaveUpError(f"the conversation does not fit the model's window any more: {why}")


def _request(work: Work, talk: Talk, most: int) -> ChatRequest:
    idle = progress.idle(talk.progress)
    fields = talk.form.fields(talk.tools, demanded=idle > 0 and talk.traits.forced and talk.native)
    if work.temperature is not None:
        fields["temperature"] = work.temperature
    if idle:  # the same question, asked in the same way, is answered in the same way
        fields["temperature"] = min(_HOTTEST, float(fields.get("temperature", _USUAL)) + idle * _HOTTER)
    return ChatRequest(
        tier=talk.tier,
        messages=lay(talk.messages, talk.form),
        session=work.attempt,
        program=work.task.id,
        max_tokens=room.answer(talk.traits.window, talk.tokens, most),
        deadline=_left(work),
        **fields,
    )


async def _eased(talk: Talk, asked: str, error: PermanentError) -> bool:
    """Ask for less of a server that refuses: no schema where it is held to one, else none of the odd words of earlier
    answers, then nothing of the last one. A turn that a server refuses once would spoil all that follow. False where
    nothing is left to be tried."""
    if talk.form.way == "constrained":
        await _told(talk, asked, error)
        await talk.loosen("the server refused the schema: the model is held to none from now on")
        return True
    cured = quarantine(talk.messages)
    if isinstance(error, _NOT_FOR_ITS_WORDS) or cured is None or talk.refused >= _CURES:
        return False
    talk.refused += 1
    await _told(talk, asked, error)
    changed = [[n, dump(new)] for n, (new, old) in enumerate(zip(cured, talk.messages, strict=True)) if new != old]
    text = "the server refused the conversation: what it may not have liked is left out of it"
    await talk.rewrite(cured, text, about=history.QUARANTINED, changed=changed)
    return True


async def _told(talk: Talk, asked: str, error: PermanentError) -> None:
    told = {"about": recording.REFUSED, "request": asked, "error": type(error).__name__}
    await talk.work.record("note", {"text": str(error), **told})


def _left(work: Work, least: float = 0.0) -> float:
    """Seconds left of the task's wall clock. Raises BudgetExceededError where no more than ``least`` are."""
    left = work.ledger.seconds_left()
    if left <= least:
        raise work.ledger.late()
    return left
