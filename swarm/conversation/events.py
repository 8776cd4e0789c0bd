"""What an agent did, one thing an event, by the names of what it said and heard. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from swarm.conversation.looking import only_looks
from swarm.types import Frozen

Silence = Literal["", "words", "reasoning", "empty", "broken"]
PASSED = "passed"
_LENGTH = 12
_PLANNING = "task_list"
_CLOCK = r"\d{4}-\d\d-\d\d[T ]?|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?"
_TOOK = r"\d+(?:\.\d+)? ?(?:[mun\u00b5]?s|secs?|seconds?|minutes?)\b"
_NAMES = r"0x[0-9a-fA-F]+|\b(?=[a-f]*\d)[0-9a-f]{7,64}\b|\d{7,}|(?<=/tmp/)[\w.-]+"
_VOLATILE = re.compile(f"{_NAMES}|{_CLOCK}|{_TOOK}")
_NUMBERS = re.compile(rf"{_NAMES}|\d+(?:\.\d+)*")


class Event(Frozen):
    """One thing that an agent did, by the names of what it said and heard.

    ``result`` is what a call gave but for times and addresses, ``words`` the same without any number. ``silence`` says
    why an answer held no call that could be run. ``change`` holds where files were changed, or may have been by a
    command that does more than look; ``planning`` where nothing was touched. ``undo`` names an edit with its effect,
    ``undoes`` the one that it would take back, ``state`` what ``file`` holds from then on. ``tests`` names what a test
    run found failing, `PASSED` where nothing did.
    """

    turn: int
    call: str = ""
    result: str = ""
    words: str = ""
    ok: bool = True
    silence: Silence = ""
    change: bool = False
    planning: bool = False
    undo: str = ""
    undoes: str = ""
    file: str = ""
    state: str = ""
    tests: str = ""

    @property
    def step(self) -> tuple[str, str]:
        """The call with what it gave: equal for one that was made again to no other end."""
        return self.call, self.result


def called(turn: int, name: str, arguments: Mapping[str, Any], text: str, *, ok: bool, change: bool = False) -> Event:
    """The event of a call that was run; ``change`` where it edited a file."""
    event = Event(
        turn=turn,
        call=digest(name, json.dumps(arguments, sort_keys=True, default=str)),
        result=digest(settled(text)),
        words=digest(plain(text)),
        ok=ok,
        change=change or (name == "shell" and not only_looks(str(arguments.get("command", "")))),
        planning=name == _PLANNING,
    )
    before, after = arguments.get("search"), arguments.get("replace")
    if not change or before is None or after is None:
        return event
    path = str(arguments.get("path"))
    there, back = digest(path, str(before), str(after)), digest(path, str(after), str(before))
    return event.model_copy(update={"undo": there, "undoes": back})


def mute(event: Event) -> Event:
    """The event of a call that failed without a word, as a search that finds nothing does: another one that does so
    failed for the same reason only if it is the same call."""
    return event.model_copy(update={"words": event.call})


def left(event: Event, shown: Any) -> Event:
    """The event of an edit with the state of its files, as the tools tell it for the journal."""
    files = [one for one in (shown if isinstance(shown, list) else [shown]) if isinstance(one, Mapping)]
    if not files or not event.change:
        return event
    paths, states = ([str(one.get(key)) for one in files] for key in ("path", "digest"))
    return event.model_copy(update={"file": digest(*paths), "state": digest(*paths, *states)})


def tested(event: Event, failed: Iterable[str], text: str, *, passed: bool) -> Event:
    """The event of a test run: which tests failed by their names, else what was printed."""
    names = sorted(failed)
    return event.model_copy(update={"tests": PASSED if passed else digest(*names) if names else digest(plain(text))})


def silent(turn: int, silence: Silence, text: str = "") -> Event:
    """The event of an answer without a call that could be run, or of one such call."""
    return Event(turn=turn, silence=silence, ok=False, result=digest(plain(text)))


def settled(text: str) -> str:
    """Text without what differs from run to run though nothing moved: times, addresses, names of temporary files. Other
    numbers stay: a count that grows is progress."""
    return _VOLATILE.sub("0", text)


def plain(text: str) -> str:
    """Text without any number."""
    return _NUMBERS.sub("0", text)


def digest(*parts: str) -> str:
    """Names a text in a few letters."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:_LENGTH]
