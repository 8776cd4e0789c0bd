"""Calls in fenced blocks: ```tool, ```json, ```tool_code, and commands of a shell. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pool.types import ToolSpec
from swarm.speech import mending, pythonic
from swarm.speech.found import CUT, UNREADABLE, Found, in_value, is_explicit, is_plain, name_in

_FENCE = r"(?P<mark>(?<!`)`{3,99}(?!`)|(?<!~)~{3,99}(?!~))[ \t]{0,9}(?P<tag>[\w+-]{0,40})"
OPENED = re.compile(_FENCE + r"[ \t]{0,9}(?:\n|(?=[{\[<]))")
QUOTING = re.compile(rf"^ {{0,3}}{_FENCE}[^`\n]*$", re.MULTILINE)
"""The first line of a block that may quote others: see `quoted`."""
_SURE = frozenset({"tool", "tool_call", "tool_calls", "tool_use", "toolcall", "function_call"})
_PYTHON = frozenset({"tool_code", "python", "py", "tool_call", "tool", ""})
_OBJECTS = frozenset({"json", "jsonc", "json5", ""})
_DOCUMENTS = frozenset({"markdown", "md", "mdx", "text", "txt", "rst", "plaintext"})
_SHELLS = frozenset({"bash", "sh", "shell", "console", "zsh", "shell-session"})
_TAGS = re.compile(r"<(?:[\w-]+:)?(?:function|invoke|tool_call)\b|<\|")
Order = Mapping[str, Sequence[str]]


def quoted(text: str, opened: re.Match[str]) -> int | None:
    """Where a block ends that quotes what stands in it, blocks as well: a longer fence, or one of a document.

    None for one that does not quote: ended as CommonMark has it, at a fence of its own kind and at least its length.
    """
    mark, tag = opened["mark"], opened["tag"].lower()
    document = tag in _DOCUMENTS or (mark[0] == "~" and tag not in _OBJECTS | _PYTHON)
    if tag in _SURE or (len(mark) == 3 and not document):
        return None
    closing = re.compile(rf"^ {{0,3}}{mark}{mark[0]}*[ \t]*$", re.MULTILINE).search(text, opened.end())
    return closing.end() if closing else len(text)


def fenced(text: str, opened: re.Match[str], order: Order) -> list[Found] | None:
    """The calls of one block. None for a block that is not meant as calls, such as a snippet of code."""
    tag, at = opened["tag"].lower(), opened.end()
    if tag in _SHELLS:
        return None
    found = _objects(text, opened, sure=tag in _SURE)
    if found:
        return found
    body, end = _body(text, opened)
    if tag in _PYTHON and (told := pythonic.calls(body, order)):
        marked = tag in _SURE or tag == "tool_code"
        return [Found(n, given, opened.start(), end, "pythonic", sure=False, marked=marked) for n, given in told]
    if tag not in _SURE or _TAGS.search(body):
        return None
    closed = end > at + len(body)
    if closed and (read := mending.load(body)) and (calls := list(in_value(read.value))):
        return [Found(name, given, opened.start(), end, "fenced", read.mended) for name, given in calls]
    problem = UNREADABLE if closed else CUT
    return [Found(name_in(body), {}, opened.start(), end, "fenced", problem=problem, closed=closed)]


def commands(text: str, tool: str) -> list[Found]:
    """The one block of a shell's commands that a text ends with, as a call of ``tool``; none where there are more."""
    blocks = [one for one in _unquoted(text) if one["tag"].lower() in _SHELLS]
    if len(blocks) != 1:
        return []
    body, end = _body(text, blocks[0])
    if end == blocks[0].end() + len(body) or text[end:].strip() or not body.strip():
        return []
    lines = [re.sub(r"^\s*\$ ", "", line) for line in body.strip("\n").split("\n")]
    return [Found(tool, {"command": "\n".join(lines)}, blocks[0].start(), end, "shell", ("a block of commands",),
                  marked=False)]  # fmt: skip


def nameless(text: str, specs: Sequence[ToolSpec]) -> list[Found]:
    """The block that a text ends with, where it holds the arguments of exactly one tool and lacks but its name."""
    blocks = [one for one in _unquoted(text) if one["tag"].lower() in ("json", "tool", "")]
    if not blocks:
        return []
    body, end = _body(text, blocks[-1])
    read = mending.load(body) if end > blocks[-1].end() + len(body) and not text[end:].strip() else None
    given = read.value if read else None
    if read is None or not isinstance(given, dict) or (len(given) < 2 and text[: blocks[-1].start()].strip()):
        return []
    fitting = [spec.name for spec in specs if _takes(spec, set(given))]
    if len(fitting) != 1:
        return []
    mended = (*read.mended, "a call without its name")
    return [Found(fitting[0], given, blocks[-1].start(), end, "fenced", mended, marked=False)]


def _unquoted(text: str) -> list[re.Match[str]]:
    """The first lines of all blocks that stand in no other and are not indented."""
    found: list[re.Match[str]] = []
    until = 0
    for opened in OPENED.finditer(text):
        before = text[text.rfind("\n", 0, opened.start()) + 1 : opened.start()]
        if opened.start() < until or (not before.strip() and len(before.expandtabs(4)) > 3):
            continue
        until = quoted(text, opened) or until
        found += [opened] if opened.start() >= until else []
    return found


def _takes(spec: ToolSpec, given: set[str]) -> bool:
    """Whether a tool that needs arguments could be called with these."""
    needed = set(spec.parameters.get("required", ()))
    return bool(needed) and needed <= given <= set(spec.parameters.get("properties", {}))


def _objects(text: str, opened: re.Match[str], *, sure: bool) -> list[Found]:
    """JSON objects one after the other; a fence inside of a string ends nothing."""
    found: list[Found] = []
    begin = _skip(text, opened.end())
    while text[begin : begin + 1] in ("{", "[") and (read := mending.prefix(text, begin)):
        calls = list(in_value(read.value))
        after = _skip(text, read.end)
        closed = text.startswith(opened["mark"], after)
        until = _past(text, after, opened["mark"][0]) if closed else read.end
        one = Found("", {}, begin if found else opened.start(), until, "fenced", read.mended, closed=closed,
                    sure=sure or is_explicit(read.value), marked=sure, plain=is_plain(read.value))  # fmt: skip
        if not one.sure and text[: opened.start()].strip():
            return []  # it only looks like a call, as the example of a configuration may
        found += [replace(one, name=name, arguments=given) for name, given in calls]
        if not calls or closed:
            return found
        begin = after
    at_end = not found or not text[_skip(text, found[-1].end) :]
    return found if at_end else []


def _body(text: str, opened: re.Match[str]) -> tuple[str, int]:
    """What stands in a block, and where it ends: at the first mark on a line of its own, else at any."""
    at, mark = opened.end(), opened["mark"]
    own = re.compile(rf"(?:\n|(?<=\n))[ \t]*{mark}(?!\w)").search(text, at)
    closing = own or re.compile(rf"{mark}(?!\w)").search(text, at)
    if closing is None:
        return text[at:], len(text)
    return text[at : closing.start()], closing.end()


def _past(text: str, at: int, mark: str) -> int:
    while text.startswith(mark, at):
        at += 1
    return at


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
