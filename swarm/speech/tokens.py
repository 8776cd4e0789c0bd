"""Calls behind special tokens: Mistral, Llama, DeepSeek, Kimi, gpt-oss (harmony), Granite, Phi, Gemma, ReAct. Pure.

A server's own parser takes these; they come here where it has none, the wrong one, or lost its place in a stream.
"""

from __future__ import annotations

import re

from swarm.speech import mending
from swarm.speech.found import CUT, UNREADABLE, Found, in_value, name_in

_BAR, _LOW = "[|\uff5c]", "[_\u2581]"
NAMED: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("harmony", re.compile(
        r"(?:<\|start\|>)?(?:assistant)?(?:<\|channel\|>)?(?:(?:commentary|analysis|final)[ \t]*)?"
        r"to=functions\.([\w.-]{1,64})"
        r"(?:\s*<\|channel\|>\s*\w+)?(?:\s*<\|constrain\|>)?(?:\s*(?:json|code))?(?:\s*<\|message\|>)?\s*")),
    ("deepseek", re.compile(
        rf"(?:<{_BAR}tool{_LOW}calls{_LOW}begin{_BAR}>\s*)?<{_BAR}tool{_LOW}call{_LOW}begin{_BAR}>\s*"
        rf"(?:function\s*<{_BAR}tool{_LOW}sep{_BAR}>\s*)?([\w.-]{{1,64}})(?:\s*<{_BAR}tool{_LOW}sep{_BAR}>)?"
        r"(?:\s*```(?:json)?)?\s*")),
    ("kimi", re.compile(
        r"(?:<\|tool_calls_section_begin\|>\s*)?<\|tool_call_begin\|>\s*(?:functions\.)?([\w.-]{1,64}?)(?::\d+)?\s*"
        r"<\|tool_call_argument_begin\|>\s*")),
    ("mistral", re.compile(r"\[TOOL_CALLS\]\s*([A-Za-z_][\w.-]{0,63})(?:\s*\[CALL_ID\]\w*)?(?:\s*\[ARGS\])?\s*(?=\{)")),
    ("gemma", re.compile(r"(?:<\|tool_call>|<start_function_call>)\s*call:([\w.-]{1,64})\s*(?=\{)")),
    ("react", re.compile(r"^[ \t]*Action:[ \t]*([\w.-]{1,64})[ \t]*\n[ \t\n]*Action Input:\s*(?=\{)", re.MULTILINE)),
)  # fmt: skip
"""A marker that tells the tool's name; its arguments follow as one JSON object."""
LISTED = re.compile(
    r"\[TOOL_CALLS\]\s*(?=[\[{])|<\|python_tag\|>\s*(?=[\[{])|<\|tool_calls?\|>\s*(?=[\[{])|\bfunctools\s*(?=\[)"
    r"|<\|START_ACTION\|>\s*(?=[\[{])|<\|tool_calls_begin\|>\s*(?=[\[{])"
)
"""A marker after which calls follow as JSON that tells their names."""
_TAIL = re.compile(
    rf"(?:\s*```)?(?:\s*(?:<{_BAR}(?![^|\uff5c<>]*(?:begin|python_tag|START)|tool_calls?{_BAR})[^|\uff5c<>]{{1,40}}{_BAR}>"
    r"|</?\|?tool_calls?\|?>|<\|/tool_calls?\|>|<tool_call\|>"
    r"|<end_function_call>|\[/TOOL_CALLS\]|;))*"
)
_SPACE = re.compile(r"\s*")
_BRACE = re.compile(r"\s*\}")
_STRING = re.compile(r"<\|\"\|>(.*?)<\|\"\|>|<escape>(.*?)<escape>", re.DOTALL)


def named(text: str, opened: re.Match[str], shape: str) -> list[Found] | None:
    """The call behind a marker that names it. None where nothing like arguments follows."""
    start, at = opened.span()
    if shape == "gemma":
        return [_gemma(text, opened)]
    if text[at : at + 1] != "{":
        return None if at < len(text) else [Found(opened[1], {}, start, at, shape, problem=CUT, closed=False)]
    read = mending.prefix(text, at)
    if read is None:
        return [_mended(text, opened, shape)]
    tail = _TAIL.match(text, read.end)
    end = tail.end() if tail else read.end
    return [Found(opened[1], read.value, start, end, shape, read.mended, closed=end > read.end)]


def listed(text: str, opened: re.Match[str]) -> list[Found] | None:
    """The calls behind a marker after which JSON follows; more than one where Llama parts them by semicolons."""
    start, at = opened.span()
    found: list[Found] = []
    while text[at : at + 1] in ("{", "[") and (read := mending.prefix(text, at)):
        tail = _TAIL.match(text, read.end)
        end = tail.end() if tail else read.end
        calls = [Found(n, a, start, end, "listed", read.mended, closed=end > read.end) for n, a in in_value(read.value)]
        if not calls:
            break
        found, start = [*found, *calls], end
        at = _SPACE.match(text, end).end()  # type: ignore[union-attr]
    if found:
        return found
    problem = UNREADABLE if text.rstrip().endswith(("}", "]", "|>")) else CUT
    return [Found(name_in(text[at:]), {}, start, len(text), "listed", problem=problem, closed=False)]


def _mended(text: str, opened: re.Match[str], shape: str) -> Found:
    """Arguments that cannot be read as far as they go: perhaps up to the next mark, as a whole."""
    at = opened.end()
    mark = re.compile(rf"\n?```|<{_BAR}").search(text, at)
    read = mending.load(text[at : mark.start()] if mark else text[at:])
    if read is None:
        problem = UNREADABLE if mark else CUT
        return Found(opened[1], {}, opened.start(), len(text), shape, problem=problem, closed=False)
    tail = _TAIL.match(text, mark.start()) if mark else None
    end = tail.end() if tail else len(text)
    return Found(opened[1], read.value, opened.start(), end, shape, read.mended, closed=mark is not None)


def _gemma(text: str, opened: re.Match[str]) -> Found:
    """Gemma's own notation: keys without quotes, strings between marks of their own, in which nothing is escaped."""
    begin, strings = opened.end(), list(_STRING.finditer(text, opened.end()))
    plain, at = "", begin
    for one in strings:
        plain += text[at : one.start()] + _quoted(one[1] if one[1] is not None else one[2])
        at = one.end()
        if _BRACE.match(text, at):
            break
    rest = re.compile(r"[^{}<]*\}").match(text, at)
    if rest is None:
        return Found(opened[1], {}, opened.start(), len(text), "gemma", problem=CUT, closed=False)
    read = mending.load(plain + rest.group())
    tail = _TAIL.match(text, rest.end())
    end = tail.end() if tail else rest.end()
    if read is None:
        return Found(opened[1], {}, opened.start(), end, "gemma", problem=UNREADABLE)
    return Found(opened[1], read.value, opened.start(), end, "gemma")


def _quoted(text: str) -> str:
    return mending.dumps(text)
