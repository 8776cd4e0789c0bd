"""The lines of a transcript: read back as written, held to the shipped schema, and every mistake named by its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from swarm.errors import TranscriptError
from swarm.transcripts import lines, schema, values
from swarm.transcripts.shape import Transcript
from tests.swarm.transcripts.conftest import HEADER

FIRST = lines.line(HEADER).encode()


def step(number: int, **more: Any) -> bytes:
    return json.dumps({"type": "step", "step_id": number, "source": "agent", **more}).encode() + b"\n"


def test_what_is_written_is_read_back_the_same(made: Transcript) -> None:
    told = lines.dumps(made)
    assert told.isascii()
    assert lines.loads(told.encode()) == made
    assert lines.is_one(told.encode())


def test_every_line_keeps_the_shipped_schema(made: Transcript) -> None:
    shipped = json.loads(schema.FILE.read_text())
    checker = jsonschema.Draft202012Validator(shipped)
    for each in lines.dumps(made).splitlines():
        checker.validate(json.loads(each))
    assert not checker.is_valid({"type": "step", "source": "agent"})
    assert not checker.is_valid({"step_id": 1, "source": "agent"})


def test_shipped_schema_is_that_of_the_program() -> None:
    assert schema.FILE.read_text() == schema.told()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "it is empty"),
        (b"\xff\xfe", "line 1 is no JSON: byte 0 is not UTF-8"),
        (b"nonsense", "line 1 is no JSON"),
        (b"[1]", "line 1 is neither header, step nor end"),
        (b'{"type": {"a": 1}}', "line 1 is neither header, step nor end"),
        (step(1), "one header, and that is its first line"),
        (FIRST + FIRST, "line 2: a transcript has one header"),
        (FIRST + step(2), "its step_id is 2, not 1"),
        (FIRST + step(1, source="ghost"), "line 2: source"),
        (FIRST + step(1, colour="red"), "line 2: colour"),
        (FIRST + step(1, message=7), "line 2: message"),
        (FIRST + b'{"type":"end","total_cost_usd":NaN}', "NaN is no number"),
        (FIRST + b'{"type":"end","total_cost_usd":1e999}', "a number that is larger than any"),
        (FIRST + b'{"type":"end"}\n' + step(1), "something follows the end"),
        (FIRST + step(1, observation={"results": [{"source_call_id": "x"}]}), "of call 'x', which is not made there"),
        (b'{"type":"header","version":2,"agent":{"name":"x"}}', "of version 2; this program reads version 1"),
        (FIRST + b"[" * 100_000, "nested deeper"),
        (FIRST + b'{"a":' * 60 + b"1" + b"}" * 60, "nested deeper"),
        (FIRST + b"1" * 5000, "line 2 is no JSON"),
    ],
)
def test_mistake_is_named_by_its_line(raw: bytes, words: str) -> None:
    with pytest.raises(TranscriptError) as told:
        lines.loads(raw)
    assert words in str(told.value)
    assert told.value.mend
    assert len(str(told.value)) < 400


def test_half_of_a_pair_of_surrogates_can_be_written_out_again() -> None:
    told = lines.loads(FIRST + step(1, message="a\ud800b"))
    assert told.steps[0].message == "a\ufffdb"
    assert lines.dumps(told).encode()


def test_more_than_fits_is_refused_before_it_is_read() -> None:
    with pytest.raises(TranscriptError, match=r"line 2 has .* at most"):
        lines.loads(FIRST + step(1, message="x" * 1000), longest=len(FIRST) + 1)
    with pytest.raises(ValueError, match=r"values, more than 12"):
        values.parsed(json.dumps(list(range(20))), most=12)


def test_file_is_written_for_its_owner_alone_and_over_none(tmp_path: Path, made: Transcript) -> None:
    path = tmp_path / "a.jsonl"
    lines.write(path, made)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(TranscriptError, match="cannot be written"):
        lines.write(path, made)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(TranscriptError, match="cannot be written"):
        lines.write(tmp_path / "link", made, over=True)


def test_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match="is a folder"):
        lines.content(tmp_path)
    (tmp_path / "a").write_bytes(b"x" * 11)
    with pytest.raises(TranscriptError, match="at most 10"):
        lines.content(tmp_path / "a", largest=10)
