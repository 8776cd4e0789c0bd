"""Transcripts as JSON Lines: written one object a line, read within bounds, each mistake named by its line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from swarm.errors import TranscriptError
from swarm.transcripts.shape import FORMAT, VERSION, End, Header, Step, Transcript
from swarm.transcripts.values import LARGEST, parsed

LONGEST = 32 * 1024 * 1024  # bytes of a line
LINES = 400_000
_SHAPES: dict[str, type[Header | Step | End]] = {"header": Header, "step": Step, "end": End}
_MEND = "see what a transcript is in docs/transcripts.md; another program's goes through: swarm transcript import"


def dumps(transcript: Transcript) -> str:
    """All lines, each ended by a newline; the same for the same transcript, byte for byte."""
    return "".join(line(each) for each in _parts(transcript))


def line(part: BaseModel) -> str:
    """One line: what has its default is left out, and nothing but ASCII is in it."""
    first = {name: getattr(part, name) for name in ("type", "format", "version") if hasattr(part, name)}
    told = part.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(first | told, ensure_ascii=True, separators=(",", ":"), allow_nan=False) + "\n"


def loads(raw: bytes, *, longest: int = LONGEST) -> Transcript:
    """The transcript in JSON Lines, none of over ``longest`` bytes. Raises TranscriptError, which names the line."""
    found: list[Header | Step | End] = []
    lines = [each for each in raw.split(b"\n", LINES + 1) if each.strip()]
    if len(lines) > LINES:
        raise TranscriptError(f"it has more than {LINES} lines", _MEND)
    for number, each in enumerate(lines, 1):
        part = _read(each, number, longest)
        _require_order(found[-1] if found else None, part, number)
        found.append(part)
    if not found:
        raise TranscriptError("it is empty: a transcript begins with a header", _MEND)
    header, end = found[0], found[-1]
    steps = tuple(each for each in found if isinstance(each, Step))
    assert isinstance(header, Header)  # noqa: S101 - `_require_order` saw to it; this tells mypy
    return Transcript(header=header, steps=steps, end=end if isinstance(end, End) else None)


def is_one(raw: bytes) -> bool:
    """Whether a file begins as a transcript does; it may be wrong further on."""
    first = raw.lstrip()[:LONGEST].split(b"\n", 1)[0]
    try:
        begin = parsed(first)
    except ValueError:
        return False
    return isinstance(begin, dict) and begin.get("format") == FORMAT


def whole(raw: bytes) -> tuple[bytes, bool]:
    """The whole lines of a file, and whether a last one, which a writer that was ended left half, is not in them."""
    kept, newline, last = raw.rpartition(b"\n")
    if not newline or not last.strip():
        return raw, False
    try:
        parsed(last)
    except ValueError:
        return kept + newline, True
    return raw, False


def content(path: Path, *, largest: int = LARGEST) -> bytes:
    """A file's content. Raises TranscriptError where it cannot be read, is empty or larger than any transcript."""
    try:
        with path.open("rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > largest:
                raise TranscriptError(f"{path} has {size} bytes; at most {largest} are read")
            raw = file.read(largest + 1)
    except OSError as error:
        why, mend = _unreadable(error)
        raise TranscriptError(f"{path} {why}", mend) from error
    if len(raw) > largest:
        raise TranscriptError(f"{path} has more than {largest} bytes")
    if not raw.strip():
        raise TranscriptError(f"{path} is empty", "name a file that holds a transcript, a journal or a trajectory")
    return raw


def _unreadable(error: OSError) -> tuple[str, str]:
    """Why a file cannot be read, and the mend."""
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return "is not there", "see whether its name is right; a task's transcript goes by its id: swarm list"
        case IsADirectoryError():
            return "is a folder", "name a file in it"
        case PermissionError():
            return "may not be read by you", "see whose it is with: ls -l"
    return f"cannot be read: {error.strerror or error}", "see to its disk"


def write(path: Path, text: str | Transcript, *, over: bool = False) -> None:
    """Put a file there, for its owner alone. Raises TranscriptError where that cannot be; also where there is one,
    unless it may be written ``over``."""
    told = dumps(text) if isinstance(text, Transcript) else text
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_TRUNC if over else os.O_EXCL)
    try:
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8", newline="\n") as file:  # noqa: PTH123 - no path
            file.write(told)
    except OSError as error:
        mend = "name another one with -o" if isinstance(error, FileExistsError) else "see whether you may write there"
        raise TranscriptError(f"{path} cannot be written: {error.strerror}", mend) from error


def _parts(transcript: Transcript) -> Iterator[BaseModel]:
    yield transcript.header
    yield from transcript.steps
    if transcript.end is not None:
        yield transcript.end


def _read(raw: bytes, number: int, longest: int) -> Header | Step | End:
    if len(raw) > longest:
        raise TranscriptError(f"line {number} has {len(raw)} bytes; at most {longest} are read", _MEND)
    try:
        value = parsed(raw)
    except ValueError as error:
        raise TranscriptError(f"line {number} is no JSON: {str(error)[:200]}", _MEND) from error
    kind = value.get("type") if isinstance(value, dict) else None
    shape = _SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        told = "it has no type" if kind is None else f"its type is {str(kind)[:50]!r}"
        raise TranscriptError(f"line {number} is neither header, step nor end: {told}", _MEND)
    if shape is Header and value.get("version") != VERSION:
        told = str(value.get("version"))[:50]
        raise TranscriptError(f"it is of version {told}; this program reads version {VERSION}", "use a newer program")
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        raise TranscriptError(f"line {number}: {fault(error)}", _MEND) from error


def fault(error: ValidationError) -> str:
    """What is wrong with a value, and where in it, in one short line."""
    first: Any = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(each)[:40] for each in first["loc"][:8])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _require_order(before: Header | Step | End | None, part: Header | Step | End, number: int) -> None:
    if isinstance(part, Header) != (before is None):
        raise TranscriptError(f"line {number}: a transcript has one header, and that is its first line", _MEND)
    if isinstance(before, End):
        raise TranscriptError(f"line {number}: something follows the end", _MEND)
    if isinstance(part, Step) and part.step_id != number - 1:
        raise TranscriptError(f"line {number}: its step_id is {part.step_id}, not {number - 1}", _MEND)
    if isinstance(part, Step):
        require_calls(part, f"line {number}")


def require_calls(step: Step, where: str) -> None:
    """Raises TranscriptError where a result belongs to a call that the step has not made."""
    made = {call.tool_call_id for call in step.tool_calls}
    results: Iterable[Any] = step.observation.results if step.observation else ()
    for result in results:
        if result.source_call_id is not None and result.source_call_id not in made:
            told = str(result.source_call_id)[:60]
            raise TranscriptError(f"{where}: a result is of call {told!r}, which is not made there", _MEND)
