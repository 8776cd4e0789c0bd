"""The engine's framing comes apart however it was cut."""

from __future__ import annotations

import os
import struct

from hypothesis import given
from hypothesis import strategies as st

from sandbox.container.frames import Unframer


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", kind, len(data)) + data


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=8), st.integers(1, 9))
def test_pieces_join_to_what_was_sent(sent: list[tuple[int, bytes]], step: int) -> None:
    whole = b"".join(frame(kind, data) for kind, data in sent)
    unframer, got = Unframer(), []
    for at in range(0, len(whole), step):
        got += unframer.feed(whole[at : at + step])
    for kind in (1, 2):
        assert b"".join(d for k, d in got if k == kind) == b"".join(d for k, d in sent if k == kind)
    assert [k for k, _ in got if k == 1] or not any(d for k, d in sent if k == 1)


def test_a_large_frame_is_handed_on_as_it_comes_and_never_gathered() -> None:
    unframer, data = Unframer(), os.urandom(1000)
    head = struct.pack(">BxxxI", 1, 4_000_000_000)
    assert list(unframer.feed(head + data)) == [(1, data)]
    for _ in range(100):
        assert list(unframer.feed(data)) == [(1, data)]
    assert unframer._held == b""
