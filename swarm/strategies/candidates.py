"""From sampled texts to edits of one line worth testing. Pure."""

from __future__ import annotations

import ast
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher

from swarm.strategies.spectrum import Suspect, parse

_LONGEST = 400


@dataclass(frozen=True)
class Candidate:
    """One line in place of another. ``cost`` counts changed characters, ``promise`` orders the testing."""

    file: str
    line: int
    old: str
    new: str
    cost: int
    promise: float
    function: str = ""

    @property
    def key(self) -> tuple[str, int, str]:
        """What makes two candidates the same."""
        return self.file, self.line, self.new


def drawn(suspect: Suspect, source: str, samples: Iterable[str]) -> tuple[Candidate, ...]:
    """The distinct usable replacements among the samples; one seen often, on a suspicious line, promises more.

    Left out: what equals the old line, spans lines, holds control characters, or leaves a Python file that does not
    parse or means the same as before.
    """
    votes = Counter(text for text in (sample.strip() for sample in samples) if _plain(text) and text != suspect.text)
    before = _meaning(suspect.file, source)
    found = []
    for text, count in votes.items():
        after = _meaning(suspect.file, apply(source, suspect.line, text))
        if after is None or (after == before and suspect.file.endswith(".py")):
            continue
        cost = changed(suspect.text, text)
        found.append(
            Candidate(suspect.file, suspect.line, suspect.text, text, cost, suspect.score * count, suspect.function)
        )
    return tuple(sorted(found, key=lambda candidate: -candidate.promise))


def replacement(answer: str, suspect: Suspect) -> str:
    """The replacement in a constrained edit; empty where the answer is no edit of exactly this line."""
    try:
        edit = json.loads(answer)
    except ValueError:
        return ""
    if not isinstance(edit, dict) or edit.get("file") != suspect.file or edit.get("line") != suspect.line:
        return ""
    text = edit.get("replacement")
    return text if isinstance(text, str) else ""


def apply(source: str, line: int, new: str) -> str:
    """The source with one line replaced; its indentation, its line end and everything else stay."""
    lines = source.split("\n")
    old = lines[line - 1]
    body = old.removesuffix("\r")
    indent = body[: len(body) - len(body.lstrip())]
    lines[line - 1] = indent + new.strip() + old[len(body) :]
    return "\n".join(lines)


def changed(old: str, new: str) -> int:
    """How many characters differ between two lines."""
    matcher = SequenceMatcher(a=old, b=new, autojunk=False)
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal")


def smallest(passing: Iterable[Candidate]) -> Candidate:
    """The smallest change of those that pass; among equals the more promising."""
    return min(passing, key=lambda candidate: (candidate.cost, -candidate.promise, candidate.key))


def _plain(text: str) -> bool:
    return 0 < len(text) <= _LONGEST and not any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in text)


def _meaning(file: str, source: str) -> str | None:
    """What a Python file says regardless of its layout, None where it does not parse; other files mean their text."""
    if not file.endswith(".py"):
        return source
    try:
        return ast.dump(parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
