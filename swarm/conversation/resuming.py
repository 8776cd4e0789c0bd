"""What a restart cut off: the last answer in the journal is read again, and what of it has no result yet is seen to."""

from __future__ import annotations

from typing import Any

from pool.types import Message
from swarm import history, prompts, recording
from swarm.conversation.acting import OVER, Done, nudged
from swarm.conversation.measures import EDITING
from swarm.conversation.talk import Talk
from swarm.history import CUT_OFF, ENDS
from swarm.speech.calls import Call, Turn
from swarm.speech.form import Form
from swarm.speech.turn import read
from swarm.tools.arguments import Ask, Finish
from swarm.tools.specs import TOOLS
from swarm.work import Work


async def resume(work: Work, talk: Talk) -> Done | None:
    """Bring a conversation that goes on to where a model can be asked. What ends it, where its last answer had finished
    the work and nobody said anything since. A new conversation stays as it is. Raises GaveUpError."""
    past = talk.past
    if past is None:
        return None
    turn = _heard(talk, past) if past.answer else None
    done = _done(work, turn) if turn is not None else None
    if turn is not None:
        await _see_to(talk, turn, past, over=done is not None)
    cut_off = done is None and turn is not None and past.told < len(turn.calls)
    anew = Message(role="user", content=prompts.SHELL_ANEW)
    if not cut_off and talk.messages[-1] != anew and any(step.data.get("tool") == "shell" for step in work.past):
        await talk.append("note", anew, {"text": "the shell begins anew"})
    return done


def _heard(talk: Talk, past: history.Past) -> Turn:
    """The last answer as it was read when it came."""
    form = Form.model_validate(past.heard_in) if past.heard_in else Form(way="native" if past.native else "text")
    choice = recording.choice_of({"finish_reason": "stop", **past.answer})
    return read(choice, talk.tools, form, number=past.answers)


def _done(work: Work, turn: Turn) -> Done | None:
    """How this attempt had ended already, unless a person said something then. The end of another attempt that it goes
    on from is none: somebody wants more."""
    for step in reversed(work.past):
        if step.kind in {"message", "model_call"}:
            break
        if step.data.get(ENDS) and step.attempt == work.attempt:
            call = next((one for one in turn.calls if one.name == step.data.get("tool")), None)
            asked = TOOLS[call.name].model_validate(call.arguments) if isinstance(call, Call) else None
            return _end(asked)
    return None


def _end(asked: object) -> Done | None:
    match asked:
        case Finish():
            return Done(finish=asked)
        case Ask():
            return Done(ask=asked.question)
    return None


async def _see_to(talk: Talk, turn: Turn, past: history.Past, *, over: bool) -> None:
    """Tell what became of the calls that have no result, or that none was made."""
    if not turn.calls and talk.messages[-1].role == "assistant":
        await nudged(talk, turn)
    ids = [call.id for call in Message.model_validate(past.answer["message"]).tool_calls]
    for number, call in enumerate(turn.calls[past.told :], past.told):
        if not over and isinstance(call, Call) and (call.name == "shell" or call.name in EDITING):
            talk.changed, talk.tested = True, False  # whatever was cut off may have changed something
        line: dict[str, Any] = {"tool": call.name, "changed": False, "text": OVER} if over else {"text": CUT_OFF}
        id_ = ids[number] if number < len(ids) else call.id
        await talk.answer("note", id_, OVER if over else prompts.INTERRUPTED, line)
