"""A transcript that may leave the house: secrets struck out, a person's paths and names of hosts made general. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from swarm.telemetry.redaction import STRUCK, Redactor
from swarm.transcripts.shape import Transcript
from swarm.types import Frozen

# A home of a person, wherever it lies; what follows it stays. On Windows and macOS a name may have blanks in it: they
# belong to it where a separator comes after them, or the quote that stands before the whole path.
_PART = r"[^/\\\s\"'<>:|]{1,64}"
_HOMES = re.compile(
    rf"""(?P<root>/home/){_PART}
      | (?P<quote>["'])?(?P<spaced>/Users/|[A-Za-z]:\\{{1,4}}(?:Users|Documents\ and\ Settings)\\{{1,4}}){_PART}
        (?:(?:\\{{0,4}}[ ]{_PART}){{1,3}}(?=[/\\]|(?(quote)(?P=quote)|(?!))))?
    """,
    re.VERBOSE,
)
_MAIL = re.compile(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,253}\.[A-Za-z]{2,24}\b")
USER, ADDRESS = "user", "someone@example.org"


class Scrubbed(Frozen):
    """What is left, and how much was taken away."""

    transcript: Transcript
    secrets: int
    paths: int


def scrubbed(transcript: Transcript, redactor: Redactor, *, paths: bool = True) -> Scrubbed:
    """Without what is or looks like a secret; with ``paths`` also without the names in home folders and mail addresses.

    A struck value keeps its place, so that the transcript stays one.
    """
    raw = transcript.model_dump(mode="json", exclude_defaults=True)
    clean: Any = _leaves(raw, redactor)
    secrets = json.dumps(clean).count(STRUCK) - json.dumps(raw).count(STRUCK)
    changed = 0
    if paths:

        def general(text: str) -> str:
            nonlocal changed
            text, homes = _HOMES.subn(_general, text)
            text, mails = _MAIL.subn(ADDRESS, text)
            changed += homes + mails
            return text

        clean = _each(clean, general)
    return Scrubbed(transcript=Transcript.model_validate(clean), secrets=max(0, secrets), paths=changed)


def _general(found: re.Match[str]) -> str:
    return "".join(found[name] or "" for name in ("quote", "root", "spaced")) + USER


def _leaves(raw: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Each part by itself: a transcript is a few levels deeper than what the redactor looks into."""
    clean = {"header": redactor.data(raw["header"])}
    clean |= {"steps": [redactor.data(step) for step in raw.get("steps", ())]}
    clean |= {"end": redactor.data(raw["end"])} if raw.get("end") else {}
    return _as_shaped(raw, clean)


def _as_shaped(raw: dict[str, Any], clean: dict[str, Any]) -> dict[str, Any]:
    """What names the parts of a transcript for programs: no secret can stand there that they would not refuse."""
    for before, after in zip(raw.get("steps", ()), clean["steps"], strict=True):
        after["step_id"], after["source"] = before["step_id"], before["source"]
        ids = {call["tool_call_id"]: call["tool_call_id"] for call in after.get("tool_calls", ()) if call}
        for result in after.get("observation", {}).get("results", ()):
            if result.get("source_call_id") not in ids:
                result.pop("source_call_id", None)
    return clean


def _each(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key) if isinstance(key, str) else key: _each(each, change) for key, each in value.items()}
    return [_each(each, change) for each in value] if isinstance(value, list) else value
