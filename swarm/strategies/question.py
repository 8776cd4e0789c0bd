"""One question to a model, outside any conversation: asked once, charged, and answered from the journal ever after."""

from __future__ import annotations

import json
import re
from typing import Any

from pool.errors import PoolError
from pool.types import ChatRequest, Message, Reply
from swarm import history, recording
from swarm.budgets.prices import facts
from swarm.types import Spent
from swarm.work import Work

ASKED = "question"
"""``about`` of the line of such a call."""
_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)
_LATE = 0.5


async def ask(part: Work, system: str, user: str, schema: dict[str, Any], *, answer: int = 1500) -> str:
    """The answer's text. A schema is sent only where the tier is known to keep to one.

    Raises PoolError, and BudgetExceededError where nothing is left, or this went past a limit; it is journaled then.
    """
    structured = await _structured(part)
    request = ChatRequest(
        tier=part.tier,
        messages=(Message(role="system", content=system), Message(role="user", content=user)),
        session=part.attempt,
        program=part.task.id,
        max_tokens=answer,
        json_schema=schema if structured else None,
        deadline=_left(part),
    )
    asked = recording.digest(request)
    if (known := _known(part, asked)) is not None:
        return known
    part.ledger.admit()
    try:
        reply = await part.pool.chat(request)
    except PoolError:
        _left(part, least=_LATE)  # a call that ran into the end of the time is no fault of the pool's
        raise
    finally:
        part.pool.end_session(part.attempt)
    await _record(part, reply, asked)
    return reply.choices[0].content


def read_object(text: str) -> dict[str, Any] | None:
    """The JSON object in an answer, fenced or among words; None where there is none that can be read."""
    fenced = _FENCE.findall(text)
    inner = text[text.find("{") : text.rfind("}") + 1]
    for candidate in (*reversed(fenced), text, inner):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


async def _structured(part: Work) -> bool:
    """Whether the tier keeps to schemas: as the journal says, which a replay goes by, else as the pool has it."""
    told = (line.data for line in part.past if line.data.get("tier") == part.tier and "structured" in line.data)
    known = next(told, None)
    if known is None:
        structured = (await part.pool.traits(part.tier)).structured
        known = {"about": "form", "tier": part.tier, "structured": structured}
        await part.record("note", {"text": f"{part.name}: asks tier {part.tier}", **known})
    return bool(known["structured"])


async def _record(part: Work, reply: Reply, asked: str) -> None:
    choice, cost = reply.choices[0], part.ledger.bill(reply)
    message = Message(role="assistant", content=history.clean(choice.content))
    data = {
        "about": ASKED,
        "endpoint": reply.endpoint,
        "model": reply.model,
        **reply.usage.model_dump(),
        "seconds": reply.seconds,
        **facts(reply, cost),
        "finish_reason": choice.finish_reason,
        "request": asked,
        "answer": recording.answer_of(choice, message),
        "message": message.model_dump(mode="json", exclude_defaults=True),
    }
    await part.record("model_call", data)
    part.ledger.charge(cost.model_copy(update={"steps": 1}) if cost else Spent(steps=1))


def _known(part: Work, asked: str) -> str | None:
    calls = (line.data for line in part.past if line.kind == "model_call" and line.data.get("about") == ASKED)
    data = next((data for data in calls if data.get("request") == asked), None)
    return recording.choice_of(data).content if data else None


def _left(part: Work, least: float = 0.0) -> float:
    left = part.ledger.seconds_left()
    if left <= least:
        raise part.ledger.late()
    return left
