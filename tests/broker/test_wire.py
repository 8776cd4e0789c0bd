"""What crosses the socket, and that the daemon's side needs no other file of the broker."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.wire import Proposal, decode_proposal, encode_proposal

PROPOSAL = Proposal(id="p", capability="c", task="t", base_commit="a" * 40, tree="b" * 40, title="T")


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_a_proposal_and_any_pack_come_back(pack):
    assert decode_proposal(encode_proposal(PROPOSAL, pack)) == (PROPOSAL, pack)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_other_bytes_are_a_value_error(body):
    with pytest.raises(ValueError, match=r"proposal|JSON|valid"):
        decode_proposal(body)


def test_a_length_beyond_the_body_is_refused():
    body = encode_proposal(PROPOSAL, b"")
    with pytest.raises(ValueError, match="not a proposal"):
        decode_proposal(body[:-1])


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
