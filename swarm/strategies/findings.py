"""What a reviewer found, as data: read out of its answer, and which of it is worth another round. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import Field, ValidationError

from swarm.strategies.question import read_object
from swarm.types import Frozen

_MOST = 8
_WORDS = re.compile(r"\w+")
_SAME = 0.6  # share of words in common from which two findings on one file are one


class Finding(Frozen):
    """One thing that a reviewer says of a change. A ``fault`` makes it wrong; a ``nit`` is a matter of taste."""

    kind: Literal["fault", "nit"] = "nit"
    file: str = Field(default="", max_length=500)
    line: int = 0
    what: str = Field(min_length=1, max_length=2000)
    mend: str = Field(default="", max_length=2000)

    def told(self) -> str:
        """In words for the one who mends it."""
        place = f"{self.file}{f', line {self.line}' if self.line > 0 else ''}: " if self.file else ""
        return f"- {place}{self.what}" + (f" To mend it: {self.mend}" if self.mend else "")


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "findings": {
            "type": "array",
            "maxItems": _MOST,
            "items": {
                "type": "object",
                "properties": {
                    "kind": {"enum": ["fault", "nit"]},
                    "file": {"type": "string", "maxLength": 300},
                    "line": {"type": "integer"},
                    "what": {"type": "string", "maxLength": 600},
                    "mend": {"type": "string", "maxLength": 600},
                },
                "required": ["kind", "file", "line", "what", "mend"],
            },
        }
    },
    "required": ["findings"],
}


def read(text: str) -> tuple[Finding, ...] | None:
    """The findings in an answer, what is none left out; None where the answer cannot be read at all."""
    found = read_object(text)
    listed = found.get("findings") if found is not None else None
    if not isinstance(listed, list):
        return None
    return tuple(filter(None, (_finding(item) for item in listed[:_MOST])))


def worth_a_round(
    findings: Iterable[Finding], before: Sequence[Finding], changed: Sequence[str]
) -> tuple[Finding, ...]:
    """The faults in what was changed that were not told before; no nit, no other file, nothing twice makes a round."""
    return tuple(
        one
        for one in findings
        if one.kind == "fault"
        and (not one.file or one.file.removeprefix("./") in changed)
        and not any(_same(one, earlier) for earlier in before)
    )


def _same(one: Finding, other: Finding) -> bool:
    if one.file != other.file:
        return False
    left, right = (set(_WORDS.findall(finding.what.lower())) for finding in (one, other))
    return len(left & right) >= _SAME * min(len(left), len(right)) if left and right else one.what == other.what


def _finding(item: object) -> Finding | None:
    if not isinstance(item, dict):
        return None
    known = {key: item[key] for key in Finding.model_fields if item.get(key) is not None}
    known = {key: value[:2000] if isinstance(value, str) else value for key, value in known.items()}
    if isinstance(known.get("kind"), str):
        known["kind"] = "fault" if known["kind"].lower() in {"fault", "bug", "error", "blocking", "major"} else "nit"
    try:
        return Finding.model_validate(known)
    except ValidationError:
        return None
