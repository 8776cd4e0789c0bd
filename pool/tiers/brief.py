"""A brief of a long conversation: the task, the latest turns, and of all between what has to do with them. Pure."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pool.types import Message

SMALLEST = 1200  # characters; what is shorter is read whole
PIECE = 400  # characters of a piece, about
PIECES = 4000  # pieces looked at; of longer conversations the oldest are left out
LATEST = 3  # messages at the end that are shown first of all
ENDS = 0.6  # share of the brief that task and latest messages may take
GAP = "[...]"
WORD = re.compile(r"\w{2,}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one message, in its place."""

    message: int
    text: str


def brief(messages: Sequence[Message], share: float) -> str | None:
    """The conversation as a transcript of at most ``share`` of its characters; None where that cannot be done.

    Pieces between task and latest turns are chosen by the rare words that they share with those, later ones first
    among equals, and stand in their order.
    """
    whole = transcript(messages)
    most = int(len(whole) * share)
    if len(whole) < SMALLEST or not messages:
        return None
    shown = _shown(messages, most)
    text = _written(messages, shown)
    return text if len(text) <= most else None


def transcript(messages: Sequence[Message]) -> str:
    """A conversation as plain text."""
    return "\n\n".join(f"[{message.role}]\n{body(message)}" for message in messages)


def body(message: Message) -> str:
    """What a message says, its calls as JSON."""
    calls = [json.dumps({"call": call.name, "arguments": call.arguments}) for call in message.tool_calls]
    return "\n".join(part for part in (message.content.strip(), *calls) if part)


def _shown(messages: Sequence[Message], most: int) -> list[Piece]:
    """The pieces to show, in order."""
    ends = _ends(messages, int(most * ENDS))
    taken = {piece.message for piece in ends}
    room = most - sum(_cost(piece) for piece in ends)
    middle = [piece for number in range(len(messages)) if number not in taken for piece in _pieces(messages, number)]
    middle = middle[-PIECES:]
    chosen: list[int] = []
    for index in _ranked(middle, " ".join(piece.text for piece in ends)):
        if (cost := _cost(middle[index])) <= room:
            chosen.append(index)
            room -= cost
    picked = [*ends, *(middle[index] for index in sorted(chosen))]
    return sorted(picked, key=lambda piece: piece.message)


def _ends(messages: Sequence[Message], most: int) -> list[Piece]:
    """The task (the first words of a person), the rules before it, and the latest messages, each shortened to fit."""
    first = next((number for number, message in enumerate(messages) if message.role == "user"), 0)
    numbers = sorted({*range(first + 1), *range(max(0, len(messages) - LATEST), len(messages))})
    each = max(80, most // len(numbers))
    return [Piece(number, _ended(body(messages[number]), each)) for number in numbers]


def _ended(text: str, most: int) -> str:
    """A text shortened in its middle."""
    if len(text) <= most:
        return text
    half = max(1, (most - len(GAP) - 2) // 2)
    return f"{text[:half]}\n{GAP}\n{text[-half:]}"


def _pieces(messages: Sequence[Message], number: int) -> list[Piece]:
    """A message cut at line ends into pieces of about one size."""
    pieces: list[Piece] = []
    lines: list[str] = []
    size = 0
    for line in body(messages[number]).splitlines():
        for part in (line[start : start + PIECE] for start in range(0, max(1, len(line)), PIECE)):
            if lines and size + len(part) > PIECE:
                pieces.append(Piece(number, "\n".join(lines)))
                lines, size = [], 0
            lines.append(part)
            size += len(part) + 1
    return [*pieces, Piece(number, "\n".join(lines))] if lines else pieces


def _ranked(pieces: Sequence[Piece], about: str) -> list[int]:
    """Indices of the pieces, the most telling first."""
    bags = [set(WORD.findall(piece.text.casefold())) for piece in pieces]
    seen = Counter(word for bag in bags for word in bag)
    wanted = set(WORD.findall(about.casefold()))

    def worth(index: int) -> tuple[float, int]:
        shared = bags[index] & wanted
        return sum(math.log(1 + len(pieces) / seen[word]) for word in shared), index

    return sorted(range(len(pieces)), key=worth, reverse=True)


def _cost(piece: Piece) -> int:
    return len(piece.text) + 2 * len(GAP) + 20  # with its role and the gap before it


def _written(messages: Sequence[Message], pieces: Sequence[Piece]) -> str:
    out: list[str] = []
    for index, piece in enumerate(pieces):
        before = pieces[index - 1].message if index else None
        out.append(
            f"{GAP}\n{piece.text}" if before == piece.message else f"[{messages[piece.message].role}]\n{piece.text}"
        )
    return "\n\n".join(out)
