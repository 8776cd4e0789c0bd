"""Connections to a server that says anything: every answer is whole, or it is told to be broken."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from pydantic import SecretStr

from pool.channel import BEFORE, Channel, UnreadError
from pool.config import EndpointConfig
from pool.errors import EndpointDeadError, OverloadError, PoolConfigError, TransientError

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
PATH = "/v1/chat/completions"


class Script:
    """A server that answers each request with the next bytes; None hangs up. ``got`` are the requests, and ``late`` is
    said a moment after the first answer."""

    def __init__(self, *answers: bytes | None, close: bool = False, late: bytes = b"") -> None:
        self.answers = list(answers)
        self.late = late
        self.close = close
        self.got: list[bytes] = []
        self.connections = 0
        self.drained = 0
        self.port = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.got.append(head + await reader.readexactly(size))
                answer = self.answers.pop(0) if self.answers else None
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                self.drained += 1
                if self.late:
                    await asyncio.sleep(0.02)
                    writer.write(self.late)
                    self.late = b""
                if self.close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def asked(script: Script, **more: object) -> AsyncIterator[Channel]:
    server = await asyncio.start_server(script, "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{script.port}"
    channel = Channel(EndpointConfig.model_validate({"name": "a", "url": url, **more}), 2.0)
    try:
        yield channel
    finally:
        await channel.aclose()
        server.close()


async def said(channel: Channel) -> bytes:
    answering = await channel.post(PATH, {"model": "m"}, {"X-Request-Id": "r-1"})
    try:
        data = await answering.body()
    except BaseException:
        answering.close()
        raise
    answering.finish()
    return data


def sized(body: bytes, more: bytes = b"") -> bytes:
    return OK + more + b"content-length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    ("answer", "close"),
    [
        (sized(b"hello"), False),
        (CHUNKED + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", False),
        (CHUNKED + b"5;a=b\r\nhello\r\n0\r\nx-trailer: 1\r\n\r\n", False),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + sized(b"hello"), False),
        (OK + b"\r\nhello", True),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", True),
    ],
    ids=["sized", "chunked", "trailer", "interim", "until it closes", "1.0"],
)
async def test_answer_comes_whole_however_it_is_framed(answer: bytes, close: bool) -> None:
    script = Script(answer, close=close)
    async with asked(script) as channel:
        assert await said(channel) == b"hello"


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"content-length: 9\r\n\r\nhello",
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"zz\r\nhello\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        OK + b"content-le",
        OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    ],
    ids=["short", "no last chunk", "no chunk", "no http", "half a head", "two lengths", "upgrade"],
)
async def test_answer_that_is_torn_or_none_is_a_passing_fault_and_its_connection_is_not_used_again(
    answer: bytes,
) -> None:
    script = Script(answer, sized(b"well"), close=True)
    async with asked(script) as channel:
        with pytest.raises(
            TransientError, match=r"endpoint a: (the connection to http://127|101 is no answer)"
        ) as told:
            await said(channel)
        assert "Error" not in str(told.value)  # the library's names of its own
        assert await said(channel) == b"well"
        assert (len(script.got), script.connections) == (2, 2)


@pytest.mark.parametrize("endless", [OK + b"x: " + b"y" * 400_000, CHUNKED + b"1\r\nh\r\n0\r\nx: " + b"y" * 400_000])
async def test_head_or_trailer_without_an_end_is_given_up(endless: bytes) -> None:
    script = Script(endless)
    async with asked(script) as channel, asyncio.timeout(5):
        with pytest.raises(TransientError, match="broke"):
            await said(channel)


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"br", b"unheard-of"])
async def test_compressed_answer_that_nobody_asked_for_is_left_unread(coding: bytes) -> None:
    bomb = gzip.compress(bytes(8 * 1024 * 1024), 9)
    script = Script(sized(bomb, b"content-encoding: " + coding + b"\r\n"))
    async with asked(script) as channel:
        with pytest.raises(UnreadError, match="coded as"):
            await said(channel)


async def test_second_answer_that_nobody_asked_for_is_never_taken_for_the_next_one() -> None:
    script = Script(sized(b"mine") + sized(b"of another"), sized(b"mine too"))
    async with asked(script) as channel:
        assert await said(channel) == b"mine"
        assert await said(channel) == b"mine too"
        assert script.connections == 2


LATE = [
    sized(b"of another"),
    CHUNKED + b"a\r\nof another\r\n0\r\n\r\n",
    b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    OK + b"x-half: a head",
    b"xx",
    b"\r\n",
]


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("first", [sized(b"mine"), CHUNKED + b"4\r\nmine\r\n0\r\n\r\n"], ids=["sized", "chunked"])
async def test_what_comes_unasked_on_a_kept_connection_is_no_answer_to_the_next_request(
    first: bytes, late: bytes
) -> None:
    """aiohttp's pool would hand that connection on: this fails where an upgrade takes our hold of it away."""
    script = Script(first, sized(b"mine too"), late=late)
    async with asked(script) as channel:
        assert await said(channel) == b"mine"
        await asyncio.sleep(0.05)
        assert await said(channel) == b"mine too"
        assert (len(script.got), script.connections) == (2, 2)


@pytest.mark.parametrize(
    "endless",
    [OK + b"x: ", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 100, OK[:-2] + b" well" * 100],
    ids=["one header", "interim answers", "a reason"],
)
async def test_what_comes_before_a_body_is_bounded_whatever_it_is(endless: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(endless)
            for _ in range(64 * BEFORE // 4096):
                writer.write(endless if b"103" in endless else b"y" * 4096)
                await writer.drain()
                told.append(4096)
        writer.close()

    told: list[int] = []
    async with asyncio.timeout(5), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        channel = Channel(EndpointConfig(name="a", url=url), 2.0)
        with pytest.raises(TransientError, match=r"more than .* bytes (before the body|when reading)"):
            await said(channel)
        await channel.aclose()
    assert sum(told) < 64 * BEFORE


async def test_connection_is_used_again_unless_the_server_says_that_it_closes() -> None:
    script = Script(sized(b"a"), sized(b"b", b"connection: close\r\n"), sized(b"c"))
    async with asked(script) as channel:
        assert [await said(channel) for _ in range(3)] == [b"a", b"b", b"c"]
        assert script.connections == 2


async def test_request_is_sent_once_more_only_where_no_byte_of_an_answer_came() -> None:
    """llm-d/llm-d#1564: a kept connection that the server closes meanwhile; an answer that began was worked on."""
    script = Script(sized(b"a"), None, sized(b"b"), OK, sized(b"never"))
    async with asked(script) as channel:
        assert await said(channel) == b"a"
        assert await said(channel) == b"b"
        script.close = True
        with pytest.raises(TransientError):
            await said(channel)
        assert len(script.got) == 4


async def test_new_connection_that_breaks_before_an_answer_is_not_tried_again() -> None:
    script = Script(None, sized(b"never"))
    async with asked(script) as channel:
        with pytest.raises(TransientError, match="broke"):
            await said(channel)
        assert len(script.got) == 1


async def test_server_waits_while_its_answer_is_not_read() -> None:
    body = b"x" * (16 * 1024 * 1024)
    script = Script(sized(body))
    async with asked(script) as channel:
        answering = await channel.post(PATH, {}, {})
        await asyncio.sleep(0.1)
        assert script.drained == 0
        assert len(await answering.body()) == len(body)


async def test_reader_is_told_when_its_answer_is_closed_under_it() -> None:
    script = Script(OK + b"content-length: 9\r\n\r\nhello")
    async with asked(script) as channel:
        answering = await channel.post(PATH, {}, {})
        reading = asyncio.create_task(answering.body())
        await asyncio.sleep(0.01)
        answering.close()
        with pytest.raises(TransientError, match="broke"):
            await reading


async def test_channel_that_was_closed_sends_nothing() -> None:
    script = Script(sized(b"a"), sized(b"b"))
    async with asked(script) as channel:
        assert await said(channel) == b"a"
        await channel.aclose()
        with pytest.raises(TransientError, match="just left the pool"):
            await said(channel)
        assert len(script.got) == 1


async def test_refusal_in_pieces_is_read_in_full() -> None:
    script = Script(
        b"HTTP/1.1 429 Slow\r\nretry-after: 7\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
    )
    async with asked(script) as channel:
        with pytest.raises(OverloadError) as told:
            await said(channel)
        assert told.value.retry_after == 7


async def test_head_holds_what_it_should_and_nothing_that_a_caller_made_up() -> None:
    script = Script(sized(b"a"))
    async with asked(script, api_key=SecretStr("s3cret")) as channel:
        (await channel.post(PATH, {}, {"X-Session-ID": "a\r\nx-evil: 1", "X-Other": "b", "X-Request-Id": "r"})).close()
    head, _, body = script.got[0].partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"post /v1/chat/completions http/1.1"
    assert body == b"{}"
    assert sorted(line.split(b":")[0] for line in lines[1:]) == [
        b"accept", b"accept-encoding", b"authorization", b"content-length", b"content-type", b"host", b"x-request-id",
    ]  # fmt: skip
    assert b"host: 127.0.0.1:%d" % script.port in lines


async def test_nobody_listening_and_a_host_without_address_are_dead() -> None:
    for url in ("http://127.0.0.1:1", "http://no-such-host.invalid:80"):
        channel = Channel(EndpointConfig(name="a", url=url), 2.0)
        with pytest.raises(EndpointDeadError, match="nobody listens"):
            await said(channel)
        await channel.aclose()


async def unencrypted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers as a plain HTTP server does to what is no HTTP."""
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
    await writer.drain()
    writer.close()


async def test_https_that_cannot_be_relied_on_is_told_from_nobody(tmp_path: Path) -> None:
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("openssl makes the certificate")
    key, cert = tmp_path / "key", tmp_path / "cert"
    words = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=x")
    files = ("-keyout", str(key), "-out", str(cert))
    made = await asyncio.create_subprocess_exec(openssl, *words, *files, stderr=asyncio.subprocess.DEVNULL)
    assert await made.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    secret = await asyncio.start_server(Script(sized(b"x")), "127.0.0.1", 0, ssl=context)
    plain = await asyncio.start_server(unencrypted, "127.0.0.1", 0)
    async with secret, plain:
        for server, words_of in ((secret, "is not trusted.*SSL_CERT_FILE"), (plain, "speaks no https.*write http://")):
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            channel = Channel(EndpointConfig(name="a", url=url), 2.0)
            try:
                with pytest.raises(EndpointDeadError, match=words_of):
                    await said(channel)
            finally:
                await channel.aclose()


async def test_key_that_no_header_can_hold_is_refused_without_showing_it() -> None:
    config = EndpointConfig(name="a", url="http://127.0.0.1:1", api_key=SecretStr("a\r\nx: y"))
    with pytest.raises(PoolConfigError, match="line break") as told:
        Channel(config, 2.0)
    assert "x: y" not in str(told.value)
