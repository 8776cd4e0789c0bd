"""The model's own list of steps, read as models write such lists and shown back in one form. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

from swarm.history import clean

State = Literal["to do", "doing", "done"]
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])?\s*(?:\[(?P<box>.?)\])?\s*(?P<text>.*\S)\s*$")
_BOXES: dict[str, State] = {
    "x": "done", "X": "done", "\u2713": "done", "\u2714": "done",
    ">": "doing", "~": "doing", "-": "doing", "/": "doing",
}  # fmt: skip
_WORDS: dict[str, State] = {
    "done": "done", "completed": "done", "complete": "done", "finished": "done", "in_progress": "doing",
    "doing": "doing", "in progress": "doing", "active": "doing",
}  # fmt: skip
_SIGNS: dict[State, str] = {"to do": "[ ]", "doing": "[>]", "done": "[x]"}
_MOST, _LONG = 50, 300


@dataclass(frozen=True)
class Item:
    """One step and how far it is."""

    text: str
    state: State = "to do"


def read(text: str) -> tuple[Item, ...]:
    """The items of a list, one a line, as text or as JSON objects; at most fifty."""
    items = [item for line in clean(text).split("\n") if (item := _item(line)) is not None]
    return tuple(items[:_MOST])


def shown(items: tuple[Item, ...]) -> str:
    """The list as its writer sees it again."""
    done = sum(item.state == "done" for item in items)
    return "\n".join([f"{done} of {len(items)} done", *(f"{_SIGNS[item.state]} {item.text}" for item in items)])


def _item(line: str) -> Item | None:
    if line.lstrip().startswith("{"):
        return _of_object(line)
    match = _ITEM.match(line)
    return Item(match["text"][:_LONG].rstrip(), _BOXES.get(match["box"] or "", "to do")) if match else None


def _of_object(line: str) -> Item | None:
    """An item as other agents' tools have it: a text under one of several names, and a status."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        return Item(line.strip()[:_LONG].rstrip())
    keys = ("text", "content", "step", "title", "task", "description", "name")
    text = next((str(given[key]) for key in keys if given.get(key)), "")
    state = _WORDS.get(str(given.get("status", given.get("state", ""))).lower(), "to do")
    return Item(" ".join(text.split())[:_LONG].rstrip(), state) if text.strip() else None
