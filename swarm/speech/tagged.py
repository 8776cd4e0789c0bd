"""Calls in tags: Hermes' <tool_call>, Qwen-Coder's <function=...>, <invoke>, GLM's <arg_key>, tools as tags. Pure.

The forms are those of the models' own chat templates, and of vLLM's tool parsers of the same names.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from swarm.speech import mending
from swarm.speech.found import CUT, UNREADABLE, Found, in_value, name_in

_NS = r"(?:[\w-]+:|\uff5cDSML\uff5c)?"
WRAPPED = re.compile(rf"<({_NS}(?:tool_calls?|function_calls?|tools?|toolcall|tool_use|action))>", re.IGNORECASE)
FUNCTION = re.compile(r"<function(?:=|\s+name=)[\"']?([\w.:-]{1,64})[\"']?\s*>")
INVOKE = re.compile(rf"<{_NS}invoke\s+name=[\"']([\w.:-]{{1,64}})[\"']\s*>")
_OPEN = re.compile(rf"\s*<{_NS}parameter(?:=|\s+name=)[\"']?([\w.-]{{1,64}})[\"']?(?:\s[^<>]*)?>")
_ENDS = rf"(?:</{_NS}(?:function|invoke|tool_call|function_calls|tool_calls)>)"
_NEXT = rf"(?:<{_NS}parameter(?:=|\s+name=)[\"']?[\w.-]{{1,64}}[\"']?[^<>]*>|{_ENDS})"
_CLOSED = re.compile(rf"</{_NS}parameter>(?=\s*(?:{_NEXT}|<{_NS}(?:tool_call|invoke|function)|\Z))")
_UNCLOSED = re.compile(rf"(?=\n[ \t]*{_NEXT})")
_OPENERS = re.compile(rf"<{_NS}parameter[=\s]")
_CLOSERS = re.compile(rf"</{_NS}parameter>")
_MOST = 40  # parameters of a call, and calls in a wrapper
_ENDED = re.compile(rf"\s*{_ENDS}")
_END = re.compile(rf"\s*(?:</{_NS}(?:function|invoke)>)")
_GLM_NAME = re.compile(r"\s*([\w.-]{1,64})\s*(?=<arg_key>|</tool_call>|\Z)")
_GLM = re.compile(r"\s*<arg_key>\s*([\w.-]{1,64})\s*</arg_key>\s*<arg_value>")
_GLM_OPENER, _GLM_CLOSER = re.compile("<arg_value>"), re.compile("</arg_value>")
_GLM_END = re.compile(r"</arg_value>(?=\s*(?:<arg_key>|</tool_call>|<tool_call>|\Z))")


def wrapped(text: str, opened: re.Match[str]) -> list[Found] | None:
    """What stands in <tool_call> and its kin. None where that is no call."""
    start, at = opened.span()
    if inner := INVOKE.match(text, _skip(text, at)) or FUNCTION.match(text, _skip(text, at)):
        return _several(text, start, inner)
    if glm := _GLM_NAME.match(text, at):
        return [_glm(text, start, glm)]
    closing = re.compile(rf"</{re.escape(opened[1])}>", re.IGNORECASE)
    found = _json(text, start, at, closing)
    return found or (None if opened[1].lower() in ("action", "tools") else [_unreadable(text, start, at, closing)])


def function(text: str, opened: re.Match[str]) -> list[Found]:
    """What follows <function=name> or <invoke name="name">: parameters in tags, or one JSON object."""
    at = _skip(text, opened.end())
    if text[at : at + 1] == "{" and (read := mending.prefix(text, at)):
        end = _END.match(text, read.end)
        shape, until = "function", end.end() if end else read.end
        return [Found(opened[1], read.value, opened.start(), until, shape, read.mended, closed=bool(end))]
    return [_parameters(text, opened)]


def named_tags(tools: Collection[str]) -> re.Pattern[str]:
    """Matches a tag that is named as a tool, as Cline's models write them."""
    return re.compile(rf"<({'|'.join(sorted(map(re.escape, tools)))})>\s*(?=<\w+>|</)")


def named(text: str, opened: re.Match[str]) -> list[Found] | None:
    """<view><path>a.py</path></view>. None where it is not closed or holds something else."""
    end = text.find(f"</{opened[1]}>", opened.end())
    if end < 0:
        return None
    arguments: dict[str, str] = {}
    at = opened.end()
    child = re.compile(r"\s*<(\w{1,64})>(.*?)</\1>(?=\s*(?:<\w+>|\Z))", re.DOTALL)
    body = text[:end]
    while found := child.match(body, at):
        if found[1] in arguments or len(arguments) == _MOST:
            return None
        arguments[found[1]], at = _trimmed(found[2]), found.end()
    if body[at:].strip():
        return None
    opener, closer = (re.compile(f"<{slash}{opened[1]}>") for slash in ("", "/"))
    if _goes_on(text, end + len(opened[1]) + 3, opener, closer):
        return [Found(opened[1], {}, opened.start(), len(text), "tag", problem=UNREADABLE, sure=False, closed=False)]
    return [Found(opened[1], arguments, opened.start(), end + len(opened[1]) + 3, "tag", sure=False)]


def _several(text: str, start: int, inner: re.Match[str]) -> list[Found]:
    """All functions that one wrapper holds; the first one begins with the wrapper."""
    found: list[Found] = []
    begin: re.Match[str] | None = inner
    while begin and len(found) < _MOST:
        (one,) = function(text, begin)
        found.append(one if found else _from(one, start))
        at = _skip(text, one.end)
        begin = INVOKE.match(text, at) or FUNCTION.match(text, at)
    return found


def _parameters(text: str, opened: re.Match[str]) -> Found:
    arguments: dict[str, str] = {}
    at, mended = opened.end(), []
    while begin := _OPEN.match(text, at):
        end = _CLOSED.search(text, begin.end())
        unclosed = _UNCLOSED.search(text, begin.end())
        if end and not (unclosed and unclosed.start() < end.start() and _OPEN.match(text, unclosed.start())):
            value, at = text[begin.end() : end.start()], end.end()
        elif unclosed:
            value, at = text[begin.end() : unclosed.start()], unclosed.start()
            mended.append("a closing tag missing")
        else:
            return Found(opened[1], {}, opened.start(), len(text), "function", problem=CUT, closed=False)
        if begin[1] in arguments or len(arguments) == _MOST:
            return Found(opened[1], {}, opened.start(), len(text), "function", problem=UNREADABLE, closed=False)
        arguments[begin[1]] = _trimmed(value)
    closing = _END.match(text, at)
    after = closing.end() if closing else at
    if closing is None and _skip(text, at) == len(text):
        return Found(opened[1], {}, opened.start(), len(text), "function", problem=CUT, closed=False)
    if (closing is None and not _ENDED.match(text, at)) or _goes_on(text, after, _OPENERS, _CLOSERS):
        return Found(opened[1], {}, opened.start(), len(text), "function", problem=UNREADABLE, closed=False)
    return Found(opened[1], arguments, opened.start(), after, "function", tuple(mended), closed=bool(closing))


def _goes_on(text: str, at: int, opener: re.Pattern[str], closer: re.Pattern[str]) -> bool:
    """Whether more is closed than opened after a call's end: then that end was quoted in what the call holds."""
    closed = len(closer.findall(text, at))
    return closed > 0 and closed > len(opener.findall(text, at))


def _glm(text: str, start: int, name: re.Match[str]) -> Found:
    arguments: dict[str, str] = {}
    at = name.end()
    while begin := _GLM.match(text, at):
        end = _GLM_END.search(text, begin.end())
        if end is None:
            return Found(name[1], {}, start, len(text), "glm", problem=CUT, closed=False)
        if begin[1] in arguments or len(arguments) == _MOST:
            return Found(name[1], {}, start, len(text), "glm", problem=UNREADABLE, closed=False)
        arguments[begin[1]], at = text[begin.end() : end.start()], end.end()
    closing = re.compile(r"\s*</tool_call>").match(text, at)
    if _goes_on(text, at, _GLM_OPENER, _GLM_CLOSER):
        return Found(name[1], {}, start, len(text), "glm", problem=UNREADABLE, closed=False)
    return Found(name[1], arguments, start, closing.end() if closing else at, "glm", closed=bool(closing))


def _json(text: str, start: int, at: int, closing: re.Pattern[str]) -> list[Found] | None:
    """JSON objects one after the other, up to the closing tag."""
    found: list[Found] = []
    begin = _skip(text, at)
    while text[begin : begin + 1] in ("{", "[") and (read := mending.prefix(text, begin)):
        calls = list(in_value(read.value))
        end = closing.match(text, _skip(text, read.end))
        until = end.end() if end else read.end
        found += [
            Found(name, given, begin if found else start, until, "hermes", read.mended, closed=bool(end))
            for name, given in calls
        ]
        if not calls or end:
            break
        begin = _skip(text, read.end)
    if found and (found[-1].closed or not text[_skip(text, found[-1].end) :].startswith('"')):
        return found
    end = closing.search(text, at)
    read = mending.load(text[at : end.start()]) if end else None
    if end is None or read is None:
        return None
    return [Found(name, given, start, end.end(), "hermes", read.mended) for name, given in in_value(read.value)]


def _unreadable(text: str, start: int, at: int, closing: re.Pattern[str]) -> Found:
    end = closing.search(text, at)
    until = end.end() if end else len(text)
    return Found(name_in(text[at:until]), {}, start, until, "hermes", problem=UNREADABLE if end else CUT)


def _from(found: Found, start: int) -> Found:
    return Found(found.name, found.arguments, start, found.end, found.shape, found.mended, found.problem,
                 found.sure, found.closed)  # fmt: skip


def _trimmed(value: str) -> str:
    """Without the one newline that templates put at either end."""
    return value.removeprefix("\n").removesuffix("\n")


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
