"""Which program wrote a file, and its transcript: ours, an ATIF document, or a trajectory of another agent's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from swarm.errors import TranscriptError
from swarm.transcripts import atif, journal, lines, mini, swe_agent
from swarm.transcripts.shape import Agent, Header, Transcript
from swarm.transcripts.values import parsed, text
from swarm.types import Step

OURS = "jsonl"
JOURNAL = "journal"
AUTO = "auto"
_LINE = {"task", "attempt", "seq", "at", "kind"}


class Form(NamedTuple):
    """A form that is read: whether a value looks like it, and what is made of one."""

    looks: Callable[[Any], bool]
    read: Callable[[Any], Transcript]


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "atif": Form(atif.is_one, atif.transcript_of),
        mini.NAME: Form(mini.is_one, mini.transcript_of),
        swe_agent.NAME: Form(swe_agent.is_one, swe_agent.transcript_of),
    }
)
NAMES = (AUTO, OURS, JOURNAL, *FORMS)
_MEND = f"say which program wrote it with --from: {', '.join(FORMS)}"


def read(raw: bytes, form: str = AUTO) -> Transcript:
    """The transcript in a file's content; ``form`` is one of `NAMES`. Raises TranscriptError."""
    if form == OURS or (form == AUTO and lines.is_one(raw)):
        return lines.loads(raw)
    if form == JOURNAL or (form == AUTO and _is_journal(raw)):
        return _of_journal(raw)
    try:
        value = parsed(raw)
    except ValueError as error:
        raise TranscriptError(f"it is no transcript and no JSON: {str(error)[:200]}") from error
    name = form if form != AUTO else next((name for name, each in FORMS.items() if each.looks(value)), "")
    if name not in FORMS:
        raise TranscriptError("nothing that is read here looks like it", _MEND)
    if not FORMS[name].looks(value):
        raise TranscriptError(f"it does not look like what {name} writes", _MEND)
    try:
        return FORMS[name].read(value)
    except ValidationError as error:
        raise TranscriptError(f"it is not as {name} writes it: {lines.fault(error)}") from error


def _is_journal(raw: bytes) -> bool:
    """Whether a file begins as a journal does: what `swarm logs --json` prints, and an evaluation keeps of a try."""
    first = raw.lstrip()[: lines.LONGEST].split(b"\n", 1)[0]
    try:
        begin = parsed(first)
    except ValueError:
        return False
    return isinstance(begin, dict) and begin.keys() >= _LINE


def _of_journal(raw: bytes) -> Transcript:
    """Of a journal's lines. Of several attempts the last one counts, with the lines that belong to none."""
    found: list[Step] = []
    for number, each in enumerate(raw.splitlines(), 1):
        if not each.strip():
            continue
        try:
            found.append(Step.model_validate(parsed(each)))
        except ValidationError as error:
            raise TranscriptError(f"line {number} is no line of a journal: {lines.fault(error)}") from error
        except ValueError as error:
            raise TranscriptError(f"line {number} is no JSON: {str(error)[:200]}") from error
    attempt = next((step.attempt for step in reversed(found) if step.attempt), None)
    kept = [step for step in found if step.attempt in (attempt, None)]
    begun = next((step.data for step in kept if step.kind == "attempt"), {})
    header = Header(
        agent=Agent(name="agent-swarm"),
        task=kept[0].task if kept else "",
        attempt=attempt or "",
        strategy=text(begun.get("strategy")),
        tier=text(begun.get("tier")),
    )
    return journal.transcript(header, kept)
