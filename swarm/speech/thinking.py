"""Thoughts that a server left in an answer's text: split off, also where one of their marks is missing. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MARKS = (
    ("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]"), ("<reasoning>", "</reasoning>"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"), ("<seed:think>", "</seed:think>"), ("<thought>", "</thought>"),
    ("<|channel|>analysis<|message|>", "<|end|>"), ("<|channel>thought", "<channel|>"),
)  # fmt: skip
_SKIPPED = re.compile(r"(?:\s|<\|start\|>assistant|<\|im_start\|>assistant)*")
_NEXT = re.compile(r"<tool_call|<function=|\[TOOL_CALLS\]|<\|tool_call|\Z")


def split(text: str, calls: Sequence[tuple[int, int]] = ()) -> tuple[str, str]:
    """The thoughts and the rest of an answer. ``calls`` are where calls stand in it: a mark within one is none.

    A thought that nothing closes goes on to the end, or to the first call that is marked as one
    (vllm-project/vllm#39056). Where a template had put the opening mark into the prompt, only the closing one is there.
    """
    thoughts: list[str] = []
    rest = 0
    while True:
        begin = _SKIPPED.match(text, rest).end()  # type: ignore[union-attr]
        marks = next((marks for marks in _MARKS if text.startswith(marks[0], begin)), None)
        if marks is None:
            break
        inner = begin + len(marks[0])
        end = text.find(marks[1], inner)
        if end < 0:
            end = _NEXT.search(text, inner).start()  # type: ignore[union-attr]
            thoughts.append(text[inner:end])
            rest = end
            break
        thoughts.append(text[inner:end])
        rest = end + len(marks[1])
    text = text[rest:]
    if not thoughts:
        for opening, closing in _MARKS[:6]:
            at = text.find(closing)
            before, after = text[:at], text[at + len(closing) :]
            within = any(start < at < end for start, end in calls)
            if (
                at >= 0
                and not within
                and opening not in before
                and (not after or after[0].isspace() or after[0] == "<")
            ):
                return before.strip(), after.strip("\n")
    return "\n".join(part.strip() for part in thoughts if part.strip()), text.strip("\n") if thoughts else text
