"""A connection from inside is read strictly, within bytes and seconds, one request after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping

import pytest

from sandbox.egress.conversation import Caps, Conversation
from sandbox.egress.refusal import CutError, RefusedError
from sandbox.egress.stream import Tunnel
from tests.sandbox.egress.conftest import opened, said

CAPS = Caps(body=20, head=1000, fields=5, head_seconds=0.3, idle=0.3, between=0.3, linger=0.2)


class Echo:
    """An exit that answers each request with its target and body."""

    port = 1
    seen: list[tuple[str, bytes]]

    def __init__(self, caps: Caps = CAPS, late: float = 0) -> None:
        self.caps = caps
        self.late = late
        self.seen = []

    def environment(self) -> Mapping[str, str]:
        return {}

    def files(self) -> Mapping[str, bytes]:
        return {}

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, labels: Mapping[str, str]
    ) -> None:
        talk = Conversation(Tunnel(reader, writer), self.caps)
        try:
            while asked := await talk.ask():
                body = b"".join([piece async for piece in talk.body()]) if asked.body else b""
                self.seen.append((asked.target, body))
                await asyncio.sleep(self.late)
                if not await talk.answer(200, [], _pieces(asked.target.encode(), b"|", body)):
                    break
        except RefusedError as error:
            await talk.refuse(error.refusal)
        except CutError:
            pass
        finally:
            writer.close()


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def test_requests_that_came_at_once_are_answered_in_their_order() -> None:
    echo = Echo()
    post = b"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
    chunked = (
        b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n"
    )
    last = b"GET /d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /e HTTP/1.1\r\nHost: a\r\n\r\n"
    async with opened(echo) as port:
        answers = await said(port, b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n" + post + chunked + last)
    assert echo.seen == [("/a", b""), ("/b", b"hello"), ("/c", b"abcde"), ("/d", b"")]
    assert answers.count(b"HTTP/1.1 200 OK") == 4


async def test_a_request_may_come_byte_by_byte() -> None:
    echo = Echo()
    async with opened(echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for byte in b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi":
            writer.write(bytes([byte]))
            await writer.drain()
        assert b"/a" in await reader.read()
        writer.close()
    assert echo.seen == [("/a", b"hi")]


@pytest.mark.parametrize("dripped", [b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\n"])
async def test_a_head_that_drips_is_given_up(dripped: bytes) -> None:
    """Slowloris: each byte in time, the whole never."""
    async with opened(Echo()) as port:
        begun = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(dripped)
        dripping = asyncio.ensure_future(_drip(writer))
        answer = await reader.read()
        dripping.cancel()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not come within 0.3 s" in answer
    assert time.monotonic() - begun < 20


async def _drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x")
        await asyncio.sleep(0.05)


async def test_a_body_that_stops_is_given_up() -> None:
    async with opened(Echo()) as port:
        answer = await said(port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
    assert b"nothing came for 0.3 s" in answer


async def test_who_says_nothing_is_let_go_without_a_word() -> None:
    async with opened(Echo()) as port:
        assert await said(port, b"") == b""


async def test_heads_and_bodies_are_bounded() -> None:
    echo = Echo()
    async with opened(echo) as port:
        assert b"431" in await said(port, b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"431" in await said(port, b"GET /" + b"a" * 2000)
        assert b"more than 5 fields" in await said(port, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 9 + b"\r\n")
        assert b"413" in await said(port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 21\r\n\r\n" + b"a" * 21)
        many = b"1\r\na\r\n" * 21 + b"0\r\n\r\n"
        assert b"413" in await said(port, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + many)
    assert echo.seen == []


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\r\nHost: a\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nno field\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n",  # CVE-2025-43859
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n",
    ],
)
async def test_what_is_not_plainly_http_is_refused_with_a_reason(request_: bytes) -> None:
    echo = Echo()
    async with opened(echo) as port:
        answer = await said(port, request_)
    assert answer[:10] in {b"HTTP/1.1 4", b"HTTP/1.1 5"}
    assert len(answer.partition(b"\r\n\r\n")[2]) > 20
    assert echo.seen == []


async def test_what_was_awaited_is_asked_for() -> None:
    async with opened(Echo()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"hi")
        assert b"200" in await reader.readuntil(b"\r\n\r\n")
        writer.close()


async def test_an_old_client_is_answered_as_it_can_read() -> None:
    async with opened(Echo()) as port:
        answer = await said(port, b"GET /old HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n/old|")
    assert b"chunked" not in answer
