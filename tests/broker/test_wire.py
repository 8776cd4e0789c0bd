"""What crosses the socket, and that the daemon's side needs no other file of the broker."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire import MAX_WORDS, Proposal, decode_proposal, encode_proposal

PROPOSAL = Proposal(id="p", capability="c", task="t", base_commit="a" * 40, tree="b" * 40, title="T")


@given(st.binary(max_size=2000))
def test_a_proposal_and_any_pack_come_back(pack):
    assert decode_proposal(encode_proposal(PROPOSAL, pack)) == (PROPOSAL, pack)


@given(st.binary(max_size=200))
def test_any_other_bytes_are_a_value_error(body):
    with pytest.raises(ValueError, match=r"proposal|JSON|valid"):
        decode_proposal(body)


def test_a_length_beyond_the_body_is_refused():
    body = encode_proposal(PROPOSAL, b"")
    with pytest.raises(ValueError, match="not a proposal"):
        decode_proposal(body[:-1])


@pytest.mark.parametrize(
    "evidence",
    [
        '{"seconds": Infinity}',
        '{"cost": NaN}',
        '{"gpu_seconds": 1e308}',
        f'{{"tokens": 1{"0" * 400}}}',
        f'{{"attempts": 1{"0" * 4000}}}',
        f'{{"after": {{"command": "x", "exit_code": -1{"0" * 400}}}}}',
        f'{{"after": {{"command": "x", "exit_code": 0, "passed": 1{"0" * 400}}}}}',
        f'{{"fixed": ["{"x" * 1001}"]}}',
    ],
)
def test_a_number_that_json_or_a_reader_cannot_bear_is_refused(evidence):
    words = PROPOSAL.model_dump_json(exclude={"evidence"})[:-1] + f', "evidence": {evidence}}}'
    with pytest.raises(ValueError, match="evidence"):
        decode_proposal(struct.pack(">4sI", b"SWP1", len(words)) + words.encode())


def test_words_that_would_fill_the_memory_are_refused_before_they_are_read():
    words = b'{"x":[' + b"[]," * (MAX_WORDS // 3) + b"[]]}"
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=f"{MAX_WORDS} are read"):
            decode_proposal(struct.pack(">4sI", b"SWP1", len(words)) + words)
        assert tracemalloc.get_traced_memory()[1] < 2 * MAX_WORDS + 100_000
    finally:
        tracemalloc.stop()


def test_the_longest_body_is_read():
    longest = PROPOSAL.model_copy(update={"body": "\x01" * 64_000})
    assert decode_proposal(encode_proposal(longest, b"")) == (longest, b"")


@pytest.mark.parametrize("name", ["A", "a/b", "", "-a", ".a", "a\n", "a b", "ä", "x" * 65])
def test_ids_are_plain_names(name):
    with pytest.raises(ValueError, match="id"):
        Proposal.model_validate(PROPOSAL.model_dump() | {"id": name})


@pytest.mark.parametrize("oid", ["A" * 40, "a" * 39, "a" * 41, "a" * 40 + "\n", "HEAD", ""])
def test_object_ids_are_whole(oid):
    with pytest.raises(ValueError, match="tree"):
        Proposal.model_validate(PROPOSAL.model_dump() | {"tree": oid})


def test_the_wire_is_importable_when_every_other_file_is_absent(tmp_path):
    source = Path(__file__).parents[2] / "broker"
    (tmp_path / "broker").mkdir()
    for name in ("__init__.py", "wire.py"):
        shutil.copy(source / name, tmp_path / "broker" / name)
    script = "import sys, broker.wire; print(sorted(m for m in sys.modules if m.startswith(('broker', 'httpx'))))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd="/",
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['broker', 'broker.wire']"
