"""What a tool call gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swarm.tools.arguments import Finish


@dataclass(frozen=True)
class Result:
    """What a call gave: ``text`` for the model, ``kind`` and ``data`` for the journal.

    ``changed`` tells that the workspace may differ now, ``ok`` that the call did what it asked for. ``finish`` ends the
    work, ``ask`` ends it with a question to a person.
    """

    text: str
    kind: str = "note"
    data: Mapping[str, Any] = field(default_factory=dict)
    changed: bool = False
    ok: bool = True
    finish: Finish | None = None
    ask: str | None = None


def refused(why: str) -> Result:
    """A call that did nothing, and why, in words for the model."""
    return Result(f"error: {why}", ok=False)
