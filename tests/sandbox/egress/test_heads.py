"""What of a head may be read in two ways is refused; what is a hop's own does not travel."""

from __future__ import annotations

import pytest

from sandbox.egress.heads import fault, homeward, hopeless, onward, value_of


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\nX: b", "bare line feed"),
        (b"GET / HTTP/1.1\r\nHost: a\rX: b", "bare line feed, carriage return"),
        (b"GET / HTTP/1.1\r\nHost: a\0", "control character"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n b", "folded"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\tb", "folded"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nhOST : b", "host twice"),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5", "content-length twice"),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\ncontent-length : 6", "content-length twice"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x", "transfer-encoding twice"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", "beside"),
        (b"GET / HTTP/1.1" + b"\r\nA: b" * 11, "more than 10 fields"),
    ],
)
def test_a_head_that_may_be_read_in_two_ways_is_refused(head: bytes, words: str) -> None:
    assert words in (fault(head, 10) or "")


def test_a_plain_head_has_no_fault() -> None:
    assert fault(b"GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\nX:\tb\xff", 10) is None
    assert hopeless(b"GET / HTTP/1.1\r\nHo") is None


@pytest.mark.parametrize("start", [b"\x16\x03\x01", b"\x05\x01\x00", b"\r\n", b"\0", b" GET", b"GET / HTTP/1.1\n"])
def test_a_hopeless_beginning_is_told_at_once(start: bytes) -> None:
    assert hopeless(start)


def test_only_what_is_named_travels_on_and_nothing_of_the_hop() -> None:
    fields = [
        *(
            (b"accept", b"a"),
            (b"x-stainless-os", b"b"),
            (b"authorization", b"c"),
            (b"connection", b"close, Accept-Language"),
        ),
        *((b"accept-language", b"d"), (b"te", b"e"), (b"host", b"f"), (b"transfer-encoding", b"g"), (b"upgrade", b"h")),
    ]
    assert onward(fields, ["accept", "accept-language", "x-stainless-*", "te", "host", "upgrade"]) == [
        (b"accept", b"a"),
        (b"x-stainless-os", b"b"),
    ]


def test_an_answers_own_length_stays_and_its_hop_does_not() -> None:
    fields = [
        *((b"Content-Length", b"5"), (b"Connection", b"keep-alive, content-length, x-a"), (b"X-A", b"1")),
        *((b"Alt-Svc", b"h3"), (b"Set-Cookie", b"a=b"), (b"ETag", b"e")),
    ]
    assert homeward(fields, {b"set-cookie"}) == [(b"content-length", b"5"), (b"etag", b"e")]
    assert value_of(homeward(fields), b"etag") == "e"
