"""A conversation as it is sent: every call with one result, no result without its call, turns that a template takes.

Pure, and what it makes of a conversation that goes on begins with what it made of it before, so that an endpoint's
cached prefix stays of use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pool.types import Message
from swarm.speech.form import Form

LOST = "[the result of this call is lost: look at the present state before you go on]"
_STRAY = "[the result of a call that is no longer part of this conversation]\n"


def lay(messages: Sequence[Message], form: Form) -> tuple[Message, ...]:
    """The messages of a request.

    Orphaned calls get a result that says it is lost, stray results become words, words of the user in a row are one
    turn. Where a template refuses a user's words after a tool's result they become a part of that.
    """
    laid: list[Message] = []
    for message in paired(messages):
        before = laid[-1] if laid else None
        joins = before is not None and message.role == "user" and (
            before.role == "user" or (form.strict_turns and before.role == "tool")
        )  # fmt: skip
        if joins and before is not None:
            laid[-1] = before.model_copy(update={"content": f"{before.content}\n\n{message.content}".strip()})
        else:
            laid.append(message)
    return tuple(laid)


def paired(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same, each call followed by exactly one result, each result behind its call."""
    return tuple(_paired(messages))


def _paired(messages: Sequence[Message]) -> Iterator[Message]:
    waiting: dict[str, None] = {}
    for message in messages:
        if message.role == "tool":
            id_ = message.tool_call_id or ""
            if id_ in waiting:
                del waiting[id_]
                yield message
            else:
                yield from _lost(waiting)
                waiting = {}
                yield Message(role="user", content=f"{_STRAY}{message.content}")
            continue
        yield from _lost(waiting)
        waiting = dict.fromkeys(call.id for call in message.tool_calls)
        unique = tuple({call.id: call for call in message.tool_calls}.values())
        yield message if len(unique) == len(message.tool_calls) else message.model_copy(update={"tool_calls": unique})
    # calls that nothing answers yet are answered last: a request is only sent once they are
    yield from _lost(waiting)


def _lost(waiting: dict[str, None]) -> Iterator[Message]:
    for id_ in waiting:
        yield Message(role="tool", content=LOST, tool_call_id=id_)
