"""Frames from a sandbox: whole ones in pieces of any size, and nothing else."""

from __future__ import annotations

import marshal
import os

import pytest

from sandbox.errors import SandboxLostError
from sandbox.inside import protocol as inside
from sandbox.line.wire import BrokenLineError, Frame, Frames, frame, request

GOOD = [
    Frame(inside.HELLO, 0, b"landlock 7\n"),
    Frame(inside.HEAD_OUTPUT, 1, b"x" * inside.FRAME),
    Frame(inside.CREDIT, 1, inside.COUNT.pack(7)),
    Frame(inside.DATA, inside.TUNNEL, b"y"),
    Frame(inside.END, inside.TUNNEL, b""),
    Frame(inside.ALIVE, 1, b""),
    Frame(inside.REFUSED, 2, b""),
    Frame(inside.DONE, 1, inside.DONE_FIELDS.pack(255, 3, 1, 1 << 40)),
]


@pytest.mark.parametrize("step", [1, 3, 8, 9, 10, 4096, 1 << 20])
def test_frames_come_out_whole_whatever_the_pieces(step: int) -> None:
    data = b"".join(frame(f.kind, f.channel, f.data) for f in GOOD)
    frames, got = Frames(), []
    for at in range(0, len(data), step):
        got += frames.feed(data[at : at + step])
    assert got == GOOD


@pytest.mark.parametrize(
    "data",
    [
        inside.HEAD.pack(inside.DATA, 1, inside.FRAME + 1),
        inside.HEAD.pack(inside.DATA, 1, 0xFFFFFFFF),
        inside.HEAD.pack(inside.DATA, 1, 0),
        inside.HEAD.pack(inside.END, 1, 1),
        inside.HEAD.pack(inside.ALIVE, 1, 1),
        inside.HEAD.pack(inside.CREDIT, 1, 5),
        inside.HEAD.pack(inside.DONE, 1, 0),
        inside.HEAD.pack(inside.REFUSED, 1, inside.FRAME + 1),
        inside.HEAD.pack(inside.ASK, 1, 10),
        inside.HEAD.pack(inside.PART, 1, 10),
        inside.HEAD.pack(0, 0, 0),
        inside.HEAD.pack(255, 1, 3),
        b"Traceback (most recent call last):",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_no_supervisor_sends_is_refused_before_its_payload_is_kept(data: bytes) -> None:
    with pytest.raises(BrokenLineError):
        list(Frames().feed(data))


def test_random_bytes_never_do_anything_but_frames_or_a_refusal() -> None:
    for _ in range(300):
        try:
            for piece in Frames().feed(os.urandom(200)):
                assert isinstance(piece, Frame)
        except BrokenLineError:
            pass


@pytest.mark.parametrize("size", [0, 1, inside.FRAME - 30, inside.FRAME, 3 * inside.FRAME + 1])
def test_long_requests_go_in_parts(size: int) -> None:
    data, payload, kinds = request(5, "run", {"argv": (b"x" * size,)}), b"", []
    while data:
        kind, channel, length = inside.HEAD.unpack(data[: inside.HEAD.size])
        assert channel == 5
        assert length <= inside.FRAME
        payload += data[inside.HEAD.size : inside.HEAD.size + length]
        data = data[inside.HEAD.size + length :]
        kinds.append(kind)
    assert payload == marshal.dumps(("run", {"argv": (b"x" * size,)}), 2)
    assert kinds == [inside.PART] * (len(kinds) - 1) + [inside.ASK]


def test_a_request_without_end_is_refused() -> None:
    with pytest.raises(SandboxLostError, match="too long"):
        request(1, "run", bytes(9 << 20))
