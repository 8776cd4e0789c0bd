"""Finds the calls in a text, in whatever of the known ways they are written. Pure.

Calls that follow one another belong to one answer. Words between two calls part them: what a model writes after its
call and some words, it writes without having seen what the call gives.

What is only quoted is no call: nothing is looked for in a longer fence, in a line of code and in an indented block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from pool.types import ToolSpec
from swarm.speech import fences, mending, pythonic, tagged, tokens
from swarm.speech.found import Found, in_value, is_explicit, is_plain
from swarm.tools import names

Reader = Callable[[str, re.Match[str]], list[Found] | int | None]
"""Gives the calls that begin with a match, or the place up to which nothing is one, or None."""
_BARE = re.compile(r"[{\[]\s*(?:\{\s*)?[\"']")
_MOST = 150  # marks and objects that turn out to be no call, after which a text is looked at no further
_LEAD = 200  # characters before an object that are looked at
_LONG = 5_000  # characters of a text that may be calls in Python's notation as a whole
_INLINE = re.compile(r"(?<![`\\])(?P<mark>`{1,2})(?!`)[^\n]{1,2000}?(?<!`)(?P=mark)(?!`)")
_INDENTED = re.compile(r"(?<=\n)(?:(?: {4}| {0,3}\t)(?=[ \t]*\S)[^\n]*(?:\n|\Z))+")
_CALLS = 200  # that are heard of one text at most
_WORD = re.compile(r"[\W_]*[^\W_]{0,20}[\W_]*")
_GAP = re.compile(
    r"(?:[\s;,`]|</?[\w:-]*(?:tool_calls?|function_calls?|tool_use)>|<[|\uff5c][^|\uff5c<>]{1,40}[|\uff5c]>"
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
        return tuple(Found(name, given, 0, len(text), "pythonic", sure=False, marked=False) for name, given in told)
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


def meant(found: Sequence[Found], text: str) -> list[tuple[Found, ...]]:
    """The calls that are meant as such, those together that follow one another.

    Behind a mark they are, wherever it stands. An object, a piece of Python or a block of JSON may be an example, or
    what is not to be done: it counts where the text ends with it, but for one word, or where it is the only one and
    stands apart with the two keys of a call and no other, since small models go on with words after that.
    """
    if marked := [one for one in found if one.marked]:
        return groups(marked, text)
    told = groups(found, text)
    plain = [group for group in told if all(one.plain for one in group)]
    if len(told) == 1 and plain:
        return plain
    if not told or not _WORD.fullmatch(text, _gap(text, told[-1][-1].end)):
        return []
    return plain or told[-1:]


def _gap(text: str, at: int) -> int:
    return _GAP.match(text, at).end()  # type: ignore[union-attr]


def _next_to(one: Found, other: Found, text: str) -> bool:
    return one.end >= other.start or bool(_GAP.fullmatch(text, one.end, other.start))


def _marked(text: str, readers: Sequence[tuple[re.Pattern[str], Reader]], offered: Sequence[str]) -> list[Found]:
    """Everything behind a mark, and objects outside of any that name a tool."""
    found: list[Found] = []
    at, idle = 0, 0
    nexts: list[tuple[re.Match[str] | None, Reader]] = [(pattern.search(text), reader) for pattern, reader in readers]
    while idle < _MOST and len(found) < _CALLS:
        for index, (match, reader) in enumerate(nexts):
            if match is not None and match.start() < at:
                nexts[index] = (match.re.search(text, at), reader)
        candidates = [(match.start(), index) for index, (match, _) in enumerate(nexts) if match is not None]
        if not candidates:
            break
        _, index = min(candidates)
        match, reader = nexts[index]
        assert match is not None  # noqa: S101  for the type checker
        read = reader(text, match)
        if isinstance(read, int):
            at = max(at, read)
            continue
        calls = [one for one in read or () if one.sure or names.tool_of(one.name, offered)]
        found += calls
        idle += not calls
        at = max((one.end for one in calls), default=at)
        nexts[index] = (match.re.search(text, max(at, match.start() + 1)), reader)
    return found


@lru_cache(maxsize=64)
def _readers(offered: tuple[str, ...], order: _Order) -> tuple[tuple[re.Pattern[str], Reader], ...]:
    return (
        (_INLINE, _past),
        (_INDENTED, _past),
        (fences.QUOTING, fences.quoted),
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


def _past(text: str, opened: re.Match[str]) -> int | None:
    """The end of what is only quoted; what a text begins with is not."""
    return opened.end() if text[: opened.start()].strip() else None


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
    """An object or a list outside of any mark, that begins its line or follows a colon."""
    before = text[max(0, opened.start() - _LEAD) : opened.start()].rstrip(" \t*")
    if before and before[-1] not in "\n:;>]|)":
        return None
    read = mending.prefix(text, opened.start())
    if read is None or not (is_explicit(read.value) or not text[: opened.start()].strip()):
        return None
    plain = before[-1:] in ("", "\n") and text[read.end :][:1] in ("", "\n") and is_plain(read.value)
    return [
        Found(name, given, opened.start(), read.end, "bare", read.mended, sure=False, marked=False, plain=plain)
        for name, given in in_value(read.value)
    ]
