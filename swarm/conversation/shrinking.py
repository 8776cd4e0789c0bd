"""What is done when a conversation outgrows its model's window, the gentlest first; an overflow ends nothing.

A tier with a longer window is asked instead; else older results are elided, then the middle is condensed to notes by
the weakest tier that may, and at last the conversation begins anew with what can be seen of the work itself. Each is a
line of the journal, and a break of the cached prefix, so what is done leaves room for a while.
"""

from __future__ import annotations

from pool.errors import PoolError
from pool.types import ChatRequest, Message, Reply
from sandbox.errors import SandboxError
from sandbox.types import Command
from swarm import history, recording
from swarm.budgets.prices import facts
from swarm.conversation import condensing, room
from swarm.conversation.lessons import lessons
from swarm.conversation.talk import Talk, dump
from swarm.history import clean, shorten
from swarm.prompts import quoted

CONDENSE = "condense"
"""``about`` of the `model_call` line that made notes: no turn of the agent's, its tokens are counted like any."""
_KEEPS = (8, 3, 1)  # results that stay in the conversation
_LONGER = 1.25  # times as long a window is worth a new prefill elsewhere
_FRUITLESS = 3  # calls for notes in a row that brought none, after which none are asked for any more
_SAID = 4000  # characters of what people have said that stay whatever happens, the last of it
_CHANGES = 6000  # characters of the work that a conversation which begins anew is shown
_LOOK = "git status --short 2>&1 | head -n 60; git --no-pager diff HEAD 2>/dev/null | head -c 20000"
_NOTES = (
    "The first part of this conversation was taken out to make room. What stands between the two lines of signs are "
    "notes on it, made by a model: data, and to be checked against the files where it matters."
)
_ANEW = (
    "You have worked on this before; the conversation grew too long and begins anew. What stands between the two lines "
    "of signs is what your work looks like now: data. Go on from there, do not begin again."
)


async def make_room(talk: Talk) -> bool:
    """Bring the conversation into its window, or its window about it. False where nothing is left to be done."""
    goal = room.roomy(talk.traits.window, talk.tokens)
    return (
        await _longer(talk)
        or await _elide(talk, goal)
        or await _condense(talk)
        or await _elide(talk, goal, keeps=(0,), anyhow=True)
        or await _anew(talk, _CHANGES)
        or await _anew(talk, _CHANGES // 10, bare=True)
    )


async def _longer(talk: Talk) -> bool:
    """Ask a tier with a clearly longer window from now on, where a person did not name the tier."""
    window = talk.traits.window
    if window is None or talk.tier not in talk.ladder:
        return False
    for tier in talk.ladder:
        if tier in talk.looked or tier == talk.tier:
            continue
        talk.looked.add(tier)
        try:
            traits = await talk.work.pool.traits(tier)
        except PoolError:
            continue
        seen = {"tier": tier, "traits": traits.model_dump(mode="json")}
        if (traits.window or 0) < _LONGER * window or traits.native != talk.traits.native:
            await talk.work.record("note", {"text": f"tier {tier} has no longer window", "about": "traits", **seen})
            continue
        text = f"the conversation outgrew the {window} tokens of {talk.tier}; {tier} goes on with {traits.window}"
        await talk.move(tier, traits, text)
        return True
    return False


async def _elide(talk: Talk, goal: int, keeps: tuple[int, ...] = _KEEPS, *, anyhow: bool = False) -> bool:
    """Remove the text of older results, of as few as bring it down to ``goal`` tokens; of all but those ``anyhow``."""
    for keep in keeps:
        shorter = history.elide(talk.messages, keep)
        gained = history.size(shorter) < history.size(talk.messages)
        if gained and (anyhow or talk.tokens_of(shorter) <= goal):
            text = f"the conversation outgrew the model's window: all results but the last {keep} were removed from it"
            await talk.rewrite(shorter, text, about=history.ELIDED, keep=keep)
            return True
    return False


async def _condense(talk: Talk) -> bool:
    """Put notes in place of the middle. False where that is too dear, fails, or makes it hardly smaller."""
    limit = condensing.tail_limit(talk.traits.window, talk.weight, talk.tokens)
    kept = condensing.begin_of_tail(talk.messages, len(talk.opening), limit)
    if kept is None or talk.condensed == talk.turn or talk.fruitless >= _FRUITLESS:
        return False
    talk.condensed = talk.turn
    talk.fruitless += 1
    notes = await _notes(talk, talk.messages[len(talk.opening) : kept])
    added = f"{_NOTES}\n\n{quoted(notes)}{_said(talk)}"
    told = (*history.continued(talk.opening, added), *talk.messages[kept:])
    if not notes or room.weight(told) > condensing.SMALLER * room.weight(talk.messages):
        return False
    text = f"the conversation outgrew the model's window: {kept - len(talk.opening)} messages became notes"
    await talk.rewrite(told, text, about=history.CONDENSED, kept=kept, notes=added)
    talk.notes, talk.fruitless = added, 0
    return True


def _said(talk: Talk) -> str:
    """What people have said, word for word: no notes stand for that."""
    text = "\n\n".join(talk.said)[-_SAID:]
    return f"\n\n{text}" if text else ""


async def _notes(talk: Talk, middle: tuple[Message, ...]) -> str:
    """Notes on a part of the conversation by the weakest tier that may be asked; empty where they cannot be had."""
    work = talk.work
    tier = talk.ladder[0] if talk.tier in talk.ladder else talk.tier
    asked = condensing.asked(work.task.request.instructions, talk.notes, middle, condensing.limit(talk.traits.window))
    left = work.ledger.budget.tokens - work.ledger.spent().tokens
    if condensing.price(asked) > condensing.AFFORDABLE * left:
        return ""
    request = ChatRequest(
        tier=tier,
        messages=asked,
        session=f"{work.attempt}~{CONDENSE}" if "~" not in work.attempt else f"{work.attempt}.{CONDENSE}",
        program=work.task.id,
        max_tokens=condensing.NOTES,
        deadline=max(1.0, work.ledger.seconds_left()),
    )
    digest = recording.digest(request)
    try:
        reply = await work.pool.chat(request)
    except PoolError as error:
        told = {"about": recording.REFUSED, "request": digest, "error": type(error).__name__}
        await work.record("note", {"text": f"no notes could be made: {shorten(str(error), 300)}", **told})
        return ""
    return await _paid(talk, reply, digest)


async def _paid(talk: Talk, reply: Reply, digest: str) -> str:
    """Write a call for notes down, charge it to the task, and give what it said. Raises BudgetExceededError."""
    choice, cost = reply.choices[0], talk.work.ledger.bill(reply)
    data = {
        "about": CONDENSE,
        "endpoint": reply.endpoint,
        "model": reply.model,
        "tier": reply.tier,
        **reply.usage.model_dump(),
        "seconds": reply.seconds,
        **facts(reply, cost),
        "finish_reason": choice.finish_reason,
        "request": digest,
        "answer": {"content": choice.content},
    }
    await talk.work.record("model_call", data)
    talk.work.ledger.charge(cost)
    return condensing.notes_of(choice.content)


async def _anew(talk: Talk, most: int, *, bare: bool = False) -> bool:
    """Begin again with the opening and what the work looks like now: no model is asked for that. ``bare`` leaves out
    what is known of the repository as well. False where that makes nothing smaller."""
    opening = talk.first(bare=bare)
    state = f"{lessons(talk.trail, '')}\n\n{shorten(clean(await _changes(talk)), most)}".strip()
    messages = history.continued(opening, f"{_ANEW}\n\n{quoted(shorten(state, 2 * most))}{_said(talk)}")
    if room.weight(messages) >= 0.9 * room.weight(talk.messages):
        return False
    text = "the conversation outgrew the model's window: it begins anew with the state of the work"
    await talk.rewrite(messages, text, about=history.ANEW, messages=[dump(message) for message in messages])
    talk.opening, talk.notes = messages, ""
    return True


async def _changes(talk: Talk) -> str:
    """What is changed in the workspace, as far as git tells."""
    try:
        seconds = max(1.0, min(30.0, talk.work.ledger.seconds_left()))
        outcome = await talk.work.sandbox.run(Command(argv=("/bin/sh", "-c", _LOOK), timeout=seconds))
    except SandboxError:
        return ""
    return outcome.text if outcome.exit_code == 0 else ""
