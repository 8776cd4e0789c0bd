"""What is kept of an output, and what is dropped."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from sandbox.inside import ends, protocol


@given(st.lists(st.binary(max_size=40)), st.integers(min_value=2, max_value=60))
def test_head_and_tail_of_output_are_sent_and_the_rest_is_counted(pieces: list[bytes], cap: int) -> None:
    reader, writer = os.pipe()
    sent: list[tuple[int, bytes]] = []
    wire = SimpleNamespace(room=True, send=lambda kind, channel, data: sent.append((kind, data)))
    output = ends.Output(wire, 1, reader, cap, lambda _: None)  # type: ignore[arg-type]
    for piece in filter(None, pieces):
        os.write(writer, piece)
        output.ready()
    os.close(writer)
    cut = output.finish()
    os.close(reader)
    whole, head = b"".join(pieces), b"".join(data for kind, data in sent if kind == protocol.HEAD_OUTPUT)
    got = b"".join(data for _, data in sent)
    assert len(got) + cut == len(whole)
    assert head == whole[: cap // 2]
    assert got == whole if len(whole) <= cap else got == head + whole[-(cap - cap // 2) :]


def test_a_sign_of_life_is_sent_while_no_output_goes_out_and_not_more_than_one_a_second() -> None:
    reader, writer = os.pipe()
    sent: list[int] = []
    wire = SimpleNamespace(room=True, send=lambda kind, *_: sent.append(kind))
    output = ends.Output(wire, 1, reader, 4, lambda _: None)  # type: ignore[arg-type]

    def prints(data: bytes, *, ago: float) -> list[int]:
        output._sign = time.monotonic() - ago
        sent.clear()
        os.write(writer, data)
        output.ready()
        return list(sent)

    assert prints(b"ab", ago=5) == [protocol.HEAD_OUTPUT]
    assert prints(b"more", ago=5) == [protocol.ALIVE]
    assert prints(b"more", ago=0.5) == []
    wire.room = False  # the host does not read: nothing may pile up
    assert prints(b"more", ago=5) == []
    os.close(writer)
    os.close(reader)


def test_a_tail_of_tiny_pieces_stays_small() -> None:
    reader, writer = os.pipe()
    output = ends.Output(SimpleNamespace(room=True, send=print), 1, reader, 100, print)  # type: ignore[arg-type]
    for _ in range(10_000):
        os.write(writer, b"xy" * 30)
        output.ready()
        assert len(output._kept) <= 2 * 50 + protocol.FRAME + 60
    os.close(writer)
    os.close(reader)


def test_a_whole_output_waits_for_credit_and_what_the_pipe_holds_at_the_end_does_not() -> None:
    reader, writer = os.pipe()
    sent: list[bytes] = []
    gone: list[bool] = []
    wire = SimpleNamespace(room=True, send=lambda _, __, data: sent.append(data))

    def ended(broken: bool) -> None:
        gone.append(broken)
        output.fd = -1

    output = ends.Whole(wire, 1, reader, ended)  # type: ignore[arg-type]
    for _ in range(protocol.WINDOW // 1024):
        os.write(writer, bytes(1024))
        output.ready()
    assert output.want() == 0
    os.write(writer, b"last")
    os.close(writer)
    assert output.finish() == 0
    assert sent[-1] == b"last"
    assert sum(map(len, sent)) == protocol.WINDOW + 4
    assert gone == [False]
    os.close(reader)
