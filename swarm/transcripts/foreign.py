"""Which program wrote a file, and its transcript: ours, an ATIF document, or a trajectory of another agent's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from swarm.errors import TranscriptError
from swarm.transcripts import atif, lines, mini, swe_agent
from swarm.transcripts.shape import Transcript
from swarm.transcripts.values import parsed

OURS = "jsonl"
AUTO = "auto"


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
NAMES = (AUTO, OURS, *FORMS)
_MEND = f"say which program wrote it with --from: {', '.join(FORMS)}"


def read(raw: bytes, form: str = AUTO) -> Transcript:
    """The transcript in a file's content; ``form`` is one of `NAMES`. Raises TranscriptError."""
    if form == OURS or (form == AUTO and lines.is_one(raw)):
        return lines.loads(raw)
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
