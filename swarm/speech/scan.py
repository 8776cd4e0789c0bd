"""Finds the calls in a text, in whatever of the known ways they are written. Pure.

Calls that follow one another belong to one answer. Words between two calls part them: what a model writes after its
call and some words, it writes without having seen what the call gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from pool.types import ToolSpec
from swarm.speech import fences, mending, pythonic, tagged, tokens
from swarm.speech.found import Found, in_value
from swarm.tools import names

Reader = Callable[[str, re.Match[str]], list[Found] | None]
_BARE = re.compile(r"[{\[]\s*(?:\{\s*)?[\"']")
_MOST = 300  # marks and objects that turn out to be no call, after which a text is looked at no further
_LONG = 5_000  # characters of a text that may be calls in Python's notation as a whole
_GAP = re.compile(
    r"(?:\s|;|,|`{3,}|</?[\w:-]*(?:tool_calls?|function_calls?|tool_use)>|<[|\uff5c][^|\uff5c<>]{1,40}[|\uff5c]>"
    r"|\[/?TOOL_CALLS\])*"
)


def scan(text: str, specs: Sequence[ToolSpec]) -> tuple[Found, ...]:
    """The calls in a text, in its order; none of them overlap."""
    offered = tuple(spec.name for spec in specs)
    order = _order(tuple((spec.name, _arguments(spec)) for spec in specs))
    found = _marked(text, _readers(offered, order), offered)
    if found:
        return tuple(found)
    whole = text.strip()
    if len(whole) <= _LONG and (told := pythonic.calls(whole, order)):
        return tuple(Found(name, given, 0, len(text), "pythonic", sure=False) for name, given in told)
    shell = names.tool_of("bash", offered)
    return tuple(fences.nameless(text, specs) or (fences.commands(text, shell) if shell else ()))


def groups(found: Sequence[Found], text: str) -> list[tuple[Found, ...]]:
    """The calls, those together that follow one another."""
    together: list[tuple[Found, ...]] = []
    for one in found:
        if together and _next_to(together[-1][-1], one, text):
            together[-1] = (*together[-1], one)
        else:
            together.append((one,))
    return together


def ends_with(found: Sequence[Found], text: str) -> bool:
    """Whether nothing but marks follows the last call."""
    return bool(found) and bool(_GAP.fullmatch(text, found[-1].end))


def _next_to(one: Found, other: Found, text: str) -> bool:
    return one.end >= other.start or bool(_GAP.fullmatch(text, one.end, other.start))


def _marked(text: str, readers: Sequence[tuple[re.Pattern[str], Reader]], offered: Sequence[str]) -> list[Found]:
    """Everything behind a mark, and objects outside of any that name a tool."""
    found: list[Found] = []
    at, idle = 0, 0
    nexts: list[tuple[re.Match[str] | None, Reader]] = [(pattern.search(text), reader) for pattern, reader in readers]
    while idle < _MOST:
        for index, (match, reader) in enumerate(nexts):
            if match is not None and match.start() < at:
                nexts[index] = (match.re.search(text, at), reader)
        candidates = [(match.start(), index) for index, (match, _) in enumerate(nexts) if match is not None]
        if not candidates:
            break
        _, index = min(candidates)
        match, reader = nexts[index]
        assert match is not None  # noqa: S101  for the type checker
        calls = [one for one in reader(text, match) or () if one.sure or names.tool_of(one.name, offered)]
        found += calls
        idle += not calls
        at = max((one.end for one in calls), default=at)
        nexts[index] = (match.re.search(text, max(at, match.start() + 1)), reader)
    return found


@lru_cache(maxsize=64)
def _readers(offered: tuple[str, ...], order: _Order) -> tuple[tuple[re.Pattern[str], Reader], ...]:
    return (
        (fences.OPENED, partial(_fenced, order=order)),
        (tagged.WRAPPED, tagged.wrapped),
        (tagged.FUNCTION, tagged.function),
        (tagged.INVOKE, tagged.function),
        (tagged.named_tags((*offered, *names.ALIASES)), partial(_tag, order=order)),
        *((pattern, partial(_named, shape=shape)) for shape, pattern in tokens.NAMED),
        (tokens.LISTED, tokens.listed),
        (_BARE, _bare),
    )


class _Order(dict[str, tuple[str, ...]]):
    """Tools and their arguments; a key of the cache by what it is."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


@lru_cache(maxsize=64)
def _order(told: tuple[tuple[str, tuple[str, ...]], ...]) -> _Order:
    return _Order(told)


def _arguments(spec: ToolSpec) -> tuple[str, ...]:
    """A tool's arguments as they may be given by position: those that it needs first."""
    needed = tuple(spec.parameters.get("required", ()))
    return (*needed, *(name for name in spec.parameters.get("properties", {}) if name not in needed))


def _fenced(text: str, opened: re.Match[str], order: _Order) -> list[Found] | None:
    return fences.fenced(text, opened, order)


def _tag(text: str, opened: re.Match[str], order: _Order) -> list[Found] | None:
    """A tag that is named as a tool, and holds what that tool takes: HTML has such names as well."""
    found = tagged.named(text, opened) or []
    known = order.get(names.tool_of(opened[1], order) or "", ())
    given = found[0].arguments if found else {}
    return found if all(names.key_of(key, known, given) in known for key in given) else None


def _named(text: str, opened: re.Match[str], shape: str) -> list[Found] | None:
    return tokens.named(text, opened, shape)


def _bare(text: str, opened: re.Match[str]) -> list[Found] | None:
    """An object or a list outside of any mark."""
    read = mending.prefix(text, opened.start())
    if read is None:
        return None
    return [
        Found(name, given, opened.start(), read.end, "bare", read.mended, sure=False)
        for name, given in in_value(read.value)
    ]
