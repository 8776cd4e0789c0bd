"""Which program wrote a file, and its transcript: ours, an ATIF document, or a trajectory of another agent's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from swarm.errors import TranscriptError
from swarm.transcripts import atif, journal, lines, mini, swe_agent
from swarm.transcripts.shape import Agent, Header, Transcript
from swarm.transcripts.values import parsed, text
from swarm.types import Step, TaskState

OURS = "jsonl"
JOURNAL = "journal"
AUTO = "auto"
CUT = "cut_off"  # in the header's extra: the last line of the file was
_FINAL = frozenset(state.value for state in TaskState if state.final)
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


def read(raw: bytes, form: str = AUTO, *, torn: bool = False) -> Transcript:
    """The transcript in a file's content; ``form`` is one of `NAMES`. With ``torn`` the last of our lines may have been
    cut off: it is left out, and the header's ``extra`` tells that it was. Raises TranscriptError."""
    if form == OURS and _is_journal(raw):
        raise TranscriptError("it is a journal", "make a transcript of it: swarm transcript export FILE")
    if form == OURS or (form == AUTO and lines.is_one(raw)):
        return _in_lines(raw, lines.loads, torn=torn)
    if form == JOURNAL or (form == AUTO and _is_journal(raw)):
        return _in_lines(raw, _of_journal, torn=torn)
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


def _in_lines(raw: bytes, reader: Callable[[bytes], Transcript], *, torn: bool) -> Transcript:
    """What a reader of lines makes of them; see `read`."""
    kept, cut = lines.whole(raw) if torn else (raw, False)
    told = reader(kept)
    if not cut:
        return told
    extra = told.header.extra | {CUT: True}
    return told.model_copy(update={"header": told.header.model_copy(update={"extra": extra})})


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
        title=text(begun.get("title")),
        strategy=text(begun.get("strategy")),
        tier=text(begun.get("tier")),
    )
    ending, reason = _ending(found)
    return journal.transcript(header, kept, ending=ending, reason=reason)


def _ending(found: Sequence[Step]) -> tuple[str, str]:
    """How it ended and why, both empty where it goes on or was cut off: a task by its last state, a try of an
    evaluation, which has none, by the judge's word or the fault that ends it."""
    states = [step.data for step in found if step.kind == "state"]
    if states:
        state, reason = text(states[-1].get("to")), text(states[-1].get("reason"))
        return (state, reason) if state in _FINAL else ("", "")
    last = found[-1] if found else None
    if last is None or last.kind not in {"report", "fault"}:
        return "", ""
    if last.kind == "fault":
        return TaskState.INFRA_FAILED, text(last.data.get("why"))
    return text(last.data.get("ending")) or text(last.data.get("verdict")), text(last.data.get("reason"))
