"""Events come out whole however their bytes were cut, and mean what a well-kept parser says they mean."""

from __future__ import annotations

import itertools

import httpx
import pytest
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from pool.errors import TransientError
from pool.wire.stream import LARGEST, Event, Splitter


def read(*chunks: bytes) -> list[Event]:
    splitter = Splitter()
    return [event for chunk in chunks for event in splitter.feed(chunk)]


def test_plain_events_keep_their_bytes() -> None:
    one, two = read(b'data: {"a": 1}\n\ndata: [DONE]\n\n')
    assert (one.sort, one.raw, one.json()) == ("piece", b'data: {"a": 1}\n\n', {"a": 1})
    assert two.sort == "done"


@pytest.mark.parametrize(
    ("stream", "sort", "data"),
    [
        (b": ping\n\n", "comment", b""),
        (b"data:x\n\n", "piece", b"x"),
        (b"data: x\r\n\r\n", "piece", b"x"),
        (b"data: x\r\r", "piece", b"x"),
        (b"data: x\r\rdata: y", "piece", b"x"),
        (b"data: x\r\n\r", "piece", b"x"),
        (b"data: x\n\r", "piece", b"x"),
        (b"data: x\r\n\n", "piece", b"x"),
        (b"\xef\xbb\xbf: c\rdata:x\r\n\r\n", "piece", b"x"),
        (b"\r\n\r\ndata: x\r\r", "piece", b"x"),
        (b"\xef\xbb\xbfdata: x\n\n", "piece", b"x"),
        (b"data: a\ndata: b\n\n", "piece", b"a\nb"),
        (b"event: error\ndata: {}\n\n", "error", b"{}"),
        (b'error: {"code":500}\n\n', "error", b'{"error":{"code":500}}'),
        (b": note\ndata: x\n\n", "piece", b"x"),
        (b"id: 7\nretry: 5\ndata: x\n\n", "piece", b"x"),
        (b"\n\n\ndata: x\n\n", "piece", b"x"),
        (b"data: [DONE] \n\n", "done", b"[DONE] "),
        (b"data: \xc3\xa4\n\n", "piece", "ä".encode()),
    ],
)
def test_forms_of_an_event(stream: bytes, sort: str, data: bytes) -> None:
    (event,) = read(stream)
    assert (event.sort, event.data) == (sort, data)
    (again,) = read(*(stream[i : i + 1] for i in range(len(stream))))
    assert again == event


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_terminator_waits_for_no_further_byte(end: str) -> None:
    """A server that keeps its connection open after it would be taken for one that broke off."""
    assert [event.sort for event in read(f"data: {{}}{end}{end}data: [DONE]{end}{end}".encode())] == ["piece", "done"]


def test_an_unusual_form_is_handed_on_in_the_usual_one() -> None:
    forms = (b'data:{"a":1}\n\n', b'id: 4\nevent: message\ndata: {"a":1}\n\n', b'data: {"a":\ndata: 1}\n\n')
    for form in forms:
        (event,) = read(form)
        assert event.raw.startswith(b'data: {"a":')
        assert event.raw.count(b"\n") == 2
        assert event.json() == Event("piece", b"", event.raw[6:]).json() == {"a": 1}


def test_what_has_not_ended_is_no_event() -> None:
    splitter = Splitter()
    assert splitter.feed(b"data: half\n") == []
    assert splitter.rest == b"data: half\n"


@pytest.mark.parametrize("data", [b"{torn", b"[]", b"7", b"null", b"\xff"])
def test_value_that_is_no_object_is_a_passing_fault(data: bytes) -> None:
    (event,) = read(b"data: " + data + b"\n\n")
    with pytest.raises(TransientError):
        event.json()


def test_event_without_an_end_is_bounded() -> None:
    with pytest.raises(TransientError, match="more than"):
        Splitter().feed(b"x" * (LARGEST + 1))


LINES = st.sampled_from(["data: {}", "data:a b", "data:  c", ": note", "data", "id: 1", "event: message", "", "", "x"])
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=30), st.lists(st.integers(0, 200), max_size=20))
def test_any_cut_of_any_mixture_reads_as_httpx_sse_does(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    data = "".join(line + end for line, end in lines).encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found = read(*(data[a:b] for a, b in itertools.pairwise(edges)))
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=data)
    told = [event.data for event in EventSource(answer).iter_sse() if event.data]
    values = [event.data.decode() for event in found if event.sort in ("piece", "done") and event.data]
    assert values == told
