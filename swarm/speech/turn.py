"""Reads one answer of a model: which calls it makes, whatever way they came, and what of it is kept. Pure.

What is kept is well-formed whatever came: a history that a server cannot take back makes every later request fail
(OpenHands/OpenHands#13949, vllm-project/vllm#53269).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pool.types import Choice, ToolSpec
from swarm.history import plain
from swarm.speech import mending, scan, thinking
from swarm.speech.calls import Broken, Call, Said, Turn
from swarm.speech.form import Form
from swarm.speech.found import Found, Heard, in_value
from swarm.speech.judging import judge, too_long
from swarm.speech.keeping import kept, made_up

LONGEST = 200_000
"""Characters of an answer's words, and of its thoughts, that are read; a longer one counts as cut off there."""
TEXT_ID = "text"
"""The id of every call that is spoken as text: its result is a message of the user."""


def read(choice: Choice, specs: Sequence[ToolSpec], form: Form, *, number: int) -> Turn:
    """Read one answer. ``number`` makes call ids unique in a conversation.

    Calls are taken from where the server put them, else from the words, else from the thoughts
    (vllm-project/vllm#22975, #39056, #48645). An answer cut off by the token limit yields no last call: half a file
    must not be written.
    """
    choice = _bounded(choice)
    heard = _heard(choice, specs, form)
    calls, mended = _judged(heard, choice, specs, form, number)
    if not calls:
        return _without(heard, choice, form)
    message = kept(heard, calls, form, mended=bool(mended))
    where = (heard.where,) if heard.where else ()
    return Turn(message, calls, "calls", (*where, *mended), heard.garbled)


def call_id(number: int, index: int) -> str:
    """The id of a call: nine letters and digits, since Mistral's templates take no other."""
    return f"c{number % 100_000:05d}{index % 1000:03d}"


def _bounded(choice: Choice) -> Choice:
    if max(len(choice.content), len(choice.reasoning)) <= LONGEST:
        return choice
    cut = {"content": choice.content[:LONGEST], "reasoning": choice.reasoning[:LONGEST]}
    ended = {"finish_reason": "length"} if len(choice.content) > LONGEST else {}
    return choice.model_copy(update={**cut, **ended})


def _heard(choice: Choice, specs: Sequence[ToolSpec], form: Form) -> Heard:
    inline, words = _split(plain(choice.content), specs, form)
    thought = "\n".join(part for part in (plain(choice.reasoning).strip(), inline) if part)
    if choice.tool_calls or choice.torn:
        asked = tuple(Found(plain(c.name), _native(c.arguments), 0, 0, "native") for c in choice.tool_calls)
        torn = tuple(Found(plain(c.name), plain(c.arguments), 0, 0, "torn") for c in choice.torn)
        return Heard(words, thought, (*asked, *torn))
    garbled = False
    if form.way == "constrained" and words.strip():
        value = mending.whole(words)
        if calls := tuple(in_value(value)) if isinstance(value, dict) else ():
            return Heard(words, thought, (Found(*calls[0], 0, len(words), "constrained"),), words)
        garbled = choice.finish_reason != "length"
    found = _first(scan.meant(_own(scan.scan(words, specs), words), words), specs)
    if found:
        where = "" if not form.native else "a call in the words"
        return Heard(words, thought, found, words, where, garbled)
    if not words.strip() and (meant := scan.meant(scan.scan(thought, specs), thought)):
        found = meant[-1]  # what it came to
        return Heard(words, thought[: found[0].start], found, thought, "a call in the thoughts", garbled)
    return Heard(words, thought, garbled=garbled)


def _split(content: str, specs: Sequence[ToolSpec], form: Form) -> tuple[str, str]:
    """The thoughts that a server left in the words, and the words. A mark of thoughts within a call is no mark."""
    if form.way == "constrained" and mending.whole(content) is not None:
        return "", content
    calls = scan.scan(content, specs) if "</" in content or "[/" in content else ()
    return thinking.split(content, [(one.start, one.end) for one in calls])


def _first(groups: Sequence[tuple[Found, ...]], specs: Sequence[ToolSpec]) -> tuple[Found, ...]:
    """The first calls of which one can be run, else the first: a call that cannot be gave nothing to wait for."""
    good = (group for group in groups if any(isinstance(judge(one, specs)[0], Call) for one in group))
    return next(good, groups[0] if groups else ())


def _own(found: tuple[Found, ...], words: str) -> tuple[Found, ...]:
    """Those before a next turn that the model made up."""
    end = made_up(words)
    if end is None or any(one.start <= end < one.end for one in found):
        return found
    return tuple(one for one in found if one.end <= end)


def _native(arguments: str) -> Any:
    """Arguments as the server gave them: empty ones are none."""
    return plain(arguments) if arguments.strip() else {}


def _judged(
    heard: Heard, choice: Choice, specs: Sequence[ToolSpec], form: Form, number: int
) -> tuple[tuple[Call | Broken, ...], tuple[str, ...]]:
    calls: list[Call | Broken] = []
    mended: dict[str, None] = {}
    for index, found in enumerate(heard.found):
        call, how = judge(found, specs)
        mended |= dict.fromkeys(how)
        if choice.finish_reason == "length" and not choice.torn and found is heard.found[-1]:
            call = too_long(call.name)
        calls.append(replace(call, id=call_id(number, index) if form.native else TEXT_ID))
    return tuple(calls), tuple(mended)


def _without(heard: Heard, choice: Choice, form: Form) -> Turn:
    """An answer without a call."""
    said: Said = "words" if heard.words.strip() else "thought" if heard.thought else "nothing"
    if choice.finish_reason == "length":
        said = "cut"
    return Turn(kept(heard, (), form), (), said, (), heard.garbled)
